//! Rules for source files: length, panics, unsafe code, names, loose ends.

use super::Finding;
use crate::repo::File;

const MAX_FILE_LINES: usize = 600;

/// The crates that hold unsafe code; all others forbid it. Lints ask for the reason of each block.
const UNSAFE_CRATES: [&str; 4] =
    ["moonlark-child", "moonlark-luau", "moonlark-search", "moonlark-starlark"];

/// Words that say nothing about what a thing is.
const EMPTY_WORDS: [&str; 6] = ["Manager", "Helper", "Util", "Utils", "Handler", "Service"];

pub(super) fn length(files: &[File]) -> Vec<Finding> {
    let endings = [".rs", ".luau", ".lua", ".star", ".py", ".ts", ".sh"];
    // Generated, and as long as its author likes.
    let exempt = ["types/", "tests/hostile/", "tests/hostile_starlark/"];
    files
        .iter()
        .filter(|file| endings.iter().any(|ending| file.is(ending)))
        .filter(|file| !exempt.iter().any(|folder| file.path.starts_with(folder)))
        .map(|file| (file, before_tests(file).len()))
        .filter(|(_, lines)| *lines > MAX_FILE_LINES)
        .map(|(file, lines)| {
            let what = format!("{lines} lines without its tests, more than {MAX_FILE_LINES}");
            Finding::new(&file.path, 0, what, "it has two jobs: make it two files")
        })
        .collect()
}

pub(super) fn panics(files: &[File]) -> Vec<Finding> {
    let words = [".unwrap()", ".expect(", "panic!("];
    let fix = "return a Problem; nothing that a user or a script causes may panic";
    in_crates(files, |file, line, text| {
        let found = words.iter().find(|word| text.contains(*word))?;
        Some(Finding::new(&file.path, line, format!("`{found}` outside a test"), fix))
    })
}

/// Every crate forbids unsafe code at its root, but for those that need it.
pub(super) fn unsafe_code(files: &[File]) -> Vec<Finding> {
    let roots = files.iter().filter(|file| {
        let parts: Vec<&str> = file.path.split('/').collect();
        matches!(parts[..], ["crates", name, "src", "lib.rs"] if !UNSAFE_CRATES.contains(&name))
    });
    roots
        .filter(|file| !file.text.contains("forbid(unsafe_code)"))
        .map(|file| {
            let fix = "add #![forbid(unsafe_code)]";
            Finding::new(&file.path, 1, "the crate does not forbid unsafe code", fix)
        })
        .collect()
}

pub(super) fn type_names(files: &[File]) -> Vec<Finding> {
    in_crates(files, |file, line, text| {
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.by_ref().find(|word| matches!(*word, "struct" | "enum" | "trait" | "type"))?;
        let name = words.find(|word| !word.is_empty())?;
        let empty = EMPTY_WORDS.iter().find(|word| name.ends_with(*word))?;
        let what = format!("the name {name} ends in {empty}");
        Some(Finding::new(&file.path, line, what, "name it after what it is or does"))
    })
}

pub(super) fn unfinished(files: &[File]) -> Vec<Finding> {
    // Spelt so that this file does not find itself.
    let words = [concat!("TO", "DO"), concat!("FIX", "ME")];
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !file.is(".lock") && !file.is("package-lock.json")) {
        for (line, text) in file.lines() {
            if let Some(word) = words.iter().find(|word| has_word(text, word)) {
                let fix = "do it now, or write it down in limitations/";
                findings.push(Finding::new(&file.path, line, format!("a {word}"), fix));
            }
        }
    }
    findings
}

/// Look at every line of code, but for tests, in the crates.
fn in_crates(files: &[File], look: impl Fn(&File, usize, &str) -> Option<Finding>) -> Vec<Finding> {
    crate_files(files)
        .flat_map(|file| code_lines(file).filter_map(|(line, text)| look(file, line, text)))
        .collect()
}

