//! Tests that are skipped unless `./test` runs them: each says which script installs
//! what it needs.

use super::Finding;
use crate::repo::File;

/// `cargo test` skips an ignored test and shows its reason; the reason has to name a
/// script that installs what is missing, and `./test` has to run that script.
pub(super) fn reasons_name_what_is_missing(files: &[File]) -> Vec<Finding> {
    let runner = files.iter().find(|file| file.path == "test");
    let runner = runner.map(|file| file.text.as_str()).unwrap_or_default();
    let is_run = |script: &str| runner.lines().any(|line| line.trim() == script);
    let exists = |script: &str| files.iter().any(|file| file.path == script);
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is(".rs")) {
        for (line, text) in file.lines() {
            let Some(attribute) = text.trim_start().strip_prefix("#[ignore") else { continue };
            let reason = attribute.split('"').nth(1).unwrap_or_default();
            let words = reason.split([' ', ',', ':']);
            let scripts: Vec<&str> = words.filter(|word| word.ends_with("/install.sh")).collect();
            let what = match scripts.iter().find(|script| !exists(script) || !is_run(script)) {
                Some(script) if !exists(script) => format!("{script} does not exist"),
                Some(script) => format!("./test does not run {script}"),
                None if scripts.is_empty() => "an ignored test names no script".to_owned(),
                None if !reason.ends_with(": run ./test") => {
                    "an ignored test does not say what runs it".to_owned()
                }
                None => continue,
            };
            let fix = r#"write #[ignore = "needs tests/NAME/install.sh: run ./test"]"#;
            findings.push(Finding::new(&file.path, line, what, fix));
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

    #[test]
    fn an_ignored_test_names_scripts_that_exist_and_are_run() {
        let ignored = |reason: &str| format!("    #[ignore{reason}]\n");
        let text = [
            ignored(r#" = "needs tests/a/install.sh: run ./test""#),
            ignored(r#" = "needs tests/a/install.sh, tests/b/install.sh: run ./test""#),
            ignored(r#" = "needs tests/c/install.sh: run ./test""#),
            ignored(r#" = "slow: run ./test""#),
            ignored(r#" = "needs tests/a/install.sh""#),
            ignored(""),
        ]
        .concat();
        let files = [
            file("test", "tests/a/install.sh\n"),
            file("tests/a.rs", &text),
            file("tests/a/install.sh", ""),
            file("tests/b/install.sh", ""),
        ];
        let found: Vec<String> = reasons_name_what_is_missing(&files)
            .iter()
            .map(|it| format!("{}: {}", it.line, it.what))
            .collect();
        assert_eq!(
            found,
            [
                "2: ./test does not run tests/b/install.sh",
                "3: tests/c/install.sh does not exist",
                "4: an ignored test names no script",
                "5: an ignored test does not say what runs it",
                "6: an ignored test names no script",
            ]
        );
    }
}
