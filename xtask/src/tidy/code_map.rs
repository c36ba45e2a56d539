//! ARCHITECTURE.md against the code: folders and crates that it does not name, names in it
//! that the code does not have, and files that do not say what they are.

use std::collections::BTreeSet;

use super::Finding;
use crate::code_map::{first_sentence, is_mapped};
use crate::repo::File;

const ARCHITECTURE_PAGE: &str = "ARCHITECTURE.md";
/// More than that is not read to its end.
const MAX_PAGE_BYTES: usize = 15_000;

/// Every top-level folder and every crate is named, and the page is short enough to read.
pub(super) fn page_is_whole_and_short(files: &[File]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == ARCHITECTURE_PAGE) else {
        return vec![Finding::new(ARCHITECTURE_PAGE, 0, "it is missing", "write it")];
    };
    let named: BTreeSet<&str> = page.text.split('`').skip(1).step_by(2).collect();
    let folders = files.iter().filter_map(|file| {
        let (folder, _) = file.path.split_once('/')?;
        // Folders with a dot are settings of tools.
        (!folder.starts_with('.')).then(|| format!("{folder}/"))
    });
    let crates = files.iter().filter_map(|file| {
        let (name, _) = file.path.strip_prefix("crates/")?.split_once('/')?;
        Some(name.to_owned())
    });
    let all: BTreeSet<String> = folders.chain(crates).collect();
    let missing = all.iter().filter(|name| !named.contains(name.as_str()));
    let mut findings: Vec<Finding> = missing
        .map(|name| {
            let what = format!("`{name}` is not named");
            Finding::new(ARCHITECTURE_PAGE, 0, what, "say what it is for")
        })
        .collect();
    if page.text.len() > MAX_PAGE_BYTES {
        let what = format!("{} bytes, more than {MAX_PAGE_BYTES}", page.text.len());
        let fix = "move what is about one crate to its own documentation";
        findings.push(Finding::new(ARCHITECTURE_PAGE, 0, what, fix));
    }
    findings
}

/// Every file begins by saying what it is: the generated map is made of that.
pub(super) fn files_say_what_they_are(files: &[File]) -> Vec<Finding> {
    let silent =
        files.iter().filter(|it| is_mapped(&it.path) && first_sentence(&it.text).is_none());
    silent
        .map(|file| {
            let fix = "begin it with //! and a sentence";
            Finding::new(&file.path, 1, "nothing says what this file is", fix)
        })
        .collect()
}

/// Every `Type::function` and `file.rs` that the document names is in the code.
pub(super) fn names_exist(files: &[File]) -> Vec<Finding> {
    let Some(document) = files.iter().find(|file| file.path == ARCHITECTURE_PAGE) else {
        return Vec::new();
    };
    let words: BTreeSet<&str> = files
        .iter()
        .filter(|file| {
            ["crates/", "xtask/", "bench/"].iter().any(|folder| file.path.starts_with(folder))
        })
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
                let fix = "write what the code says now";
                findings.push(Finding::new(ARCHITECTURE_PAGE, line, what, fix));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    fn show(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(|it| format!("{}:{}: {}", it.path, it.line, it.what)).collect()
    }

    #[test]
    fn folders_crates_and_the_length_of_the_page_are_looked_at() {
        let page = format!("`crates/` and `a`\n{}", "x".repeat(15_000));
        let files = [
            file(ARCHITECTURE_PAGE, &page),
            file("crates/a/src/lib.rs", ""),
            file("crates/b/src/lib.rs", ""),
            file("docs/x.md", ""),
            file(".cargo/config.toml", ""),
        ];
        assert_eq!(
            show(&page_is_whole_and_short(&files)),
            [
                "ARCHITECTURE.md:0: `b` is not named",
                "ARCHITECTURE.md:0: `docs/` is not named",
                "ARCHITECTURE.md:0: 15018 bytes, more than 15000",
            ]
        );
        assert_eq!(page_is_whole_and_short(&[]).len(), 1);
    }

    #[test]
    fn a_file_without_documentation_is_found() {
        let files = [
            file("crates/a/src/lib.rs", "//! It is a.\n"),
            file("crates/a/src/b.rs", "use x;\n"),
            file("crates/a/src/b/tests.rs", "use x;\n"),
        ];
        let found = show(&files_say_what_they_are(&files));
        assert_eq!(found, ["crates/a/src/b.rs:1: nothing says what this file is"]);
    }

    #[test]
    fn names_that_are_gone_are_found() {
        let page = "`Call::root` and `Call::gone`, `a.rs`, `b.rs`\n";
        let files =
            [file(ARCHITECTURE_PAGE, page), file("crates/a/src/a.rs", "impl Call { fn root() }")];
        assert_eq!(
            show(&names_exist(&files)),
            [
                "ARCHITECTURE.md:1: `Call::gone` is named here but is not in the code",
                "ARCHITECTURE.md:1: `b.rs` is named here but is not in the code",
            ]
        );
    }
}
