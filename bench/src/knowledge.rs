//! `cargo x bench knowledge`: how well the knowledge base answers, and how fast.

mod harness;
mod quality;
mod scale;
mod weight;

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use super::machine;
use super::retrieval::{Set, load, load_languages};
use super::search::everyday_documents;

#[derive(Args)]
pub struct Knowledge {
    /// A folder of retrieval sets: a folder each, with corpus.jsonl, queries.jsonl and qrels.tsv.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Questions about APIs, whose operations are documents here.
    #[arg(long, value_name = "DIR")]
    questions: Option<PathBuf>,
    /// Where tests/openapi/install.sh has put the documents of those APIs.
    #[arg(long, value_name = "DIR", default_value = "target/openapi")]
    documents: PathBuf,
    /// Questions in several languages.
    #[arg(long, value_name = "FILE")]
    languages: Option<PathBuf>,
    /// A model of the BERT family to compare with: its folder.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Only these sets.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    scale: scale::Scale,
    /// Write the report to this file as well.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Knowledge {
    pub fn run(self) -> Result<()> {
        if self.scale.search_only()? {
            return Ok(());
        }
        let mut page = String::new();
        writeln!(page, "# Benchmarks: knowledge\n")?;
        writeln!(page, "Written by `cargo x bench knowledge`. {}\n", machine::describe()?)?;
        let mut groups: Vec<(&str, Vec<Set>)> = Vec::new();
        if let Some(data) = &self.data {
            groups.push(("Which document answers", load(data)?));
        }
        if let Some(questions) = &self.questions {
            let sets = everyday_documents(questions, &self.documents)?;
            groups.push(("Functions as documents", sets));
        }
        if let Some(languages) = &self.languages {
            groups.push(("Languages", load_languages(languages)?));
        }
        for (title, sets) in &mut groups {
            sets.retain(|set| self.only.is_empty() || self.only.contains(&set.name));
            if !sets.is_empty() {
                page.push_str(&quality::section(title, sets, self.model.as_deref())?);
            }
        }
        page.push_str(&self.scale.section()?);
        println!("{page}");
        if let Some(out) = &self.out {
            std::fs::write(out, &page)
                .with_context(|| format!("cannot write {}", out.display()))?;
        }
        Ok(())
    }
}
