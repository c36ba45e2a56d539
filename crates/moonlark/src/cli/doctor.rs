//! `moonlark doctor`: what is wrong with this set-up, and what is not.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;

use moonlark_core::nearest::nearest;
use moonlark_core::tool::SourceKind;
use moonlark_core::{Catalog, Code, Place, Problem, Result};
use serde_json::json;

use super::served::{ServedCommand, Surroundings};
use super::servers::Servers;
use super::terminal::{StyledText, TextStyle};
use super::{Done, Failure, Global, counted, print, print_json, settle, shown};
use crate::config::ApproverWord;
use crate::config_file::Loaded;

/// How long whoever listens at our address may take to say what it is.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    outcome: Result<String>,
}

pub(crate) async fn run(global: &Global) -> Done {
    ServedCommand::Doctor.run(Servers::default(), global).await
}

pub(crate) async fn run_in(around: &Surroundings<'_>, global: &Global) -> Done {
    tell(&look(around).await?, global)
}

/// The project cannot even be opened.
pub(crate) fn tell_broken(problems: Vec<Problem>, global: &Global) -> Done {
    let found = |problem| Finding { what: "configuration", outcome: Err(problem) };
    tell(&problems.into_iter().map(found).collect::<Vec<_>>(), global)
}

fn tell(findings: &[Finding], global: &Global) -> Done {
    let bad = findings.iter().filter(|finding| finding.outcome.is_err()).count();
    if global.json {
        let findings: Vec<_> = findings
            .iter()
            .map(|finding| match &finding.outcome {
                Ok(text) => json!({ "what": finding.what, "ok": true, "text": text }),
                Err(problem) => {
                    json!({ "what": finding.what, "ok": false, "error": problem.to_json() })
                }
            })
            .collect();
        print_json(&json!({ "version": env!("CARGO_PKG_VERSION"), "findings": findings }));
    } else {
        print(format!("Moonlark {}", env!("CARGO_PKG_VERSION")));
        for finding in findings {
            print(finding.line());
        }
    }
    if bad == 0 { Ok(()) } else { Err(Failure::Said) }
}

impl Finding {
    fn line(&self) -> StyledText {
        let (style, mark, text) = match &self.outcome {
            Ok(text) if self.what == "warning" => {
                (TextStyle::Yellow, "!", text.replace('\n', "\n    "))
            }
            Ok(text) => (TextStyle::Green, "✓", text.clone()),
            Err(problem) => (TextStyle::Red, "✗", problem.to_string().replace('\n', "\n    ")),
        };
        StyledText::from("  ")
            .with(style, mark)
            .with(TextStyle::Plain, format!(" {}: {text}", self.what))
    }
}

