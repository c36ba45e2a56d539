//! `moonlark sources`: where tools and documents come from, and how those
//! sources do.

use std::sync::Arc;

use clap::Args;
use moonlark_core::Problem;
use moonlark_core::source_resources::SourceHealth;
use moonlark_core::value::Value;
use serde_json::{Value as Json, json};

use super::problem_lines::error_lines;
use super::served_command::ServedCommand;
use super::source_args::SourceArgs;
use super::{
    CommandError, CommandResult, GlobalArgs, StyledText, eprint_line, format_count, print_json,
    print_line, wait_for_sources,
};
use crate::knowledge_base::KnowledgeSourceStatus;
use crate::project::Project;

/// Flaws of one source that are shown here.
const MAX_SHOWN_FLAWS: usize = 5;

#[derive(Args)]
pub(crate) struct SourcesArgs {
    #[command(flatten)]
    servers: SourceArgs,
}

impl SourcesArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        ServedCommand::Sources.run(self.servers, global).await
    }
}

pub(crate) async fn run_in(project: &Arc<Project>, global: &GlobalArgs) -> CommandResult {
    wait_for_sources(project).await;
    let health = project.gateway.catalog().health().to_vec();
    let scripts = count_script_tools(&project.gateway.catalog());
    let known = project.knowledge.source_statuses().await?;
    let of_sources: Vec<&Problem> =
        health.iter().flat_map(|it| it.problem.iter().chain(&it.flaws)).collect();
    let of_knowledge = |problem: &Problem| {
        known.iter().any(|it| it.problem.as_deref().is_some_and(|text| text == problem.to_line()))
    };
    let mut problems = project.gateway.catalog().problems().to_vec();
    problems.retain(|it| !of_sources.contains(&it) && !of_knowledge(it));
    if global.json {
        let upstreams: Vec<Json> = health.iter().map(moonlark_server::source_health_json).collect();
        let known: Value =
            known.iter().map(KnowledgeSourceStatus::to_value).collect::<Vec<_>>().into();
        let known = known.into_json("knowledge")?;
        let problems: Vec<Json> = problems.iter().map(Problem::to_json).collect();
        let all = json!({
            "scripts": scripts, "upstreams": upstreams, "knowledge": known, "problems": problems,
        });
        print_json(&all);
    } else {
        for (source, tools) in &scripts {
            print_line(format!("{source}: {}", format_count(*tools, "tool")));
        }
        for health in &health {
            print_line(health_line(health));
            print_source_problems(health);
        }
        for known in &known {
            print_line(knowledge_line(known));
            let lines = known.problem.iter().chain(&known.note);
            lines.for_each(|line| print_line(format!("  {line}")));
        }
        for problem in &problems {
            error_lines(problem).into_iter().for_each(print_line);
        }
        if scripts.is_empty() && health.is_empty() && known.is_empty() && problems.is_empty() {
            eprint_line(
                "There are no sources: no script, no server, no API, no connector. `moonlark tool init hello` writes a first tool.",
            );
        }
    }
    let ill =
        health.iter().any(|it| it.problem.is_some()) || known.iter().any(|it| it.problem.is_some());
    let ill = ill || !problems.is_empty();
    if ill { Err(CommandError::Said) } else { Ok(()) }
}

/// The scripts, with the number of tools each makes.
fn count_script_tools(
    catalog: &moonlark_core::Catalog,
) -> std::collections::BTreeMap<String, usize> {
    let mut scripts = std::collections::BTreeMap::new();
    for tool in super::script_tools(catalog) {
        *scripts.entry(tool.source.name.clone()).or_default() += 1;
    }
    scripts
}

/// `git: ready, 12 tools, mcp-git 1.2 (2025-11-25)`.
pub(super) fn health_line(health: &SourceHealth) -> String {
    let mut line = format!("{}: {}", health.source, health.state.as_str());
    for (count, what) in
        [(health.tools, "tool"), (health.resources, "resource"), (health.prompts, "prompt")]
    {
        if count > 0 {
            line.push_str(&format!(", {}", format_count(count, what)));
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
fn print_source_problems(health: &SourceHealth) {
    for problem in health.problem.iter().chain(health.flaws.iter().take(MAX_SHOWN_FLAWS)) {
        for line in error_lines(problem) {
            print_line(StyledText::from("  ").append_text(line));
        }
    }
    if health.flaws.len() > MAX_SHOWN_FLAWS {
        let more = health.flaws.len() - MAX_SHOWN_FLAWS;
        print_line(format!("  and {more} more: see `moonlark doctor`"));
    }
}

/// `docs: filesystem, 12 documents, 80 chunks, synced 2026-01-31T12:00:00Z`.
pub(super) fn knowledge_line(known: &KnowledgeSourceStatus) -> String {
    let stats = &known.stats;
    let synced = match stats.last_sync {
        Some(time) => format!(
            "{}, {}, synced {time:.0}",
            format_count(stats.documents, "document"),
            format_count(stats.chunks, "chunk")
        ),
        None => "never synced".to_owned(),
    };
    let left = if known.configured { "" } else { ", no longer configured" };
    format!("{}: {}, {synced}{left}", stats.name, stats.kind)
}

#[cfg(test)]
mod tests {
    use moonlark_core::source_resources::SourceState;

    use super::*;

    #[test]
    fn what_is_known_from_an_earlier_time_is_said_to_be() {
        let mut health = SourceHealth {
            source: "git".to_owned(),
            state: SourceState::Connecting,
            tools: 2,
            ..SourceHealth::default()
        };
        assert_eq!(health_line(&health), "git: connecting, 2 tools");
        health.is_remembered = true;
        assert_eq!(health_line(&health), "git: connecting, 2 tools (as listed the last time)");
    }
}
