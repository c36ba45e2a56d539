//! The star: leaf crates know only core, the binary knows all, and each
//! outside technology is known in one crate.

use toml::Table;

use super::Finding;
use crate::repo::File;

const CORE: &str = "moonlark-core";
const BINARY: &str = "moonlark";

/// What leaves may share beside core, and what each of those may know of ours.
const SHARED_CRATES: [(&str, &[&str]); 3] =
    [("moonlark-child", &[]), ("moonlark-search", &[]), ("moonlark-render", &[CORE])];

/// A dependency that only these crates may have, and what it stands for.
const OWNED: [(&str, &[&str], &str); 4] = [
    ("mlua", &["moonlark-luau"], "Luau"),
    ("starlark", &["moonlark-starlark"], "Starlark"),
    ("rmcp", &["moonlark-server", "moonlark-upstream"], "MCP"),
    ("axum", &["moonlark-server"], "the HTTP server"),
];

pub(super) fn dependencies(files: &[File]) -> Vec<Finding> {
    files
        .iter()
        .filter(|file| file.path.starts_with("crates/") && file.is("/Cargo.toml"))
        .flat_map(manifest)
        .collect()
}

fn manifest(file: &File) -> Vec<Finding> {
    let Ok(manifest) = file.text.parse::<Table>() else {
        return vec![Finding::new(&file.path, 0, "not valid TOML", "fix its syntax")];
    };
    let name = file.path.split('/').nth(1).unwrap_or_default();
    let mut findings = Vec::new();
    for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
        let keys = manifest.get(section).and_then(|section| section.as_table());
        for dependency in keys.into_iter().flatten().map(|(key, _)| key.as_str()) {
            let line = line_of(file, dependency);
            let mut find = |what: String, fix: String| {
                findings.push(Finding::new(&file.path, line, what, fix));
            };
            // Core's tests draw what they have learned.
            let is_drawing = name == CORE && section == "dev-dependencies";
            let is_allowed = may_know(name, dependency) || is_drawing;
            if is_ours(dependency) && !is_allowed {
                find(
                    format!("{name} depends on {dependency}"),
                    format!("put what they share into {CORE}, or let the binary connect them"),
                );
            }
            let owner = OWNED.iter().find(|(owned, ..)| *owned == dependency);
            // Tests may talk to the outside in its own words.
            if let Some((_, owners, what)) = owner
                && !owners.contains(&name)
                && section != "dev-dependencies"
            {
                find(
                    format!("{name} depends on {dependency}"),
                    format!("only {} knows {what}", owners.join(" or ")),
                );
            }
        }
    }
    findings
}

fn may_know(name: &str, dependency: &str) -> bool {
    let shared = |wanted: &str| SHARED_CRATES.iter().find(|(it, _)| *it == wanted);
    match shared(name) {
        _ if name == BINARY => true,
        _ if name == CORE => false,
        Some((_, known)) => known.contains(&dependency),
        None => dependency == CORE || shared(dependency).is_some(),
    }
}

fn is_ours(dependency: &str) -> bool {
    dependency == BINARY || dependency.starts_with("moonlark-")
}

fn line_of(file: &File, dependency: &str) -> usize {
    let starts = |line: &str| {
        line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with([' ', '=', '.']))
    };
    file.lines().find(|(_, line)| starts(line)).map_or(0, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, dependencies: &str) -> Vec<String> {
        let path = format!("crates/{name}/Cargo.toml");
        let file = File { path, text: format!("[dependencies]\n{dependencies}") };
        manifest(&file)
            .iter()
            .map(|finding| format!("{}: {}", finding.line, finding.what))
            .collect()
    }

    #[test]
    fn leaves_know_only_core_and_the_binary_knows_all() {
        assert!(check("moonlark-host", "moonlark-core = {}\nserde = \"1\"").is_empty());
        assert!(check("moonlark", "moonlark-core = {}\nmoonlark-host = {}").is_empty());
        assert_eq!(
            check("moonlark-luau", "mlua = \"1\"\nmoonlark-host = {}"),
            ["3: moonlark-luau depends on moonlark-host"]
        );
        assert_eq!(check("moonlark-core", "rmcp = \"1\""), ["2: moonlark-core depends on rmcp"]);
        assert_eq!(check("moonlark-core", "moonlark-host = {}").len(), 1);
        assert!(check("moonlark-discovery", "moonlark-search = {}").is_empty());
        assert_eq!(check("moonlark-search", "moonlark-core = {}").len(), 1);
        assert!(check("moonlark-render", "moonlark-core = {}").is_empty());
        assert_eq!(check("moonlark-render", "moonlark-search = {}").len(), 1);
        assert_eq!(check("moonlark-core", "moonlark-render = {}").len(), 1);
    }
}
