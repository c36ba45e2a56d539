//! `moonlark sources`: where tools and documents come from, and how those
//! sources do.

use std::sync::Arc;

use clap::Args;
use moonlark_core::Problem;
use moonlark_core::offers::Health;
use moonlark_core::value::Value;
use serde_json::{Value as Json, json};

use super::problem_lines::error_lines;
use super::served::ServedCommand;
use super::servers::Servers;
use super::{Done, Failure, Global, StyledText, counted, print, print_json, say, settle};
use crate::knowledge::Known;
use crate::project::Project;

/// Flaws of one source that are shown here.
const MAX_SHOWN_FLAWS: usize = 5;

#[derive(Args)]
pub(crate) struct Sources {
    #[command(flatten)]
    servers: Servers,
}

impl Sources {
    pub(crate) async fn run(self, global: &Global) -> Done {
        ServedCommand::Sources.run(self.servers, global).await
    }
}

pub(crate) async fn run_in(project: &Arc<Project>, global: &Global) -> Done {
    settle(project).await;
    let health = project.gateway.catalog().health().to_vec();
    let scripts = scripts(&project.gateway.catalog());
    let known = project.knowledge.known().await?;
    let of_sources: Vec<&Problem> =
        health.iter().flat_map(|it| it.problem.iter().chain(&it.flaws)).collect();
    let of_knowledge = |problem: &Problem| {
        known.iter().any(|it| it.problem.as_deref().is_some_and(|text| text == problem.line()))
    };
    let mut problems = project.gateway.catalog().problems().to_vec();
    problems.retain(|it| !of_sources.contains(&it) && !of_knowledge(it));
    if global.json {
        let upstreams: Vec<Json> = health.iter().map(moonlark_server::health).collect();
        let known: Value = known.iter().map(Known::to_value).collect::<Vec<_>>().into();
        let known = known.into_json("knowledge")?;
        let problems: Vec<Json> = problems.iter().map(Problem::to_json).collect();
        let all = json!({
            "scripts": scripts, "upstreams": upstreams, "knowledge": known, "problems": problems,
        });
        print_json(&all);
    } else {
        for (source, tools) in &scripts {
            print(format!("{source}: {}", counted(*tools, "tool")));
        }
        for health in &health {
            print(line(health));
            print_troubles(health);
        }
        for known in &known {
            print(knowledge(known));
            known.problem.iter().for_each(|problem| print(format!("  {problem}")));
        }
        for problem in &problems {
            error_lines(problem).into_iter().for_each(print);
        }
        if scripts.is_empty() && health.is_empty() && known.is_empty() && problems.is_empty() {
            say(
                "There are no sources: no script, no server, no API, no connector. `moonlark tool init hello` writes a first tool.",
            );
        }
    }
    let ill =
        health.iter().any(|it| it.problem.is_some()) || known.iter().any(|it| it.problem.is_some());
    let ill = ill || !problems.is_empty();
    match ill {
        true => Err(Failure::Said),
        false => Ok(()),
    }
}

/// The scripts, with the number of tools each makes.
fn scripts(catalog: &moonlark_core::Catalog) -> std::collections::BTreeMap<String, usize> {
    let mut scripts = std::collections::BTreeMap::new();
    for tool in super::authored(catalog) {
        *scripts.entry(tool.source.name.clone()).or_default() += 1;
    }
    scripts
}

/// `git: ready, 12 tools, mcp-git 1.2 (2025-11-25)`.
pub(super) fn line(health: &Health) -> String {
    let mut line = format!("{}: {}", health.source, health.state);
    for (count, what) in
        [(health.tools, "tool"), (health.resources, "resource"), (health.prompts, "prompt")]
    {
        if count > 0 {
            line.push_str(&format!(", {}", super::counted(count, what)));
        }
    }
    if health.is_remembered && health.tools + health.resources + health.prompts > 0 {
        line.push_str(" (as listed the last time)");
    }
    match (&health.server, &health.protocol) {
        (Some(server), Some(protocol)) => line.push_str(&format!(", {server} ({protocol})")),
        (None, Some(protocol)) => line.push_str(&format!(" ({protocol})")),
        _ => {}
    }
    line
}

/// Why a source does not work, and what it offers that cannot be used as it is.
fn print_troubles(health: &Health) {
    for problem in health.problem.iter().chain(health.flaws.iter().take(MAX_SHOWN_FLAWS)) {
        for line in error_lines(problem) {
            print(StyledText::from("  ").then(line));
        }
    }
    if health.flaws.len() > MAX_SHOWN_FLAWS {
        let more = health.flaws.len() - MAX_SHOWN_FLAWS;
        print(format!("  and {more} more: see `moonlark doctor`"));
    }
}

/// `docs: filesystem, 12 documents, 80 chunks, synced 2026-01-31T12:00:00Z`.
pub(super) fn knowledge(known: &Known) -> String {
    let stats = &known.stats;
    let count = |number: u64, what| counted(usize::try_from(number).unwrap_or(usize::MAX), what);
    let synced = match stats.last_sync {
        Some(time) => format!(
            "{}, {}, synced {time:.0}",
            count(stats.documents, "document"),
            count(stats.chunks, "chunk")
        ),
        None => "never synced".to_owned(),
    };
    let left = if known.configured { "" } else { ", no longer configured" };
    format!("{}: {}, {synced}{left}", stats.name, stats.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_from_an_earlier_time_is_said_to_be() {
        let mut health =
            Health { source: "git".to_owned(), state: "connecting", tools: 2, ..Health::default() };
        assert_eq!(line(&health), "git: connecting, 2 tools");
        health.is_remembered = true;
        assert_eq!(line(&health), "git: connecting, 2 tools (as listed the last time)");
    }
}
