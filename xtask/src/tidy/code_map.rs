//! The code map of ARCHITECTURE.md against the folders, crates and files that
//! there are, in both directions.
//!
//! The section `## Code map` begins with a table of the top-level folders and
//! goes on with a heading such as ``### `crates/moonlark-core` `` for each crate,
//! followed by a table of the files in its `src`.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::repo::File;

const MAP: &str = "ARCHITECTURE.md";

pub(super) fn folders_and_crates(files: &[File]) -> Vec<Finding> {
    let map = Map::read(files);
    let folders: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| file.path.split_once('/').map(|(folder, _)| folder))
        // Folders with a dot are settings of tools.
        .filter(|folder| !folder.starts_with('.'))
        .collect();
    let crates: BTreeSet<&str> = files.iter().filter_map(|file| crate_of(&file.path)).collect();
    let mapped_crates = map.crates.iter().map(|(name, (line, _))| (name.as_str(), *line)).collect();
    let mut findings = differences(&folders, &map.folders(), "the folder", "the table of folders");
    findings.extend(differences(&crates, &mapped_crates, "the crate", "the code map"));
    findings
}

pub(super) fn files_of_crates(files: &[File]) -> Vec<Finding> {
    let map = Map::read(files);
    let mut findings = Vec::new();
    for (name, (_, mapped)) in &map.crates {
        let prefix = format!("crates/{name}/src/");
        let there: BTreeSet<&str> = files
            .iter()
            .filter_map(|file| file.path.strip_prefix(&prefix))
            .filter(|path| !is_tests(path))
            .collect();
        let mapped = mapped.iter().map(|(path, line)| (path.as_str(), *line)).collect();
        let place = format!("the code map of {name}");
        findings.extend(differences(&there, &mapped, "the file", &place));
    }
    findings
}

/// Every `Type::function` and `file.rs` that the document names is in the code.
pub(super) fn names_exist(files: &[File]) -> Vec<Finding> {
    let Some(document) = files.iter().find(|file| file.path == MAP) else { return Vec::new() };
    let words: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.path.starts_with("crates/") || file.path.starts_with("xtask/"))
        .flat_map(|file| file.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .collect();
    let is_file = |span: &str| {
        files.iter().any(|file| format!("/{}", file.path).ends_with(&format!("/{span}")))
    };
    let mut findings = Vec::new();
    for (line, text) in document.lines() {
        for span in text.split('`').skip(1).step_by(2) {
            let looks_like_file = span.ends_with(".rs") || span.ends_with(".luau");
            let missing = match span.split("::").collect::<Vec<_>>().as_slice() {
                [one] if looks_like_file && !one.contains(['*', '{', ' ']) => !is_file(one),
                [_] => false,
                path => path.iter().any(|part| !words.contains(part.trim_end_matches("()"))),
            };
            if missing {
                let what = format!("`{span}` is named here but is not in the code");
                findings.push(Finding::new(MAP, line, what, "write what the code says now"));
            }
        }
    }
    findings
}

#[derive(Default)]
struct Map {
    /// Each top-level folder with its line.
    folders: BTreeMap<String, usize>,
    /// Each crate with its line and its files.
    crates: BTreeMap<String, (usize, BTreeMap<String, usize>)>,
}

impl Map {
    fn read(files: &[File]) -> Map {
        let mut map = Map::default();
        let Some(document) = files.iter().find(|file| file.path == MAP) else { return map };
        let mut inside = false;
        let mut current: Option<String> = None;
        for (number, line) in document.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                inside = title == "Code map";
            } else if !inside {
                continue;
            } else if let Some(title) = line.strip_prefix("### ") {
                current = first_span(title)
                    .and_then(|span| Some(span.strip_prefix("crates/")?.to_owned()));
                if let Some(name) = &current {
                    map.crates.insert(name.clone(), (number, BTreeMap::new()));
                }
            } else if line.starts_with("| `")
                && let Some(span) = first_span(line)
            {
                match current.as_ref().and_then(|name| map.crates.get_mut(name)) {
                    Some((_, files)) => files.insert(span.to_owned(), number),
                    None => map.folders.insert(span.trim_end_matches('/').to_owned(), number),
                };
            }
        }
        map
    }

    fn folders(&self) -> BTreeMap<&str, usize> {
        self.folders.iter().map(|(name, line)| (name.as_str(), *line)).collect()
    }
}

fn first_span(text: &str) -> Option<&str> {
    text.split('`').nth(1)
}

fn differences(
    there: &BTreeSet<&str>,
    mapped: &BTreeMap<&str, usize>,
    what: &str,
    place: &str,
) -> Vec<Finding> {
    let missing = there.iter().filter(|name| !mapped.contains_key(*name)).map(|name| {
        let fix = "add a line that says what it is for";
        Finding::new(MAP, 0, format!("{what} {name} is not in {place}"), fix)
    });
    let gone = mapped.iter().filter(|(name, _)| !there.contains(*name)).map(|(name, line)| {
        Finding::new(
            MAP,
            *line,
            format!("{what} {name} is not in the repository"),
            "remove the line",
        )
    });
    missing.chain(gone).collect()
}

fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split_once('/').map(|(name, _)| name)
}

/// Tests need no line of their own: they are beside what they test.
fn is_tests(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    fn show(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
    }

    #[test]
    fn the_map_and_the_repository_must_agree_both_ways() {
        let map = "# A\n\n## Code map\n\n| `crates/` | x |\n| `gone/` | x |\n\n### `crates/a`: x\n\n| `lib.rs` | x |\n| `old.rs` | x |\n\n## Next\n\n| `not/` | x |\n";
        let files = [
            file(MAP, map),
            file("crates/a/src/lib.rs", ""),
            file("crates/a/src/new.rs", ""),
            file("crates/a/src/new/tests.rs", ""),
            file("crates/b/src/lib.rs", ""),
            file("docs/x.md", ""),
            file(".cargo/config.toml", ""),
        ];
        assert_eq!(
            show(&folders_and_crates(&files)),
            [
                "0: the folder docs is not in the table of folders",
                "6: the folder gone is not in the repository",
                "0: the crate b is not in the code map",
            ]
        );
        assert_eq!(
            show(&files_of_crates(&files)),
            [
                "0: the file new.rs is not in the code map of a",
                "11: the file old.rs is not in the repository",
            ]
        );
    }

    #[test]
    fn names_in_the_text_must_be_in_the_code() {
        let files = [
            file(MAP, "`Gateway::call` and `Gateway::gone`, `a.rs`, `b.rs`, `plain`"),
            file("crates/a/src/a.rs", "impl Gateway { fn call() {} }"),
        ];
        assert_eq!(
            show(&names_exist(&files)),
            [
                "1: `Gateway::gone` is named here but is not in the code",
                "1: `b.rs` is named here but is not in the code",
            ]
        );
    }
}
