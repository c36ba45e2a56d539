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
