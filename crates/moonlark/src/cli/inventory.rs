//! Inventory line: how many of each kind of source a project serves, and their names.

use super::{format_count, script_tools};
use crate::project::Project;

/// Names that are listed before the rest is only counted.
const MAX_LISTED_NAMES: usize = 12;

/// The names of everything that is served, by kind.
#[derive(Debug, Default)]
pub(super) struct ProjectInventory {
    tools: Vec<String>,
    servers: Vec<String>,
    apis: Vec<String>,
    knowledge: Vec<String>,
}

impl ProjectInventory {
    pub(super) fn from_project(project: &Project) -> ProjectInventory {
        let names = |it: Vec<moonlark_core::source_resources::SourceHealth>| {
            it.into_iter().map(|health| health.source).collect::<Vec<_>>()
        };
        ProjectInventory {
            tools: script_tools(&project.gateway.catalog()).map(|tool| tool.name.clone()).collect(),
            servers: names(project.upstreams.current_offerings().health),
            apis: names(project.apis.current_offerings().health),
            knowledge: project.knowledge.sources().iter().map(|it| it.name.clone()).collect(),
        }
    }

    /// `2 tools (add, greet) and 1 MCP server (git)`
    pub(super) fn describe_sources(&self) -> String {
        let parts = [
            (&self.tools, "tool"),
            (&self.servers, "MCP server"),
            (&self.apis, "API"),
            (&self.knowledge, "knowledge source"),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter(|(names, _)| !names.is_empty())
            .map(|(names, what)| {
                format!("{} ({})", format_count(names.len(), what), abridge_names(names))
            })
            .collect();
        match parts.split_last() {
            None => "no tool: no script loads".to_owned(),
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
        }
    }
}

fn abridge_names(names: &[String]) -> String {
    match names.split_at_checked(MAX_LISTED_NAMES) {
        Some((first, [_, ..])) => format!("{}, …", first.join(", ")),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_said_and_nothing_else() {
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let check = |inventory: ProjectInventory, expected: &str| {
            assert_eq!(inventory.describe_sources(), expected);
        };
        check(ProjectInventory::default(), "no tool: no script loads");
        let tools = names(&["add", "greet"]);
        check(
            ProjectInventory { tools: tools.clone(), ..ProjectInventory::default() },
            "2 tools (add, greet)",
        );
        check(
            ProjectInventory { knowledge: names(&["docs"]), ..ProjectInventory::default() },
            "1 knowledge source (docs)",
        );
        check(
            ProjectInventory {
                tools,
                servers: names(&["git"]),
                apis: names(&["pets"]),
                ..ProjectInventory::default()
            },
            "2 tools (add, greet), 1 MCP server (git) and 1 API (pets)",
        );
        let many: Vec<String> = (1..=13).map(|number| format!("t{number}")).collect();
        check(
            ProjectInventory { tools: many, ..ProjectInventory::default() },
            "13 tools (t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, …)",
        );
    }
}
