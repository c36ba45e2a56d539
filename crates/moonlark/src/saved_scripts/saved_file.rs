//! The file of a saved script: a line that says whose it is and which version, and the
//! script below it.

use std::sync::Arc;

use moonlark_core::{Problem, Result, SourceLocation};
use serde::{Deserialize, Serialize};

/// How the first line begins.
const FIRST_LINE_MARK: &str = "--@ ";

#[derive(Debug, Clone, PartialEq)]
pub(super) struct SavedFile {
    pub(super) owner: Arc<str>,
    pub(super) version: u32,
    /// Seconds since 1970.
    pub(super) saved_at: u64,
    pub(super) text: String,
}

#[derive(Serialize, Deserialize)]
struct FirstLine {
    owner: String,
    version: u32,
    saved_at: u64,
}

impl SavedFile {
    pub(super) fn parse(file: &str, text: &str) -> Result<SavedFile> {
        let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
        let read = first.strip_prefix(FIRST_LINE_MARK);
        let read = read.and_then(|line| serde_json::from_str::<FirstLine>(line).ok());
        let Some(FirstLine { owner, version, saved_at }) = read else {
            return Err(Problem::bad_script("the file does not say who saved it")
                .at_location(SourceLocation::at_line(file, 1))
                .with_hint(
                    "this folder is Moonlark's own: put scripts of the project into scripts/",
                ));
        };
        Ok(SavedFile {
            owner: owner.into(),
            version: version.max(1),
            saved_at,
            text: rest.to_owned(),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let first = FirstLine {
            owner: self.owner.to_string(),
            version: self.version,
            saved_at: self.saved_at,
        };
        let first = serde_json::to_string(&first).unwrap_or_default();
        format!("{FIRST_LINE_MARK}{first}\n{}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let file = SavedFile {
            owner: "an \"odd\"\nname".into(),
            version: 3,
            saved_at: 1_800_000_000,
            text: "--! name: a\nreturn 1\n".to_owned(),
        };
        assert_eq!(SavedFile::parse("a", &file.to_text()), Ok(file));
        assert!(SavedFile::parse("a.luau", "return 1").is_err());
    }
}
