//! `moonlark demo`: a server with example tools, another one behind it, a small
//! knowledge base, one call through every way in, and one agent script over all
//! of them.

pub(super) mod surface_calls;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use moonlark_child::spawn_owned;
use moonlark_core::Result;
use moonlark_core::tool::SourceKind;
use moonlark_knowledge::SyncOptions;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::run::script_execution::{self, AgentScriptRequest};
use super::run::timeline;
use super::serve::{serve_project, shutdown_signal};
use super::terminal::{StyledText, TextStyle, terminal_width, wrap_words};
use super::{CommandResult, GlobalArgs, print_line, print_text};
use crate::project::{CliSources, Project};
use crate::reload;
use moonlark_config::McpServerConfig;
use surface_calls::{call_over_cli, call_over_mcp_http, call_over_mcp_stdio, call_over_rest};

const PACKAGE_VERSION: &str = env!("CARGO_PKG_VERSION");
/// What the knowledge base is asked.
const KNOWLEDGE_QUESTION: &str = "How can I test a tool without calling the real service?";

macro_rules! example {
    ($file:literal) => {
        include_str!(concat!("../../../../examples/", $file))
    };
}

macro_rules! guide {
    ($($file:literal),* $(,)?) => {
        [$(($file, include_str!(concat!("../../../../docs/guide/", $file)))),*]
    };
}

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Leave after the tour instead of serving on.
    #[arg(long)]
    once: bool,
}

/// The example project, as it is in the repository.
const EXAMPLE_FILES: [(&str, &str); 19] = [
    ("moonlark.toml", example!("moonlark.toml")),
    ("agents/review.lua", example!("agents/review.lua")),
    ("connectors/github_issues.luau", example!("connectors/github_issues.luau")),
    ("connectors/glossary.csv", example!("connectors/glossary.csv")),
    ("connectors/glossary.luau", example!("connectors/glossary.luau")),
    ("extensions/csv_summary.star", example!("extensions/csv_summary.star")),
    ("extensions/git.star", example!("extensions/git.star")),
    ("extensions/github_issues.star", example!("extensions/github_issues.star")),
    ("extensions/lib/answers.star", example!("extensions/lib/answers.star")),
    ("extensions/lib/sql.star", example!("extensions/lib/sql.star")),
    ("extensions/postgres_explorer.star", example!("extensions/postgres_explorer.star")),
    ("extensions/sqlite_explorer.star", example!("extensions/sqlite_explorer.star")),
    ("scripts/trip.luau", TRIP_SCRIPT),
    ("tools/countdown.lua", example!("tools/countdown.lua")),
    ("tools/echo.lua", example!("tools/echo.lua")),
    ("tools/report.lua", example!("tools/report.lua")),
    ("tools/text_stats.lua", example!("tools/text_stats.lua")),
    ("weather/moonlark.toml", example!("weather/moonlark.toml")),
    ("weather/tools/forecast.lua", example!("weather/tools/forecast.lua")),
];

/// What the knowledge base is made from: this project's own guide.
const GUIDE_FILES: [(&str, &str); 18] = guide![
    "apis.md",
    "approvals.md",
    "callers.md",
    "clients.md",
    "code-mode.md",
    "getting-started.md",
    "knowledge.md",
    "observability.md",
    "operating.md",
    "rules.md",
    "runs-and-replay.md",
    "safety.md",
    "saved-scripts.md",
    "starlark.md",
    "surfaces.md",
    "testing.md",
    "tools.md",
    "upstreams.md",
];

/// The agent script.
const TRIP_SCRIPT: &str = example!("scripts/trip.luau");
/// The upstream server, and the folder of the project that it is.
const WEATHER_PROJECT: &str = "weather";

