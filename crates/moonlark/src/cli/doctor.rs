//! `moonlark doctor`: what is wrong with this set-up, and what is not.

use std::collections::HashSet;
use std::sync::Arc;

use moonlark_core::{Problem, Result};
use serde_json::json;

use super::{Done, Failure, Global, counted, here, open, print, shown};

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    outcome: Result<String>,
}

pub(crate) async fn run(global: &Global) -> Done {
    let findings = look(global).await?;
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
        print(&json!({ "version": env!("CARGO_PKG_VERSION"), "findings": findings }).to_string());
    } else {
        print(&format!("Moonlark {}", env!("CARGO_PKG_VERSION")));
        for finding in &findings {
            match &finding.outcome {
                Ok(text) => print(&format!("  ✓ {}: {text}", finding.what)),
                Err(problem) => {
                    let problem = problem.to_string().replace('\n', "\n    ");
                    print(&format!("  ✗ {}: {problem}", finding.what));
                }
            }
        }
    }
    if bad == 0 { Ok(()) } else { Err(Failure::Said) }
}

async fn look(global: &Global) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let project = match open(global).await {
        Ok(project) => Arc::new(project),
        Err(Failure::Problems(problems)) => {
            let found = |problem| Finding { what: "configuration", outcome: Err(problem) };
            return Ok(problems.into_iter().map(found).collect());
        }
        Err(said) => return Err(said),
    };
    let loaded = project.loaded().await;
    let origin = match &loaded.path {
        Some(path) => shown(path.strip_prefix(here()?).unwrap_or(path)),
        None => "none, defaults".to_owned(),
    };
    findings.push(Finding { what: "configuration", outcome: Ok(origin) });

    project.connect().await;
    project.settled().await;
    let upstreams = project.upstreams.offered();
    let apis = project.apis.offered();
    let catalog = project.gateway.catalog();
    project.disconnect().await;
    let tools = super::authored(&catalog).count();
    let scripts: HashSet<&str> =
        super::authored(&catalog).map(|tool| tool.source.name.as_str()).collect();
    let outcome = match super::require_tools(&project).await {
        Err(Failure::Problems(mut problems)) if !problems.is_empty() => Err(problems.remove(0)),
        _ if tools == 0
            && upstreams.health.is_empty()
            && apis.health.is_empty()
            && !project.knowledge.is_configured() =>
        {
            Err(Problem::bad_script("no script works").hint("mend what is below"))
        }
        _ if tools == 0 => Ok("none of scripts".to_owned()),
        _ => Ok(format!("{} from {}", counted(tools, "tool"), counted(scripts.len(), "script"))),
    };
    findings.push(Finding { what: "tools", outcome });
    let elsewhere = |it: &&Problem| upstreams.problems.contains(it) || apis.problems.contains(it);
    for problem in catalog.problems().iter().filter(|it| !elsewhere(it)) {
        findings.push(Finding { what: "script", outcome: Err(problem.clone()) });
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
    let policy = project.gateway.policy();
    for problem in policy.faults(&catalog) {
        findings.push(Finding { what: "policy", outcome: Err(problem) });
    }

    findings.push(Finding { what: "callers", outcome: project.auth.summary().await });
    let server = &loaded.config.server;
    let outcome = match super::serve::listen(&server.host, server.port, &project.auth).await {
        Ok(_) => Ok(format!("{}:{} is free", server.host, server.port)),
        Err(Failure::Problems(mut problems)) if !problems.is_empty() => Err(problems.remove(0)),
        Err(_) => Err(Problem::unavailable("cannot listen")),
    };
    findings.push(Finding { what: "address", outcome });
    Ok(findings)
}
