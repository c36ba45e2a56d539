//! What must not go unmentioned: host modules, examples, the aim of every
//! hostile script.

use moonlark_core::module::{Example, Outcome};

use super::Finding;
use crate::repo::File;

const REFERENCE: &str = "docs/reference/modules.md";

pub(super) fn modules_and_examples(files: &[File]) -> Vec<Finding> {
    let mut findings = modules(files);
    findings.extend(example_scripts(files));
    findings
}

fn modules(files: &[File]) -> Vec<Finding> {
    let page = files.iter().find(|file| file.path == REFERENCE).map_or("", |file| &file.text);
    let mut findings = Vec::new();
    for module in moonlark_host::all() {
        if !page.contains(&format!("\n## `{}`\n", module.name)) {
            let what = format!("the module {} is missing", module.name);
            findings.push(Finding::new(REFERENCE, 0, what, "run `cargo x generate`"));
        }
        let path = format!("crates/moonlark-host/src/{}.rs", module.name);
        for function in &module.functions {
            let name = &function.tool.name;
            let fails = |example: &Example| matches!(example.outcome, Outcome::Fails(_));
            if function.examples.is_empty() {
                let fix = "add .example(…), .fails(…) or .varies(…)";
                findings.push(Finding::new(&path, 0, format!("{name} has no example"), fix));
            } else if !function.params.is_empty() && !function.examples.iter().any(fails) {
                let what = format!("{name} has no example that fails");
                findings.push(Finding::new(&path, 0, what, "add .fails(…)"));
            }
        }
    }
    findings
}

/// Each script in `examples/` is named in a page that people read.
fn example_scripts(files: &[File]) -> Vec<Finding> {
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
