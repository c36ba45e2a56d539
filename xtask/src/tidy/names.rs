//! Names that can be searched for: a type is called like no other, and a constant says
//! what it is a bound of.

use std::collections::BTreeMap;

use super::Finding;
use super::source::{code_lines, crate_files};
use crate::repo::File;

/// No type has the name of another in its crate, and no public one that of another anywhere.
pub(super) fn type_names_are_unique(files: &[File]) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, Vec<TypeDefinition>> = BTreeMap::new();
    for definition in crate_files(files).flat_map(type_definitions) {
        by_name.entry(definition.name).or_default().push(definition);
    }
    let mut findings = Vec::new();
    for definitions in by_name.values() {
        for (index, second) in definitions.iter().enumerate() {
            let clashes = |first: &&TypeDefinition| {
                first.crate_name() == second.crate_name() || first.is_public && second.is_public
            };
            if let Some(first) = definitions[..index].iter().find(clashes) {
                let what = format!("the type {} is also in {}", second.name, first.path);
                let fix = "give it a name that says what it is without its module";
                findings.push(Finding::new(second.path, second.line, what, fix));
            }
        }
    }
    findings
}

/// A constant has at least two words: what it bounds, and of what.
pub(super) fn constants_say_what_they_are(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in crate_files(files) {
        for (line, text) in code_lines(file) {
            let Some(name) = defined_name(text, &["const", "static"]) else { continue };
            let is_bare = name.chars().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit());
            if is_bare {
                let what = format!("the constant {name} is one word");
                let fix = "say the quantity and its unit, such as MAX_QUEUED_CALLS";
                findings.push(Finding::new(&file.path, line, what, fix));
            }
        }
    }
    findings
}

struct TypeDefinition<'a> {
    path: &'a str,
    line: usize,
    name: &'a str,
    is_public: bool,
}

impl TypeDefinition<'_> {
    fn crate_name(&self) -> Option<&str> {
        self.path.split('/').nth(1)
    }
}

fn type_definitions(file: &File) -> impl Iterator<Item = TypeDefinition<'_>> {
    code_lines(file).filter_map(|(line, text)| {
        // An alias further in belongs to an implementation of a trait.
        let aliases: &[&str] = if text.starts_with(' ') { &[] } else { &["type"] };
        let name = defined_name(text, &["struct", "enum", "trait", "union"])
            .or_else(|| defined_name(text, aliases))?;
        let is_public = text.trim_start().starts_with("pub ");
        Some(TypeDefinition { path: &file.path, line, name, is_public })
    })
}

/// The name that a line defines with one of the keywords, visibility aside.
fn defined_name<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub") {
        let after =
            after.strip_prefix('(').map_or(after, |it| it.split_once(')').map_or("", |it| it.1));
        rest = after.strip_prefix(' ')?;
    }
    let (keyword, rest) = rest.split_once(' ')?;
    if !keywords.contains(&keyword) {
        return None;
    }
    let rest = rest.strip_prefix("mut ").unwrap_or(rest);
    let end = rest.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(rest.len());
    // `const fn` and `const _` name no constant.
    let name = &rest[..end];
    (!matches!(name, "" | "_" | "fn" | "unsafe" | "async")).then_some(name)
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
    fn a_type_name_is_taken_once_in_a_crate_and_once_in_public() {
        let files = [
            file("crates/a/src/lib.rs", "pub struct Slot;\nstruct Row;\nenum Row {}\n"),
            file("crates/b/src/lib.rs", "struct Row;\npub(crate) struct Cell;\n"),
            file(
                "crates/c/src/lib.rs",
                "pub enum Slot {}\nimpl X for Y {\n    type Row = u8;\n}\n",
            ),
            file("crates/d/src/tests.rs", "pub struct Slot;\n"),
        ];
        assert_eq!(
            show(&type_names_are_unique(&files)),
            [
                "crates/a/src/lib.rs:3: the type Row is also in crates/a/src/lib.rs",
                "crates/c/src/lib.rs:1: the type Slot is also in crates/a/src/lib.rs",
            ]
        );
    }

    #[test]
    fn a_constant_of_one_word_is_found() {
        let text = "const MOST: usize = 1;\npub(super) static PATIENCE: u8 = 1;\n\
            const MAX_ROWS: u8 = 1;\nconst fn one() {}\nconst _: () = ();\n";
        let files = [file("crates/a/src/lib.rs", text)];
        assert_eq!(
            show(&constants_say_what_they_are(&files)),
            [
                "crates/a/src/lib.rs:1: the constant MOST is one word",
                "crates/a/src/lib.rs:2: the constant PATIENCE is one word",
            ]
        );
    }
}
