//! `moonlark doctor`: diagnosis of a set-up.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;

use moonlark_core::tool::SourceKind;
use moonlark_core::{Catalog, Problem, ProblemCode, Result, SourceLocation, Warning};
use serde_json::{Value as Json, json};

use super::demo::surface_calls::request_json;
use super::problem_lines::{config_warning, error_lines, warning_lines};
use super::served_command::{CommandEnvironment, ServedCommand};
use super::source_args::SourceArgs;
use super::terminal::{StyledText, TextStyle};
use super::{
    CommandError, CommandResult, GlobalArgs, display_path, format_count, near_hint, path_label,
    print_json, print_line, summarize_findings, wait_for_sources,
};
use moonlark_config::ApproverConfig;
use moonlark_config::config_file::{LoadedConfig, RejectedConfig};

/// How long whoever listens at our address may take to say what it is.
const HEALTH_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Names that were changed, of which there may be thousands: `--json` has all.
const MAX_SHOWN_NAMES: usize = 10;

/// What findings about those names are of.
const CHANGED_NAMES: &str = "names";

/// What it may say about itself.
const MAX_HEALTH_BYTES: u64 = 16 * 1024;

/// One thing that was looked at.
struct DoctorFinding {
    what: &'static str,
    outcome: FindingOutcome,
}

enum FindingOutcome {
    Fine(String),
    /// It works, and is hardly meant so.
    Doubtful(Warning),
    Wrong(Problem),
}

pub(crate) async fn run(global: &GlobalArgs) -> CommandResult {
    ServedCommand::Doctor.run(SourceArgs::default(), global).await
}

pub(crate) async fn run_in(around: &CommandEnvironment<'_>, global: &GlobalArgs) -> CommandResult {
    let mut findings = collect_findings(around).await?;
    if !global.json {
        shorten_changed_names(&mut findings);
    }
    print_findings(&findings, global)
}

/// The project cannot even be opened.
pub(crate) fn report_rejected_config(
    rejected: RejectedConfig,
    global: &GlobalArgs,
) -> CommandResult {
    let doubts = rejected.warnings.iter().map(DoctorFinding::from_config_warning);
    let errors =
        rejected.errors.into_iter().map(|it| DoctorFinding::with_problem("configuration", it));
    print_findings(&doubts.chain(errors).collect::<Vec<_>>(), global)
}

fn print_findings(findings: &[DoctorFinding], global: &GlobalArgs) -> CommandResult {
    let count = |is_one: fn(&FindingOutcome) -> bool| {
        findings.iter().filter(|finding| is_one(&finding.outcome)).count()
    };
    let errors = count(|outcome| matches!(outcome, FindingOutcome::Wrong(_)));
    let warnings = count(|outcome| matches!(outcome, FindingOutcome::Doubtful(_)));
    if global.json {
        let findings: Vec<_> = findings.iter().map(DoctorFinding::to_json).collect();
        print_json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "findings": findings,
            "errors": errors,
            "warnings": warnings,
        }));
    } else {
        print_line(format!("Moonlark {}", env!("CARGO_PKG_VERSION")));
        findings.iter().flat_map(DoctorFinding::to_lines).for_each(print_line);
        print_line(summarize_findings(errors, warnings));
    }
    if errors == 0 { Ok(()) } else { Err(CommandError::Said) }
}

impl DoctorFinding {
    fn with_success(what: &'static str, text: impl Into<String>) -> DoctorFinding {
        DoctorFinding { what, outcome: FindingOutcome::Fine(text.into()) }
    }

    fn with_problem(what: &'static str, problem: Problem) -> DoctorFinding {
        DoctorFinding { what, outcome: FindingOutcome::Wrong(problem) }
    }

    fn with_warning(what: &'static str, warning: Warning) -> DoctorFinding {
        DoctorFinding { what, outcome: FindingOutcome::Doubtful(warning) }
    }

    /// A warning about the configuration.
    fn from_config_warning(problem: &Problem) -> DoctorFinding {
        DoctorFinding::with_warning("configuration", config_warning(problem))
    }

    fn from_result(what: &'static str, outcome: Result<String>) -> DoctorFinding {
        match outcome {
            Ok(text) => DoctorFinding::with_success(what, text),
            Err(problem) => DoctorFinding::with_problem(what, problem),
        }
    }

    fn to_json(&self) -> Json {
        let what = self.what;
        match &self.outcome {
            FindingOutcome::Fine(text) => json!({ "what": what, "ok": true, "text": text }),
            FindingOutcome::Doubtful(warning) => {
                json!({ "what": what, "ok": true, "warning": warning.to_json() })
            }
            FindingOutcome::Wrong(problem) => {
                json!({ "what": what, "ok": false, "error": problem.to_json() })
            }
        }
    }

