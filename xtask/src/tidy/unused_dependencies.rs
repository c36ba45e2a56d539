//! Unused dependencies: those of a crate that none of its source files names.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::Finding;
use crate::repo::File;

/// Dependencies that no source file names, by crate, each with the reason why it is there.
const UNNAMED_DEPENDENCIES: [(&str, &str, &str); 0] = [];

/// A dependency has to occur in a source file of its crate, with `_` for `-`.
pub(super) fn names_occur_in_sources(files: &[File]) -> Vec<Finding> {
    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    manifests
        .filter_map(|file| Some((file, parse_manifest(file)?)))
        .flat_map(|(file, it)| {
            let words = source_words(file, &it, files);
            let name =
                it.get("package").and_then(|it| it.get("name")?.as_str()).unwrap_or_default();
            let is_named = |dependency: &str| words.contains(dependency.replace('-', "_").as_str());
            let is_known = |dependency: &str| {
                UNNAMED_DEPENDENCIES
                    .iter()
                    .any(|(of, known, _)| (*of, *known) == (name, dependency))
            };
            let unused = dependencies(&it).filter(|it| !is_named(it) && !is_known(it));
            unused.map(|dependency| finding(file, dependency)).collect::<Vec<_>>()
        })
        .collect()
}

/// None for what is not valid TOML, which another check says.
fn parse_manifest(file: &File) -> Option<Table> {
    file.text.parse().ok()
}

fn dependencies(manifest: &Table) -> impl Iterator<Item = &str> {
    let sections = ["dependencies", "build-dependencies", "dev-dependencies"];
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let tables = targets.filter_map(|(_, target)| target.as_table());
    let found = std::iter::once(manifest).chain(tables).flat_map(move |table| {
        sections.into_iter().filter_map(|section| table.get(section)?.as_table())
    });
    found.flatten().map(|(name, _)| name.as_str())
}

/// All words of the files in the folder of a crate, and of those that its targets name
/// elsewhere, which are those of the integration suite.
fn source_words<'a>(manifest: &File, table: &Table, files: &'a [File]) -> BTreeSet<&'a str> {
    let folder = manifest.path.trim_end_matches("Cargo.toml");
    let tests = table.get("test").and_then(Value::as_array);
    let mut paths = tests.into_iter().flatten().filter_map(|test| test.get("path")?.as_str());
    let has_suite = paths.any(|path| path.starts_with("../../tests/"));
    let is_source = |file: &&File| {
        let is_own = file.path.starts_with(folder) || has_suite && file.path.starts_with("tests/");
        file.is(".rs") && is_own
    };
    let words = |file: &'a File| file.text.split(|c: char| !c.is_alphanumeric() && c != '_');
    files.iter().filter(is_source).flat_map(words).collect()
}

fn finding(manifest: &File, dependency: &str) -> Finding {
    let is_its_line = |text: &str| {
        let rest = text.strip_prefix(dependency);
        rest.is_some_and(|rest| rest.starts_with([' ', '.', '=']))
    };
    let line = manifest.lines().find(|(_, text)| is_its_line(text)).map_or(0, |(line, _)| line);
    let what = format!("no source file of the crate names {dependency}");
    let fix = "remove it, or add it to UNNAMED_DEPENDENCIES with the reason why it is there";
    Finding::new(&manifest.path, line, what, fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_dependency_that_no_source_file_names_is_found() {
        let manifest = "[package]\nname = \"a\"\n\n[dependencies]\nin-use = \"1\"\nplanted = \"1\"\n\n\
                        [target.'cfg(unix)'.dependencies]\nelsewhere.workspace = true\n\n\
                        [dev-dependencies]\nof-the-suite = \"1\"\n";
        let suite = "[[test]]\nname = \"suite\"\npath = \"../../tests/suite.rs\"\n";
        let source = "use in_use::Thing; // planted_too\n";
        let check = |manifest: &str| -> Vec<String> {
            let files = [
                file("crates/a/Cargo.toml", manifest),
                file("crates/a/src/lib.rs", source),
                file("crates/b/src/lib.rs", "use planted::Thing;\n"),
                file("tests/suite.rs", "use of_the_suite::Thing;\n"),
            ];
            let found = names_occur_in_sources(&files);
            found.iter().map(|it| format!("{}:{} {}", it.path, it.line, it.what)).collect()
        };
        let planted = "crates/a/Cargo.toml:6 no source file of the crate names planted";
        let elsewhere = "crates/a/Cargo.toml:9 no source file of the crate names elsewhere";
        let of_the_suite = "crates/a/Cargo.toml:12 no source file of the crate names of-the-suite";
        assert_eq!(check(manifest), [planted, of_the_suite, elsewhere]);
        assert_eq!(check(&format!("{manifest}\n{suite}")), [planted, elsewhere]);
    }
}