impl DemoArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let temporary = tempfile::Builder::new().prefix("moonlark-demo-").tempdir()?;
        // Side by side, as they are in the repository.
        let (folder, guide) =
            (temporary.path().join("examples"), temporary.path().join("docs/guide"));
        write_files(&folder, &EXAMPLE_FILES)?;
        write_files(&guide, &GUIDE_FILES)?;
        let folder = folder.as_path();
        let servers = BTreeMap::from([(WEATHER_PROJECT.to_owned(), weather_server(folder)?)]);
        let more = CliSources { servers, ..CliSources::default() };
        let project = Arc::new(Project::open_with_sources(None, folder, more).await?);
        // The usual port if nobody has it, a free one otherwise.
        let listener = match TcpListener::bind(("127.0.0.1", 7331)).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind(("127.0.0.1", 0)).await?,
        };
        let address = listener.local_addr()?.to_string();
        let stop = CancellationToken::new();
        project.connect_all_sources().await;
        project.start_journal_and_telemetry().await;
        let server = spawn_owned(serve_project(project.clone(), listener, stop.clone()).await);
        let watcher = spawn_owned(reload::load_and_watch(project.clone(), |_| {}));

        show_tools(&project, &address, folder).await?;
        show_knowledge_base(&project, &address).await?;
        show_agent_script(&project, global).await?;
        print_next_steps(&address, folder);
        let stay = !self.once && std::io::stdin().is_terminal();
        if stay {
            print_line("");
            print_line("Serving until Ctrl-C.");
            shutdown_signal().await;
        }
        drop(watcher);
        stop.cancel();
        let _ = tokio::time::timeout(std::time::Duration::from_secs(2), server).await;
        project.disconnect_quickly().await;
        Ok(())
    }
}

