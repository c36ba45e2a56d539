//! What must not go unmentioned: host modules, examples, the aim of every
//! hostile script.

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
        for function in module.functions.iter().filter(|function| function.examples.is_empty()) {
            let path = format!("crates/moonlark-host/src/{}.rs", module.name);
            let what = format!("{} has no example", function.tool.name);
            findings.push(Finding::new(&path, 0, what, "add .example(…), .fails(…) or .varies(…)"));
        }
    }
    findings
}

/// Each script in `examples/` is named in a page that people read.
fn example_scripts(files: &[File]) -> Vec<Finding> {
    let pages: Vec<&File> = files.iter().filter(|file| file.is(".md")).collect();
    files
        .iter()
        .filter(|file| file.path.starts_with("examples/") && (file.is(".lua") || file.is(".luau")))
        .filter(|file| {
            let name = file.path.rsplit('/').next().unwrap_or_default();
            !pages.iter().any(|page| page.text.contains(name))
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
        .filter(|file| file.path.starts_with("tests/hostile/"))
        .filter(|file| {
            let mut header = file.text.lines().take_while(|line| line.starts_with("--"));
            !header.any(|line| line.trim_start_matches('-').trim_start().starts_with("expect:"))
        })
        .map(|file| {
            let fix = "say at its top how it must end, such as: -- expect: timeout";
            Finding::new(&file.path, 1, "no `expect:` header", fix)
        })
        .collect()
}
