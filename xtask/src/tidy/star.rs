//! The star: leaf crates know only core, the gateway and what else is shared, the binary
//! knows all, each outside technology is known in one crate, and core waits for nothing.

use std::collections::{BTreeMap, BTreeSet};

use toml::Table;

use super::Finding;
use crate::repo::File;

const CORE: &str = "moonlark-core";
const BINARY: &str = "moonlark";

/// What core depends on neither itself nor by way of others: it describes, and runs nothing.
const FORBIDDEN_IN_CORE: [&str; 7] =
    ["arc-swap", "axum", "mlua", "reqwest", "rmcp", "starlark", "tokio"];

/// What leaves may share beside core, and what each of those may know of ours.
const SHARED_CRATES: [(&str, &[&str]); 6] = [
    ("moonlark-child", &[]),
    ("moonlark-gateway", &[CORE]),
    ("moonlark-search", &[]),
    ("moonlark-http", &[CORE]),
    ("moonlark-render", &[CORE]),
    ("moonlark-state", &[CORE]),
];

/// The configuration holds its values to the grammar of what they configure. It knows
/// these leaves beside core and the shared crates, and no leaf knows it.
const CONFIG: &str = "moonlark-config";
const KNOWN_BY_CONFIG: [&str; 3] = ["moonlark-server", "moonlark-oauth", "moonlark-openapi"];

/// A dependency that only these crates may have, and what it stands for.
const OWNED: [(&str, &[&str], &str); 4] = [
    ("mlua", &["moonlark-luau"], "Luau"),
    ("starlark", &["moonlark-starlark"], "Starlark"),
    ("rmcp", &["moonlark-server", "moonlark-oauth"], "MCP"),
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
            // The gateway's tests draw what they have learned.
            let is_drawing = (name, dependency) == ("moonlark-gateway", "moonlark-render")
                && section == "dev-dependencies";
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

/// Core's dependencies, those of others included, as `Cargo.lock` has them.
pub(super) fn core_runs_nothing(files: &[File]) -> Vec<Finding> {
    let Some(lock) = files.iter().find(|file| file.path == "Cargo.lock") else {
        return Vec::new();
    };
    let dependencies = all_dependencies(&lock.text, CORE);
    let found = FORBIDDEN_IN_CORE.iter().filter(|it| dependencies.contains(**it));
    found
        .map(|it| {
            let what = format!("{CORE} depends on {it}, itself or by way of another");
            Finding::new("crates/moonlark-core/Cargo.toml", 0, what, "move it to moonlark-gateway")
        })
        .collect()
}

fn all_dependencies(lock: &str, name: &str) -> BTreeSet<String> {
    let lock = lock.parse::<Table>().unwrap_or_default();
    let packages = lock.get("package").and_then(|it| it.as_array()).into_iter().flatten();
    let mut known: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        let Some(name) = package.get("name").and_then(|it| it.as_str()) else { continue };
        let needs = package.get("dependencies").and_then(|it| it.as_array()).into_iter().flatten();
        // A version behind the name where there are several.
        let needs = needs.filter_map(|it| it.as_str()?.split(' ').next());
        known.entry(name).or_default().extend(needs);
    }
    let mut all = BTreeSet::new();
    let mut open = vec![name];
    while let Some(next) = open.pop() {
        for needed in known.get(next).into_iter().flatten() {
            if all.insert((*needed).to_owned()) {
                open.push(needed);
            }
        }
    }
    all
}

fn may_know(name: &str, dependency: &str) -> bool {
    let shared = |wanted: &str| SHARED_CRATES.iter().find(|(it, _)| *it == wanted);
    match shared(name) {
        _ if name == BINARY => true,
        _ if name == CORE => false,
        Some((_, known)) => known.contains(&dependency),
        None => {
            let is_configured = name == CONFIG && KNOWN_BY_CONFIG.contains(&dependency);
            dependency == CORE || shared(dependency).is_some() || is_configured
        }
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
        assert!(check("moonlark-host", "moonlark-gateway = {}").is_empty());
        assert!(check("moonlark-gateway", "moonlark-core = {}").is_empty());
        assert_eq!(check("moonlark-core", "moonlark-gateway = {}").len(), 1);
        assert_eq!(check("moonlark-gateway", "moonlark-host = {}").len(), 1);
        assert_eq!(check("moonlark-render", "moonlark-gateway = {}").len(), 1);
        assert_eq!(check("moonlark-search", "moonlark-core = {}").len(), 1);
        assert!(check("moonlark-openapi", "moonlark-http = {}").is_empty());
        assert_eq!(check("moonlark-openapi", "moonlark-oauth = {}").len(), 1);
        assert_eq!(check("moonlark-mcp-client", "rmcp = {}").len(), 1);
        assert!(check("moonlark-http", "moonlark-core = {}").is_empty());
        assert_eq!(check("moonlark-http", "moonlark-child = {}").len(), 1);
        assert!(check("moonlark-render", "moonlark-core = {}").is_empty());
        assert_eq!(check("moonlark-render", "moonlark-search = {}").len(), 1);
        assert_eq!(check("moonlark-core", "moonlark-render = {}").len(), 1);
        assert!(check("moonlark-journal", "moonlark-state = {}").is_empty());
        assert_eq!(check("moonlark-state", "moonlark-search = {}").len(), 1);
        assert!(check("moonlark-config", "moonlark-server = {}\nmoonlark-state = {}").is_empty());
        assert_eq!(check("moonlark-config", "moonlark-luau = {}").len(), 1);
        assert_eq!(check("moonlark-telemetry", "moonlark-config = {}").len(), 1);
    }

    #[test]
    fn core_depends_on_tokio_neither_itself_nor_by_way_of_another() {
        let lock = |needed: &str| File {
            path: "Cargo.lock".to_owned(),
            text: format!(
                "[[package]]\nname = \"moonlark-core\"\ndependencies = [\"serde\"]\n\
                 [[package]]\nname = \"serde\"\ndependencies = [\"{needed}\"]\n"
            ),
        };
        assert!(core_runs_nothing(&[lock("syn 2.0.1")]).is_empty());
        let found = core_runs_nothing(&[lock("tokio 1.54.0")]);
        let found: Vec<&str> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(found, ["moonlark-core depends on tokio, itself or by way of another"]);
    }

    #[test]
    fn the_crates_as_they_are_form_a_star_around_a_core_that_runs_nothing() {
        let files = crate::repo::files().unwrap();
        assert!(all_dependencies(&lock_text(&files), CORE).contains("serde_json"));
        assert_eq!(dependencies(&files), []);
        assert_eq!(core_runs_nothing(&files), []);
    }

    fn lock_text(files: &[File]) -> String {
        files.iter().find(|file| file.path == "Cargo.lock").unwrap().text.clone()
    }
}
