//! `moonlark sources`: where tools and documents come from, and how those
//! sources do.

use clap::Args;
use moonlark_core::offers::Health;
use moonlark_core::value::Value;
use serde_json::{Value as Json, json};

use super::servers::Servers;
use super::{Done, Failure, Global, counted, print};
use crate::knowledge::Known;

#[derive(Args)]
pub(crate) struct Sources {
    #[command(flatten)]
    servers: Servers,
}

impl Sources {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let project = self.servers.open(global).await?;
        project.connect().await;
        project.settled().await;
        project.refresh().await;
        let health = project.gateway.catalog().health().to_vec();
        let scripts = scripts(&project.gateway.catalog());
        project.disconnect().await;
        let known = project.knowledge.known().await?;
        if global.json {
            let upstreams: Vec<Json> = health.iter().map(moonlark_server::health).collect();
            let known: Value = known.iter().map(Known::to_value).collect::<Vec<_>>().into();
            let known = known.into_json("knowledge")?;
            let all = json!({ "scripts": scripts, "upstreams": upstreams, "knowledge": known });
            print(&all.to_string());
        } else {
            for (source, tools) in &scripts {
                print(&format!("{source}: {tools}"));
            }
            for health in &health {
                print(&line(health));
            }
            for known in &known {
                print(&knowledge(known));
            }
        }
        let ill = health.iter().any(|it| it.problem.is_some())
            || known.iter().any(|it| it.problem.is_some());
        match ill {
            true => Err(Failure::Said),
            false => Ok(()),
        }
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
    match (&health.server, &health.protocol) {
        (Some(server), Some(protocol)) => line.push_str(&format!(", {server} ({protocol})")),
        (None, Some(protocol)) => line.push_str(&format!(" ({protocol})")),
        _ => {}
    }
    if let Some(problem) = &health.problem {
        line.push_str(&format!("\n  {}", problem.to_string().replace('\n', "\n  ")));
    }
    line
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
    let problem = known.problem.as_ref().map(|it| format!("\n  {it}")).unwrap_or_default();
    format!("{}: {}, {synced}{left}{problem}", stats.name, stats.kind)
}
