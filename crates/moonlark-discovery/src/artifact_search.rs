//! Search in an artifact: the lines of its text and the items of its lists that fit a
//! question, with the path to each.

use std::sync::Arc;

use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::artifacts::{ArtifactContent, StoredArtifact};

use crate::text_index::{IndexEntry, TextIndexBuilder};

/// How much is looked at: what comes after is said to be there.
const MAX_ARTIFACT_ROWS: usize = 100_000;
const MAX_SEARCHED_ARTIFACT_BYTES: usize = 16 * 1024 * 1024;
/// What is larger is searched part by part.
const MAX_ARTIFACT_ROW_BYTES: usize = 1000;
/// Of a row that is shown.
const MAX_SHOWN_ROW_BYTES: usize = 300;

pub(crate) async fn search_artifact(
    stored: Arc<StoredArtifact>,
    query: String,
    limit: usize,
) -> Result<String> {
    let found = tokio::task::spawn_blocking(move || find_in_artifact(&stored, &query, limit)).await;
    found.map_err(|_| Problem::internal("the artifact could not be searched"))?
}

fn find_in_artifact(stored: &StoredArtifact, query: &str, limit: usize) -> Result<String> {
    let mut rows = ArtifactRows::default();
    match &stored.held {
        ArtifactContent::Value(value) => rows.add_value(value, String::new(), 0),
        ArtifactContent::Bytes { bytes, mime } => {
            let other = |_| Problem::bad_request(format!("the artifact is {mime}, not text"));
            rows.add_lines(std::str::from_utf8(bytes).map_err(other)?, "");
        }
    }
    let mut builder = TextIndexBuilder::default();
    for row in &rows.found {
        builder.add_entry(&IndexEntry { body: vec![&row.text], ..IndexEntry::default() });
    }
    let hits = builder.build_index().search(query, limit, |_| true);
    let mut text = String::new();
    for hit in &hits {
        let Some(row) = rows.found.get(hit.entry as usize) else { continue };
        text.push_str(&format!("{}: {}\n", row.place, truncate_row(&row.text)));
    }
    if hits.is_empty() {
        text.push_str(&format!("Nothing fits in its {} parts.\n", rows.found.len()));
    }
    if rows.full {
        text.push_str(
            "It is larger than what is searched: read the rest with artifact(handle, …).\n",
        );
    }
    text.truncate(text.trim_end().len());
    Ok(text)
}

/// A piece of an artifact that is found as a whole.
struct ArtifactRow {
    /// As `artifact(handle, { path = … })` takes it, or with a line's number.
    place: String,
    text: String,
}

#[derive(Default)]
struct ArtifactRows {
    found: Vec<ArtifactRow>,
    bytes: usize,
    full: bool,
}

impl ArtifactRows {
    fn add_row(&mut self, place: String, text: String) {
        self.full |= self.found.len() == MAX_ARTIFACT_ROWS
            || self.bytes + text.len() > MAX_SEARCHED_ARTIFACT_BYTES;
        if !self.full && !text.is_empty() {
            self.bytes += text.len() + place.len();
            self.found.push(ArtifactRow { place, text });
        }
    }

    /// Values nest no deeper than wherever they crossed a boundary.
    fn add_value(&mut self, value: &Value, place: String, depth: usize) {
        if self.full || depth > moonlark_core::value::MAX_VALUE_DEPTH {
            return;
        }
        match value {
            Value::Str(text) if text.len() > MAX_ARTIFACT_ROW_BYTES || text.contains('\n') => {
                self.add_lines(text, &place);
            }
            Value::Str(text) => self.add_row(place, text.clone()),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.add_part(item, format!("{place}[{}]", index + 1), depth);
                }
            }
            Value::Object(fields) => {
                for (key, field) in fields {
                    let dot = if place.is_empty() { "" } else { "." };
                    let plain = key.chars().all(|it| it.is_alphanumeric() || it == '_');
                    let named = format!("{place}{dot}{key}");
                    let below = if plain { named } else { format!("{place}[{key:?}]") };
                    self.add_part(field, below, depth);
                }
            }
            Value::Null | Value::Bytes(_) => {}
            plain => self.add_row(place, plain.to_json_lossy().to_string()),
        }
    }

    /// A part as one row if it is small enough. Items of lists are rows of their
    /// own, unless the whole is one.
    fn add_part(&mut self, value: &Value, place: String, depth: usize) {
        let nests = |value: &Value| matches!(value, Value::Array(_) | Value::Object(_));
        let whole = match value {
            Value::Array(items) => !items.iter().any(nests),
            Value::Object(_) => true,
            _ => false,
        };
        if whole && fits_in_bytes(value, &mut MAX_ARTIFACT_ROW_BYTES.clone()) {
            self.add_row(place, value.to_json_lossy().to_string());
        } else {
            self.add_value(value, place, depth + 1);
        }
    }

    fn add_lines(&mut self, text: &str, place: &str) {
        for (number, line) in text.lines().enumerate() {
            let space = if place.is_empty() { "" } else { " " };
            self.add_row(format!("{place}{space}line {}", number + 1), line.trim().to_owned());
        }
    }
}

/// Whether a value takes no more than what is left.
fn fits_in_bytes(value: &Value, left: &mut usize) -> bool {
    let size = match value {
        Value::Str(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 4,
    };
    if *left < size {
        return false;
    }
    *left -= size;
    match value {
        Value::Array(items) => items.iter().all(|item| fits_in_bytes(item, left)),
        Value::Object(fields) => fields.iter().all(|(key, field)| {
            *left = left.saturating_sub(key.len());
            fits_in_bytes(field, left)
        }),
        _ => true,
    }
}

fn truncate_row(text: &str) -> String {
    if text.len() <= MAX_SHOWN_ROW_BYTES {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(MAX_SHOWN_ROW_BYTES)])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use moonlark_core::Value;

    use crate::test_catalog::{ask, world};

    async fn search(value: serde_json::Value, query: &str) -> String {
        let world = world();
        let value = Value::from_json(value).unwrap();
        let handle = world.artifacts().put_value(value, "test", &Default::default()).unwrap();
        let source = format!("artifact:{}", handle.as_str());
        ask(&world, "search_docs", json!({"query": query, "source": source, "limit": 2})).await
    }

    #[tokio::test]
    async fn items_of_lists_and_lines_of_texts_are_found_with_the_way_to_them() {
        let people =
            json!({"people": [{"name": "Ann"}, {"name": "Bob", "city": "Kiel"}], "all": 2});
        assert_eq!(
            search(people, "who lives in kiel").await,
            "people[2]: {\"name\":\"Bob\",\"city\":\"Kiel\"}"
        );
        let log = json!("starting\n  error: disk full\ndone");
        assert_eq!(search(log, "errors").await, "line 2: error: disk full");
        assert_eq!(
            search(json!({"a b": {"x": "y".repeat(2000)}, "c": "harbour"}), "harbours").await,
            "c: harbour"
        );
        assert_eq!(search(json!(["a"]), "nothing like it").await, "Nothing fits in its 1 parts.");
    }

    #[tokio::test]
    async fn a_handle_that_leads_nowhere_says_so() {
        let world = world();
        let args = json!({"query": "a", "source": "artifact:art_x"});
        let answer = ask(&world, "search_docs", args).await;
        assert!(answer.starts_with("error[bad_request]: there is no artifact 'art_x'"), "{answer}");
    }
}