async fn look(around: &Surroundings<'_>) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let project = around.project;
    let loaded = project.loaded().await;
    let origin = match &loaded.path {
        // One of another folder, as that of a folder above is, is named in full.
        Some(path) if Some(loaded.root.as_path()) != super::here().ok().as_deref() => shown(path),
        Some(path) => shown(path.strip_prefix(&loaded.root).unwrap_or(path)),
        None => "none, defaults".to_owned(),
    };
    findings.push(Finding { what: "configuration", outcome: Ok(origin) });
    findings.extend(loaded.warnings.iter().map(|problem| Finding {
        what: "warning",
        outcome: Ok(super::warning(problem).trim_start_matches("warning: ").to_owned()),
    }));

    settle(project).await;
    let upstreams = project.upstreams.offered();
    let apis = project.apis.offered();
    let catalog = project.gateway.catalog();
    let tools = super::authored(&catalog).count();
    let scripts: HashSet<&str> =
        super::authored(&catalog).map(|tool| tool.source.name.as_str()).collect();
    let outcome = match super::require_tools(project).await {
        Err(Failure::Problems(mut problems)) if !problems.is_empty() => Err(problems.remove(0)),
        _ if tools == 0
            && upstreams.health.is_empty()
            && apis.health.is_empty()
            && !project.knowledge.is_configured() =>
        {
            Err(Problem::bad_script("no tool script loads").hint("fix the errors below"))
        }
        _ if tools == 0 => Ok("none from scripts".to_owned()),
        _ => Ok(format!("{} from {}", counted(tools, "tool"), counted(scripts.len(), "script"))),
    };
    findings.push(Finding { what: "tools", outcome });
    let prompts = catalog.offers().iter().filter(|it| it.source.kind == SourceKind::Script);
    let prompts = prompts.map(|it| it.prompts.len()).sum();
    if prompts > 0 {
        findings.push(Finding { what: "prompts", outcome: Ok(counted(prompts, "prompt")) });
    }
    let warnings = catalog.warnings().count();
    if warnings > 0 {
        let said = format!("{}: `moonlark check` shows them", counted(warnings, "warning"));
        findings.push(Finding { what: "scripts", outcome: Ok(said) });
    }
    let elsewhere = |it: &&Problem| upstreams.problems.contains(it) || apis.problems.contains(it);
    for problem in catalog.problems().iter().filter(|it| !elsewhere(it)) {
        let what = if problem.code == Code::BadConfig { "configuration" } else { "script" };
        findings.push(Finding { what, outcome: Err(problem.clone()) });
    }
    let upstreams = ("upstream", upstreams.health, upstreams.problems);
    for (what, health, problems) in [upstreams, ("API", apis.health, apis.problems)] {
        for health in health {
            let outcome = match health.problem.clone() {
                Some(problem) => Err(problem),
                None => Ok(super::sources::line(&health)),
            };
            findings.push(Finding { what, outcome });
        }
        for problem in problems {
            // That it does not connect was said.
            if !findings.iter().any(|it| it.outcome.as_ref().err() == Some(&problem)) {
                findings.push(Finding { what, outcome: Err(problem) });
            }
        }
    }

    match project.knowledge.known().await {
        Ok(known) => findings.extend(known.iter().map(|known| {
            Finding {
                what: "knowledge",
                outcome: match &known.problem {
                    Some(why) => Err(Problem::unavailable(format!("{}: {why}", known.stats.name))
                        .maybe_hint(known.hint.clone())),
                    None => Ok(super::sources::knowledge(known)),
                },
            }
        })),
        Err(problem) => findings.push(Finding { what: "knowledge", outcome: Err(problem) }),
    }

    let outcome = match loaded.config.journal.enabled {
        true => crate::journal::reader(&loaded).summary(),
        false => Ok("not kept".to_owned()),
    };
    findings.push(Finding { what: "journal", outcome });
    // Reads the tokens, whose limits are rules too.
    let callers = project.auth.summary().await;
    if loaded.config.journal.enabled
        && let Ok(count @ 1..) = crate::journal::reader(&loaded).interrupted()
    {
        let said = crate::journal::interrupted_runs(count);
        findings.push(Finding { what: "runs", outcome: Ok(said) });
    }
    if project.gateway.policy().has_approvals()
        && loaded.config.approvals.by == ApproverWord::Caller
    {
        let said = "warning: rules let a person decide, and approvals.by = \"caller\" lets \
                    whoever asks approve; \"operator\" does not";
        findings.push(Finding { what: "approvals", outcome: Ok(said.to_owned()) });
    }
    let policy = project.gateway.policy();
    for problem in policy.faults(&catalog) {
        findings.push(Finding { what: "policy", outcome: Err(problem) });
    }
    for problem in idle_limits(&loaded, &catalog) {
        findings.push(Finding { what: "limits", outcome: Err(problem) });
    }

    findings.push(Finding { what: "callers", outcome: callers });
    findings.extend(around.server.map(|server| Finding {
        what: "server",
        outcome: Ok(match &server.address {
            Some(address) => format!("serving on http://{address}, process {}", server.pid),
            None => format!("moonlark {} serves, process {}", server.command, server.pid),
        }),
    }));
    findings.push(Finding { what: "address", outcome: address(around, &loaded).await });
    Ok(findings)
}

/// Tables of `[limits.tools]` whose name nothing has.
fn idle_limits(loaded: &Loaded, catalog: &Catalog) -> Vec<Problem> {
    let config = &loaded.config;
    let files = catalog
        .tools()
        .iter()
        .filter_map(|tool| Path::new(&tool.source.name).file_stem().and_then(|stem| stem.to_str()));
    let known: BTreeSet<&str> = (config.tools.script.keys())
        .chain(config.extensions.script.keys())
        .chain(config.connectors.script.keys())
        .chain(config.mcp_servers.keys())
        .chain(config.apis.keys())
        .map(String::as_str)
        .chain(files)
        .chain(["execute"])
        .collect();
    let idle = config.limits.tools.keys().filter(|name| !known.contains(name.as_str()));
    let problem = |name: &String| {
        let near = nearest(name, known.iter().copied());
        Problem::bad_config(format!("limits.tools.{name} limits nothing: there is no {name}"))
            .at(Place::file(format!("limits.tools.{name}")))
            .maybe_hint(near.map(|near| format!("did you mean {near}?")))
    };
    idle.map(problem).collect()
}

/// Whether a server can listen where the configuration says, or does so already.
async fn address(around: &Surroundings<'_>, loaded: &Loaded) -> Result<String> {
    let server = &loaded.config.server;
    let address = format!("{}:{}", server.host, server.port);
    let own = around.server.and_then(|server| server.address.as_deref());
    if own == Some(address.as_str()) {
        return Ok(format!("{address} is this project's own server"));
    }
    match super::serve::listen(&server.host, server.port, &around.project.auth).await {
        Ok(_) => Ok(format!("{address} is free")),
        Err(failure) => match ask_who_serves(&address).await {
            Some(version) => Ok(format!("Moonlark {version} is serving on {address}")),
            None => Err(match failure {
                Failure::Problems(mut problems) if !problems.is_empty() => problems.remove(0),
                _ => Problem::unavailable("cannot listen"),
            }),
        },
    }
}

/// The version of Moonlark that answers at an address, if one does.
async fn ask_who_serves(address: &str) -> Option<String> {
    let client = reqwest::Client::builder().no_proxy().timeout(HEALTH_TIMEOUT).build().ok()?;
    let answer = client.get(format!("http://{address}/health")).send().await.ok()?;
    let bytes = answer.bytes().await.ok()?;
    let health: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    health["status"].as_str()?;
    Some(health["version"].as_str()?.to_owned())
}