    fn to_lines(&self) -> Vec<StyledText> {
        let (style, mark, texts) = match &self.outcome {
            FindingOutcome::Fine(text) => (TextStyle::Green, "✓", vec![StyledText::from(text)]),
            FindingOutcome::Doubtful(warning) => (TextStyle::Yellow, "!", warning_lines(warning)),
            FindingOutcome::Wrong(problem) => (TextStyle::Red, "✗", error_lines(problem)),
        };
        let what = format!(" {}: ", self.what);
        let mut head =
            StyledText::from("  ").with_part(style, mark).with_part(TextStyle::Plain, what);
        let mut lines = Vec::new();
        for text in texts {
            lines.push(std::mem::replace(&mut head, "    ".into()).append_text(text));
        }
        lines
    }
}

async fn collect_findings(
    around: &CommandEnvironment<'_>,
) -> Result<Vec<DoctorFinding>, CommandError> {
    let mut findings = Vec::new();
    let project = around.project;
    let loaded = project.loaded_config().await;
    let origin = match &loaded.path {
        // One of another folder, as that of a folder above is, is named in full.
        Some(path) if Some(loaded.root.as_path()) != super::working_dir().ok().as_deref() => {
            display_path(path)
        }
        Some(path) => path_label(path, &loaded.root),
        None => "none, defaults".to_owned(),
    };
    findings.push(DoctorFinding::with_success("configuration", origin));
    findings.extend(loaded.warnings.iter().map(DoctorFinding::from_config_warning));

    wait_for_sources(project).await;
    let upstreams = project.upstreams.current_offerings();
    let apis = project.apis.current_offerings();
    let catalog = project.gateway.catalog();
    let tools = super::script_tools(&catalog).count();
    let scripts: HashSet<&str> =
        super::script_tools(&catalog).map(|tool| tool.source.name.as_str()).collect();
    let outcome = match super::require_tools(project).await {
        Err(failure) => Err(failure.first_problem().unwrap_or_else(no_tool_loads_problem)),
        Ok(())
            if tools == 0
                && upstreams.health.is_empty()
                && apis.health.is_empty()
                && !project.knowledge.is_configured() =>
        {
            Err(no_tool_loads_problem())
        }
        Ok(()) if tools == 0 => Ok("none from scripts".to_owned()),
        Ok(()) => Ok(format!(
            "{} from {}",
            format_count(tools, "tool"),
            format_count(scripts.len(), "script")
        )),
    };
    findings.push(DoctorFinding::from_result("tools", outcome));
    findings.extend(changed_name_findings(&catalog));
    let prompts =
        catalog.source_resources().iter().filter(|it| it.source.kind == SourceKind::Script);
    let prompts: usize = prompts.map(|it| it.prompts.len()).sum();
    if prompts > 0 {
        findings.push(DoctorFinding::with_success("prompts", format_count(prompts, "prompt")));
    }
    let warnings = project.script_warnings().into_iter();
    findings.extend(warnings.map(|it| DoctorFinding::with_warning("script", it)));
    // Those are reported with their source below.
    let known = project.knowledge.source_statuses().await;
    let of_knowledge = |problem: &Problem| {
        let mut known = known.iter().flatten().filter_map(|it| it.problem.as_deref());
        known.any(|text| text == problem.to_line())
    };
    let elsewhere = |it: &&Problem| {
        upstreams.problems.contains(it) || apis.problems.contains(it) || of_knowledge(it)
    };
    for problem in catalog.problems().iter().filter(|it| !elsewhere(it)) {
        let what = if problem.code == ProblemCode::BadConfig { "configuration" } else { "script" };
        findings.push(DoctorFinding::with_problem(what, problem.clone()));
    }
    let of_agents = project.agent_script_problems().into_iter();
    findings.extend(of_agents.map(|it| DoctorFinding::with_problem("saved script", it)));
    let upstreams = ("upstream", upstreams.health, upstreams.problems);
    for (what, health, problems) in [upstreams, ("API", apis.health, apis.problems)] {
        for health in health {
            let outcome = match health.problem.clone() {
                Some(problem) => Err(problem),
                None => Ok(super::sources::health_line(&health)),
            };
            findings.push(DoctorFinding::from_result(what, outcome));
        }
        for problem in problems {
            // That it does not connect was said.
            let is_it = |it: &DoctorFinding| matches!(&it.outcome, FindingOutcome::Wrong(it) if *it == problem);
            if !findings.iter().any(is_it) {
                findings.push(DoctorFinding::with_problem(what, problem));
            }
        }
    }

    match known {
        Ok(known) => findings.extend(known.iter().map(|known| {
            let outcome = match &known.problem {
                Some(why) => Err(Problem::unavailable(format!("{}: {why}", known.stats.name))
                    .with_optional_hint(known.hint.clone())),
                None => Ok(super::sources::knowledge_line(known)),
            };
            DoctorFinding::from_result("knowledge", outcome)
        })),
        Err(problem) => findings.push(DoctorFinding::with_problem("knowledge", problem)),
    }

    let is_kept = loaded.config.journal.enabled;
    findings.push(if is_kept {
        DoctorFinding::from_result(
            "journal",
            crate::project_journal::journal_reader(&loaded).summary(),
        )
    } else {
        DoctorFinding::with_success("journal", "not kept")
    });
    // Reads the tokens, whose limits are rules too.
    let callers = project.auth.summary().await;
    if is_kept
        && let Ok(count @ 1..) = crate::project_journal::journal_reader(&loaded).count_interrupted()
    {
        let said = crate::project_journal::interrupted_runs_message(count);
        findings.push(DoctorFinding::with_warning("runs", Warning::new(said)));
    }
    if project.gateway.policy().has_approvals()
        && loaded.config.approvals.by == ApproverConfig::Caller
    {
        let said = "rules require approval, and approvals.by = \"caller\" lets callers \
                    approve their own calls";
        let hint = "set approvals.by = \"operator\"";
        findings.push(DoctorFinding::with_warning("approvals", Warning::new(said).with_hint(hint)));
    }
    let policy = project.gateway.policy();
    for problem in policy.find_faults(&catalog) {
        findings.push(DoctorFinding::with_problem("policy", problem));
    }
    for problem in unused_limit_problems(&loaded, &catalog) {
        findings.push(DoctorFinding::with_problem("limits", problem));
    }

    findings.push(DoctorFinding::from_result("callers", callers));
    findings.extend(around.server.map(|server| {
        let text = match &server.address {
            Some(address) => format!("serving on http://{address}, process {}", server.pid),
            None => format!("moonlark {} serves, process {}", server.command, server.pid),
        };
        DoctorFinding::with_success("server", text)
    }));
    findings
        .push(DoctorFinding::from_result("address", check_listen_address(around, &loaded).await));
    Ok(findings)
}