/// The files of the crates, but for tests.
pub(super) fn crate_files(files: &[File]) -> impl Iterator<Item = &File> {
    let only_tests = only_for_tests(files);
    files
        .iter()
        .filter(|file| file.path.starts_with("crates/") && file.is(".rs"))
        .filter(move |file| !only_tests.contains(&file.path) && !is_tests(&file.path))
}

/// The lines of code outside comments and tests.
pub(super) fn code_lines(file: &File) -> impl Iterator<Item = (usize, &str)> {
    before_tests(file).into_iter().filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// The lines up to the module of tests at the end.
fn before_tests(file: &File) -> Vec<(usize, &str)> {
    let mut lines: Vec<(usize, &str)> = file.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        pair[0].1 == "#[cfg(test)]" && pair[1].1.starts_with("mod ") && pair[1].1.ends_with('{')
    });
    lines.truncate(tests.unwrap_or(lines.len()));
    lines
}

/// Files whose module is declared as `#[cfg(test)] mod name;`.
fn only_for_tests(files: &[File]) -> Vec<String> {
    let mut paths = Vec::new();
    for file in files.iter().filter(|file| file.is(".rs")) {
        let lines: Vec<&str> = file.text.lines().collect();
        for pair in lines
            .windows(2)
            .filter(|pair| pair[0].starts_with("#[cfg(") && pair[0].contains("test"))
        {
            let name = pair[1].strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
            let folder = match file.path.strip_suffix("/lib.rs") {
                Some(folder) => folder,
                None => file.path.trim_end_matches(".rs"),
            };
            paths.extend(name.map(|name| format!("{folder}/{name}.rs")));
        }
    }
    paths
}

fn is_tests(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part.starts_with("tests."))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> [File; 3] {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        [
            file("crates/a/src/lib.rs", text),
            file("crates/a/src/examples.rs", "x.unwrap();"),
            file("crates/a/src/b/tests.rs", "x.unwrap();"),
        ]
    }

    fn show(findings: Vec<Finding>) -> Vec<String> {
        findings.iter().map(|finding| format!("{}: {}", finding.line, finding.what)).collect()
    }

    #[test]
    fn only_code_outside_tests_is_looked_at() {
        let text = "#[cfg(test)]\nmod examples;\n\n// x.unwrap()\nx.unwrap_or(1);\ny.expect(\"z\");\n\n#[cfg(test)]\nmod tests {\n    x.unwrap();\n}\n";
        assert_eq!(show(panics(&files(text))), ["6: `.expect(` outside a test"]);
    }

    #[test]
    fn a_file_with_two_jobs_is_found_and_its_tests_do_not_count() {
        let lines = |count| "let x = 1;\n".repeat(count);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(MAX_FILE_LINES));
        let file = |text: String| [File { path: "crates/a/src/lib.rs".to_owned(), text }];
        assert!(length(&file(lines(MAX_FILE_LINES - 1) + &tests)).is_empty());
        let found = length(&file(lines(MAX_FILE_LINES + 1) + &tests));
        assert_eq!(show(found), ["0: 601 lines without its tests, more than 600"]);
        let generated = File { path: "types/a.luau".to_owned(), text: lines(MAX_FILE_LINES + 1) };
        assert!(length(&[generated]).is_empty());
    }

    #[test]
    fn names_and_loose_ends_are_found() {
        let text =
            "pub(crate) struct ToolManager {\n    name: String,\n}\nimpl ServerHandler for X {}\n";
        assert_eq!(show(type_names(&files(text))), ["1: the name ToolManager ends in Manager"]);
        assert_eq!(show(unsafe_code(&files(text))), ["1: the crate does not forbid unsafe code"]);
        assert!(unsafe_code(&files("#![forbid(unsafe_code)]\n")).is_empty());
        let text = format!("// {}: later\nlet stodo = 1;\n", concat!("TO", "DO"));
        assert_eq!(show(unfinished(&files(&text))).len(), 1);
    }
}