fn write_files(folder: &Path, files: &[(&str, &str)]) -> std::io::Result<()> {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        #[expect(clippy::disallowed_methods, reason = "the folder is new and goes with the demo")]
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// This very binary, serving another project over stdio.
fn weather_server(folder: &Path) -> Result<McpServerConfig, std::io::Error> {
    let config = folder.join(WEATHER_PROJECT).join("moonlark.toml");
    let args = ["stdio", "--quiet", "--config", &config.to_string_lossy()];
    Ok(McpServerConfig {
        command: Some(std::env::current_exe()?.to_string_lossy().into_owned()),
        args: args.map(str::to_owned).to_vec(),
        ..McpServerConfig::default()
    })
}

async fn show_tools(project: &Project, address: &str, folder: &Path) -> Result<()> {
    print_line(StyledText::new(TextStyle::Bold, format!("Moonlark {PACKAGE_VERSION}")).with_part(
        TextStyle::Plain,
        format!(" with the example project, serving on http://{address}"),
    ));
    print_title("Tools: each is a file in a folder");
    let catalog = project.gateway.catalog();
    for (kind, folder, what) in
        [(SourceKind::Script, "tools/", "Lua"), (SourceKind::Extension, "extensions/", "Starlark")]
    {
        let of_kind = catalog.tools().iter().filter(|tool| tool.source.kind == kind);
        let names: Vec<&str> = of_kind.map(|tool| tool.name.as_str()).collect();
        print_row(&format!("{what}, {folder}"), &names.join(", "));
    }

    let args = json!({"text": "a rose is a rose\nis a rose"});
    print_title("One of them, report, over the command line, REST and MCP");
    let summary = |answer: &Json| text_or_placeholder(&answer["summary"]).to_owned();
    let rest = call_over_rest(address, "report", &args).await?;
    print_row("REST", &summary(&rest["result"]));
    let http = call_over_mcp_http(address, "report", &args).await?;
    print_row("MCP over HTTP", &summary(&http["result"]["structuredContent"]));
    let stdio = call_over_mcp_stdio(folder, "report", &args).await?;
    print_row("MCP over stdio", &summary(&stdio["result"]["structuredContent"]));
    let cli = call_over_cli(folder, "report", &args).await?;
    print_row("command line", &summary(&cli["result"]));
    let bad = call_over_rest(address, "echo", &json!({"mesage": "hi"})).await?;
    let error = &bad["error"];
    print_row(
        "with a mistake",
        &format!(
            "{}: {}",
            text_or_placeholder(&error["code"]),
            text_or_placeholder(&error["message"])
        ),
    );
    Ok(())
}

/// Documents of two sources, and one question.
async fn show_knowledge_base(project: &Project, address: &str) -> Result<()> {
    print_title("The knowledge base: a folder and a connector script");
    for name in ["guide", "glossary"] {
        let source = project.knowledge.find_source(name)?;
        let options = SyncOptions::default();
        let summary = project.knowledge.sync_source(&source, &project.gateway, options).await?;
        let (documents, chunks) = (summary.added, summary.chunks);
        print_row(name, &format!("{documents} documents in {chunks} chunks"));
    }
    print_line(StyledText::from("  asked: ").with_part(TextStyle::Bold, KNOWLEDGE_QUESTION));
    let found =
        call_over_rest(address, "search", &json!({"query": KNOWLEDGE_QUESTION, "limit": 3}))
            .await?;
    for hit in found["result"]["results"].as_array().into_iter().flatten() {
        let place = hit["heading"].as_str().unwrap_or(text_or_placeholder(&hit["source_id"]));
        let score = format!("  {:.2} ", hit["score"].as_f64().unwrap_or_default());
        let found = format!("{}: {place}", text_or_placeholder(&hit["title"]));
        print_line(StyledText::new(TextStyle::Dim, score).with_part(TextStyle::Plain, found));
    }
    Ok(())
}

/// What an agent would send instead of five calls.
async fn show_agent_script(project: &Project, global: &GlobalArgs) -> CommandResult {
    print_title("One agent script, scripts/trip.luau, over all of it and another server");
    // The part that makes calls; the file has the rest.
    let calls = TRIP_SCRIPT.lines().skip_while(|line| !line.starts_with("-- As plain globals"));
    for line in calls.take_while(|line| !line.starts_with("local best")) {
        print_line(StyledText::new(TextStyle::Dim, format!("  {line}").trim_end().to_owned()));
    }
    let given = AgentScriptRequest { script: TRIP_SCRIPT, timeout: None, plan: false, fork: None };
    // All of it belongs to the tour, which is on stdout.
    let quiet = GlobalArgs { quiet: true, ..global.clone() };
    let ran = script_execution::run_script(&project.gateway, given, &quiet).await;
    timeline::draw_steps(&ran.steps, ran.took).into_iter().for_each(print_line);
    print_line(StyledText::from("All that reaches the agent:"));
    ran.outcome?.display_texts()?.iter().for_each(print_text);
    Ok(())
}

fn text_or_placeholder(json: &Json) -> &str {
    json.as_str().unwrap_or("(no answer)")
}

fn print_title(text: &str) {
    print_line("");
    print_line(StyledText::new(TextStyle::Bold, text));
}

/// A name, and what belongs to it, over as many lines as it takes.
fn print_row(name: &str, text: &str) {
    const NAME_COLUMNS: usize = 23;
    let room = terminal_width().saturating_sub(NAME_COLUMNS + 3);
    for (number, line) in wrap_words(text, room).iter().enumerate() {
        let name = if number == 0 { name } else { "" };
        print_line(
            StyledText::from("  ")
                .with_part(TextStyle::Green, format!("{name:<NAME_COLUMNS$}"))
                .with_part(TextStyle::Plain, format!(" {line}")),
        );
    }
}

fn print_next_steps(address: &str, folder: &Path) {
    print_title("Try next, in another terminal");
    print_text(format!(
        r#"  curl -s http://{address}/tools/echo \
    -H 'Content-Type: application/json' -d '{{"message": "hello"}}'
  cd {0}
  moonlark repl
  moonlark search "what may an agent's script do" --explain
  edit tools/echo.lua and call it again: it is live at once"#,
        folder.display()
    ));
    print_title("An MCP client that speaks HTTP takes");
    let client = json!({"mcpServers": {"moonlark": {"url": format!("http://{address}/mcp")}}});
    print_line(format!("  {client}"));
    print_title("A project of your own");
    print_line("  moonlark tool init hello");
    print_line("  moonlark tool test tools/hello.lua --param name=World");
    print_line("  moonlark serve");
}
