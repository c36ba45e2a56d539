//! `moonlark sources`: where tools come from, and how the servers among them do.

use clap::Args;
use moonlark_core::offers::Health;
use serde_json::{Value as Json, json};

use super::servers::Servers;
use super::{Done, Failure, Global, print};

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
        if global.json {
            let upstreams: Vec<Json> = health.iter().map(moonlark_server::health).collect();
            print(&json!({ "scripts": scripts, "upstreams": upstreams }).to_string());
        } else {
            for (source, tools) in &scripts {
                print(&format!("{source}: {tools}"));
            }
            for health in &health {
                print(&line(health));
            }
        }
        match health.iter().any(|health| health.problem.is_some()) {
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
