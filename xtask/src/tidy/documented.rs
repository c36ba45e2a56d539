//! What must not go unmentioned: example scripts, the aim of every hostile script.

use super::Finding;
use crate::repo::File;

/// Each script in `examples/` is named in a page that people read.
pub(super) fn example_scripts(files: &[File]) -> Vec<Finding> {
    let pages: Vec<&File> = files.iter().filter(|file| file.is(".md")).collect();
    files
        .iter()
        .filter(|file| {
            file.path.starts_with("examples/")
                && (file.is(".lua") || file.is(".luau") || file.is(".star"))
        })
        .filter(|file| {
            let name = file.path.rsplit('/').next().unwrap_or_default();
            // The tests of an example belong to it.
            !name.contains("_test.") && !pages.iter().any(|page| page.text.contains(name))
        })
        .map(|file| {
            let fix = "say in examples/README.md what it shows";
            Finding::new(&file.path, 0, "no page mentions this example", fix)
        })
        .collect()
}

pub(super) fn hostile_scripts(files: &[File]) -> Vec<Finding> {
    files
        .iter()
        .filter(|file| file.path.starts_with("tests/hostile"))
        .filter(|file| file.is(".lua") || file.is(".luau") || file.is(".star"))
        .filter(|file| {
            let comment = |line: &&str| line.starts_with("--") || line.starts_with('#');
            let mut header = file.text.lines().take_while(comment);
            !header.any(|line| line.trim_start_matches(['-', '#', ' ']).starts_with("expect:"))
        })
        .map(|file| {
            let fix = "say at its top how it must end, such as `expect: timeout` in a comment";
            Finding::new(&file.path, 1, "no `expect:` header", fix)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    fn paths(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn an_example_that_no_page_names_is_found() {
        let files = [
            file("examples/README.md", "`known.lua` greets."),
            file("examples/tools/known.lua", ""),
            file("examples/tools/unknown.lua", ""),
            file("examples/tools/unknown_test.luau", ""),
        ];
        assert_eq!(paths(example_scripts(&files)), ["examples/tools/unknown.lua"]);
    }

    #[test]
    fn a_hostile_script_that_does_not_say_how_it_ends_is_found() {
        let files = [
            file("tests/hostile/loop.lua", "-- loops\n-- expect: timeout\nwhile true do end"),
            file("tests/hostile/late.lua", "while true do end\n-- expect: timeout"),
            file("tests/hostile_starlark/loop.star", "# expect: timeout\n"),
        ];
        assert_eq!(paths(hostile_scripts(&files)), ["tests/hostile/late.lua"]);
    }
}
