//! The other floor under search: SQLite's FTS5 with Porter stemming, as one sets it up
//! in an afternoon. A question is any of its words, ranked by its own `bm25`.

use anyhow::Result;
use rusqlite::Connection;

use super::plain_bm25::words;
use super::retrieval::{DEPTH, Document};

pub(super) struct PorterFts5 {
    connection: Connection,
}

impl PorterFts5 {
    pub(super) fn new(documents: &[Document]) -> Result<Self> {
        let connection = Connection::open_in_memory()?;
        connection.execute_batch(
            "CREATE VIRTUAL TABLE documents USING fts5(title, text, tokenize = 'porter unicode61');
             BEGIN",
        )?;
        {
            let mut insert = connection
                .prepare("INSERT INTO documents (rowid, title, text) VALUES (?1, ?2, ?3)")?;
            for (number, document) in documents.iter().enumerate() {
                insert.execute((number as i64, &document.title, &document.text))?;
            }
        }
        connection.execute_batch("COMMIT")?;
        Ok(Self { connection })
    }

    pub(super) fn rank(&self, question: &str) -> Vec<usize> {
        let asked: Vec<String> = words(question).map(|word| format!("\"{word}\"")).collect();
        self.match_any(&asked.join(" OR ")).unwrap_or_default()
    }

    /// Nothing where the question has no word.
    fn match_any(&self, asked: &str) -> rusqlite::Result<Vec<usize>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT rowid FROM documents WHERE documents MATCH ?1 ORDER BY rank, rowid LIMIT ?2",
        )?;
        let rows = statement.query_map((asked, DEPTH as i64), |row| row.get::<_, i64>(0))?;
        rows.map(|row| row.map(|number| number as usize)).collect()
    }
}
