//! `moonlark doctor`: what is wrong with this set-up, and what is not.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;

use moonlark_core::nearest::nearest;
use moonlark_core::tool::SourceKind;
use moonlark_core::{Catalog, Code, Place, Problem, Result, Warning};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::problem_lines::{error_lines, warning_lines};
use super::served::{ServedCommand, Surroundings};
use super::servers::Servers;
use super::terminal::{StyledText, TextStyle};
use super::{Done, Failure, Global, counted, counted_findings, print, print_json, settle, shown};
use crate::config::ApproverWord;
use crate::config_file::{Loaded, RejectedConfig};

/// How long whoever listens at our address may take to say what it is.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// Names that were changed, of which there may be thousands.
const MAX_SHOWN_NAMES: usize = 10;

/// What it may say about itself.
const MAX_HEALTH_BYTES: u64 = 16 * 1024;

/// One thing that was looked at.
struct Finding {
    what: &'static str,
    outcome: Outcome,
}

enum Outcome {
    Fine(String),
    /// It works, and is hardly meant so.
    Doubtful(Warning),
    Wrong(Problem),
}

pub(crate) async fn run(global: &Global) -> Done {
    ServedCommand::Doctor.run(Servers::default(), global).await
}

pub(crate) async fn run_in(around: &Surroundings<'_>, global: &Global) -> Done {
    tell(&look(around).await?, global)
}

/// The project cannot even be opened.
pub(crate) fn tell_rejected(rejected: RejectedConfig, global: &Global) -> Done {
    let doubts = rejected.warnings.iter().map(Finding::doubt);
    let errors = rejected.errors.into_iter().map(|it| Finding::wrong("configuration", it));
    tell(&doubts.chain(errors).collect::<Vec<_>>(), global)
}

fn tell(findings: &[Finding], global: &Global) -> Done {
    let count = |is_one: fn(&Outcome) -> bool| {
        findings.iter().filter(|finding| is_one(&finding.outcome)).count()
    };
    let errors = count(|outcome| matches!(outcome, Outcome::Wrong(_)));
    let warnings = count(|outcome| matches!(outcome, Outcome::Doubtful(_)));
    if global.json {
        let findings: Vec<_> = findings.iter().map(Finding::to_json).collect();
        print_json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "findings": findings,
            "errors": errors,
            "warnings": warnings,
        }));
    } else {
        print(format!("Moonlark {}", env!("CARGO_PKG_VERSION")));
        findings.iter().flat_map(Finding::lines).for_each(print);
        print(counted_findings(errors, warnings));
    }
    if errors == 0 { Ok(()) } else { Err(Failure::Said) }
}

impl Finding {
    fn fine(what: &'static str, text: impl Into<String>) -> Finding {
        Finding { what, outcome: Outcome::Fine(text.into()) }
    }

    fn wrong(what: &'static str, problem: Problem) -> Finding {
        Finding { what, outcome: Outcome::Wrong(problem) }
    }

    fn doubtful(what: &'static str, warning: Warning) -> Finding {
        Finding { what, outcome: Outcome::Doubtful(warning) }
    }

    /// A warning about the configuration.
    fn doubt(problem: &Problem) -> Finding {
        let Problem { message, place, hint, .. } = problem.clone();
        Finding::doubtful("configuration", Warning { message, place, hint })
    }

    fn of(what: &'static str, outcome: Result<String>) -> Finding {
        match outcome {
            Ok(text) => Finding::fine(what, text),
            Err(problem) => Finding::wrong(what, problem),
        }
    }

    fn to_json(&self) -> Json {
        let what = self.what;
        match &self.outcome {
            Outcome::Fine(text) => json!({ "what": what, "ok": true, "text": text }),
            Outcome::Doubtful(warning) => {
                json!({ "what": what, "ok": true, "warning": warning.to_json() })
            }
            Outcome::Wrong(problem) => {
                json!({ "what": what, "ok": false, "error": problem.to_json() })
            }
        }
    }