fn no_tool_loads_problem() -> Problem {
    Problem::bad_script("no tool script loads").with_hint("fix the errors below")
}

/// The tools that clients see under other names than those of their sources, which
/// lead to them as well.
fn changed_name_findings(catalog: &Catalog) -> impl Iterator<Item = DoctorFinding> {
    catalog.listed_name_changes().map(|it| {
        let (wanted, listed, reason) = (it.wanted, it.listed, it.reason.as_str());
        let text = format!("{wanted} is listed to MCP clients as {listed} ({reason})");
        DoctorFinding::with_success(CHANGED_NAMES, text)
    })
}

/// Leave the first of them, and say how to see the others.
fn shorten_changed_names(findings: &mut Vec<DoctorFinding>) {
    let is_name = |finding: &DoctorFinding| finding.what == CHANGED_NAMES;
    let Some(first) = findings.iter().position(is_name) else { return };
    let more = findings.iter().filter(|it| is_name(it)).count().saturating_sub(MAX_SHOWN_NAMES);
    if more > 0 {
        let text = format!(
            "and {} under another name: `moonlark doctor --json` names all",
            format_count(more, "more tool")
        );
        let rest = first + MAX_SHOWN_NAMES..first + MAX_SHOWN_NAMES + more;
        findings.splice(rest, [DoctorFinding::with_success(CHANGED_NAMES, text)]);
    }
}

/// Tables of `[limits.tools]` whose name nothing has.
fn unused_limit_problems(loaded: &LoadedConfig, catalog: &Catalog) -> Vec<Problem> {
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
        Problem::bad_config(format!("limits.tools.{name} limits nothing: there is no {name}"))
            .at_location(SourceLocation::in_file(format!("limits.tools.{name}")))
            .with_optional_hint(near_hint(name, known.iter().copied()))
    };
    idle.map(problem).collect()
}

/// Whether a server can listen where the configuration says, or does so already.
async fn check_listen_address(
    around: &CommandEnvironment<'_>,
    loaded: &LoadedConfig,
) -> Result<String> {
    let server = &loaded.config.server;
    let address = format!("{}:{}", server.host, server.port);
    let own = around.server.and_then(|server| server.address.as_deref());
    if own == Some(address.as_str()) {
        return Ok(format!("{address} is this project's own server"));
    }
    match super::serve::bind_listener(&server.host, server.port, &around.project.auth).await {
        Ok(_) => Ok(format!("{address} is free")),
        Err(failure) => match find_serving_version(&address).await {
            Some(version) => Ok(format!("Moonlark {version} is serving on {address}")),
            None => {
                let cannot = || Problem::unavailable("cannot listen");
                Err(failure.first_problem().unwrap_or_else(cannot))
            }
        },
    }
}

/// The version of Moonlark that answers at an address, if one does.
async fn find_serving_version(address: &str) -> Option<String> {
    let request = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let asking = request_json(address, &request, MAX_HEALTH_BYTES);
    let health = tokio::time::timeout(HEALTH_REQUEST_TIMEOUT, asking).await.ok()?.ok()?;
    health["status"].as_str()?;
    Some(health["version"].as_str()?.to_owned())
}