    fn lines(&self) -> Vec<StyledText> {
        let (style, mark, texts) = match &self.outcome {
            Outcome::Fine(text) => (TextStyle::Green, "✓", vec![StyledText::from(text)]),
            Outcome::Doubtful(warning) => (TextStyle::Yellow, "!", warning_lines(warning)),
            Outcome::Wrong(problem) => (TextStyle::Red, "✗", error_lines(problem)),
        };
        let what = format!(" {}: ", self.what);
        let mut head = StyledText::from("  ").with(style, mark).with(TextStyle::Plain, what);
        let mut lines = Vec::new();
        for text in texts {
            lines.push(std::mem::replace(&mut head, "    ".into()).then(text));
        }
        lines
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
    findings.push(Finding::fine("configuration", origin));
    findings.extend(loaded.warnings.iter().map(Finding::doubt));

    settle(project).await;
    let upstreams = project.upstreams.offered();
    let apis = project.apis.offered();
    let catalog = project.gateway.catalog();
    let tools = super::authored(&catalog).count();
    let scripts: HashSet<&str> =
        super::authored(&catalog).map(|tool| tool.source.name.as_str()).collect();
    let outcome = match super::require_tools(project).await {
        Err(failure) => Err(failure.first_problem().unwrap_or_else(no_tool_loads)),
        Ok(())
            if tools == 0
                && upstreams.health.is_empty()
                && apis.health.is_empty()
                && !project.knowledge.is_configured() =>
        {
            Err(no_tool_loads())
        }
        Ok(()) if tools == 0 => Ok("none from scripts".to_owned()),
        Ok(()) => {
            Ok(format!("{} from {}", counted(tools, "tool"), counted(scripts.len(), "script")))
        }
    };
    findings.push(Finding::of("tools", outcome));
    findings.extend(changed_names(&catalog).into_iter().map(|it| Finding::fine("names", it)));
    let prompts = catalog.offers().iter().filter(|it| it.source.kind == SourceKind::Script);
    let prompts = prompts.map(|it| it.prompts.len()).sum();
    if prompts > 0 {
        findings.push(Finding::fine("prompts", counted(prompts, "prompt")));
    }
    findings.extend(catalog.warnings().map(|it| Finding::doubtful("script", it.clone())));
    let elsewhere = |it: &&Problem| upstreams.problems.contains(it) || apis.problems.contains(it);
    for problem in catalog.problems().iter().filter(|it| !elsewhere(it)) {
        let what = if problem.code == Code::BadConfig { "configuration" } else { "script" };
        findings.push(Finding::wrong(what, problem.clone()));
    }
    let upstreams = ("upstream", upstreams.health, upstreams.problems);
    for (what, health, problems) in [upstreams, ("API", apis.health, apis.problems)] {
        for health in health {
            let outcome = match health.problem.clone() {
                Some(problem) => Err(problem),
                None => Ok(super::sources::line(&health)),
            };
            findings.push(Finding::of(what, outcome));
        }
        for problem in problems {
            // That it does not connect was said.
            let is_it = |it: &Finding| matches!(&it.outcome, Outcome::Wrong(it) if *it == problem);
            if !findings.iter().any(is_it) {
                findings.push(Finding::wrong(what, problem));
            }
        }
    }

    match project.knowledge.known().await {
        Ok(known) => findings.extend(known.iter().map(|known| {
            let outcome = match &known.problem {
                Some(why) => Err(Problem::unavailable(format!("{}: {why}", known.stats.name))
                    .maybe_hint(known.hint.clone())),
                None => Ok(super::sources::knowledge(known)),
            };
            Finding::of("knowledge", outcome)
        })),
        Err(problem) => findings.push(Finding::wrong("knowledge", problem)),
    }

    let is_kept = loaded.config.journal.enabled;
    findings.push(if is_kept {
        Finding::of("journal", crate::journal::reader(&loaded).summary())
    } else {
        Finding::fine("journal", "not kept")
    });
    // Reads the tokens, whose limits are rules too.
    let callers = project.auth.summary().await;
    if is_kept && let Ok(count @ 1..) = crate::journal::reader(&loaded).interrupted() {
        let said = crate::journal::interrupted_runs(count);
        findings.push(Finding::doubtful("runs", Warning::new(said)));
    }
    if project.gateway.policy().has_approvals()
        && loaded.config.approvals.by == ApproverWord::Caller
    {
        let said = "rules want a person's approval, and approvals.by = \"caller\" lets the caller \
                    that asks approve its own call";
        let hint = "set approvals.by = \"operator\"";
        findings.push(Finding::doubtful("approvals", Warning::new(said).hint(hint)));
    }
    let policy = project.gateway.policy();
    for problem in policy.faults(&catalog) {
        findings.push(Finding::wrong("policy", problem));
    }
    for problem in idle_limits(&loaded, &catalog) {
        findings.push(Finding::wrong("limits", problem));
    }

    findings.push(Finding::of("callers", callers));
    findings.extend(around.server.map(|server| {
        let text = match &server.address {
            Some(address) => format!("serving on http://{address}, process {}", server.pid),
            None => format!("moonlark {} serves, process {}", server.command, server.pid),
        };
        Finding::fine("server", text)
    }));
    findings.push(Finding::of("address", address(around, &loaded).await));
    Ok(findings)
}

fn no_tool_loads() -> Problem {
    Problem::bad_script("no tool script loads").hint("fix the errors below")
}

/// The tools that clients see under other names than those of their sources, which
/// lead to them as well.
fn changed_names(catalog: &Catalog) -> Vec<String> {
    let mut changes: Vec<String> = (catalog.listed_name_changes())
        .map(|it| {
            let (wanted, listed, reason) = (it.wanted, it.listed, it.reason.as_str());
            format!("{wanted} is listed to MCP clients as {listed} ({reason})")
        })
        .collect();
    let more = changes.len().saturating_sub(MAX_SHOWN_NAMES);
    if more > 0 {
        changes.truncate(MAX_SHOWN_NAMES);
        changes.push(format!("and {} under another name", counted(more, "more tool")));
    }
    changes
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
            None => {
                let cannot = || Problem::unavailable("cannot listen");
                Err(failure.first_problem().unwrap_or_else(cannot))
            }
        },
    }
}

/// The version of Moonlark that answers at an address, if one does.
async fn ask_who_serves(address: &str) -> Option<String> {
    let asked = tokio::time::timeout(HEALTH_TIMEOUT, ask_for_health(address)).await;
    let answer = asked.ok()?.ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let health: Json = serde_json::from_str(body).ok()?;
    health["status"].as_str()?;
    Some(health["version"].as_str()?.to_owned())
}

/// What whoever listens there answers, as far as it is no longer than our own answer.
async fn ask_for_health(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_HEALTH_BYTES).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
