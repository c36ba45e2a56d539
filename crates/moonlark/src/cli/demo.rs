//! `moonlark demo`: a server with example tools, another one behind it, a small
//! knowledge base, one call through every way in, and one agent script over all
//! of them.

mod ways_in;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use moonlark_core::Result;
use moonlark_core::tool::SourceKind;
use moonlark_knowledge::SyncOptions;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::run::script::{self, Given};
use super::run::timeline;
use super::serve::{serve, until_asked_to_stop};
use super::terminal::{StyledText, TextStyle, terminal_width, wrap_words};
use super::{Done, Global, print, print_text};
use crate::config::McpServer;
use crate::project::{More, Project};
use crate::reload;
use ways_in::{over_cli, over_mcp_http, over_mcp_stdio, over_rest};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What the knowledge base is asked.
const QUESTION: &str = "How can I test a tool without calling the real service?";

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
pub(crate) struct Demo {
    /// Leave after the tour instead of serving on.
    #[arg(long)]
    once: bool,
}

/// The example project, as it is in the repository.
const FILES: [(&str, &str); 19] = [
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
    ("scripts/trip.luau", TRIP),
    ("tools/countdown.lua", example!("tools/countdown.lua")),
    ("tools/echo.lua", example!("tools/echo.lua")),
    ("tools/report.lua", example!("tools/report.lua")),
    ("tools/text_stats.lua", example!("tools/text_stats.lua")),
    ("weather/moonlark.toml", example!("weather/moonlark.toml")),
    ("weather/tools/forecast.lua", example!("weather/tools/forecast.lua")),
];

/// What the knowledge base is made from: this project's own guide.
const GUIDE: [(&str, &str); 13] = guide![
    "apis.md",
    "clients.md",
    "code-mode.md",
    "getting-started.md",
    "knowledge.md",
    "operating.md",
    "safety.md",
    "starlark.md",
    "surfaces.md",
    "testing.md",
    "tools.md",
    "trust.md",
    "upstreams.md",
];

/// The agent script.
const TRIP: &str = example!("scripts/trip.luau");
/// The upstream server, and the folder of the project that it is.
const WEATHER: &str = "weather";

impl Demo {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let temporary = tempfile::Builder::new().prefix("moonlark-demo-").tempdir()?;
        // Side by side, as they are in the repository.
        let (folder, guide) =
            (temporary.path().join("examples"), temporary.path().join("docs/guide"));
        write(&folder, &FILES)?;
        write(&guide, &GUIDE)?;
        let folder = folder.as_path();
        let servers = BTreeMap::from([(WEATHER.to_owned(), weather(folder)?)]);
        let more = More { servers, ..More::default() };
        let project = Arc::new(Project::open_with(None, folder, more).await?);
        // The usual port if nobody has it, a free one otherwise.
        let listener = match TcpListener::bind(("127.0.0.1", 7331)).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind(("127.0.0.1", 0)).await?,
        };
        let address = listener.local_addr()?.to_string();
        let stop = CancellationToken::new();
        project.connect().await;
        project.keep_journal().await;
        let server = tokio::spawn(serve(project.clone(), listener, stop.clone()).await);
        let watcher = tokio::spawn(reload::load_and_watch(project.clone(), |_| {}));

        tour(&project, &address, folder).await?;
        knowledge(&project, &address).await?;
        agent_script(&project, global).await?;
        next_steps(&address, folder);
        let stay = !self.once && std::io::stdin().is_terminal();
        if stay {
            print("");
            print("Serving until Ctrl-C.");
            until_asked_to_stop().await;
        }
        watcher.abort();
        stop.cancel();
        let _ = tokio::time::timeout(std::time::Duration::from_secs(2), server).await;
        project.disconnect().await;
        Ok(())
    }
}

fn write(folder: &Path, files: &[(&str, &str)]) -> std::io::Result<()> {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        std::fs::write(path, text)?;
    }
    Ok(())
}

/// This very binary, serving another project over stdio.
fn weather(folder: &Path) -> Result<McpServer, std::io::Error> {
    let config = folder.join(WEATHER).join("moonlark.toml");
    let args = ["stdio", "--quiet", "--config", &config.to_string_lossy()];
    Ok(McpServer {
        command: Some(std::env::current_exe()?.to_string_lossy().into_owned()),
        args: args.map(str::to_owned).to_vec(),
        ..McpServer::default()
    })
}

async fn tour(project: &Project, address: &str, folder: &Path) -> Result<()> {
    print(
        StyledText::styled(TextStyle::Bold, format!("Moonlark {VERSION}")).with(
            TextStyle::Plain,
            format!(" with the example project, serving on http://{address}"),
        ),
    );
    title("Tools: each is a file in a folder");
    let catalog = project.gateway.catalog();
    for (kind, folder, what) in
        [(SourceKind::Script, "tools/", "Lua"), (SourceKind::Extension, "extensions/", "Starlark")]
    {
        let of_kind = catalog.tools().iter().filter(|tool| tool.source.kind == kind);
        let names: Vec<&str> = of_kind.map(|tool| tool.name.as_str()).collect();
        row(&format!("{what}, {folder}"), &names.join(", "));
    }

    let args = json!({"text": "a rose is a rose\nis a rose"});
    title("One of them, report, through every way in");
    let summary = |answer: &Json| word(&answer["summary"]).to_owned();
    let rest = over_rest(address, "report", &args).await?;
    row("REST", &summary(&rest["result"]));
    let http = over_mcp_http(address, "report", &args).await?;
    row("MCP over HTTP", &summary(&http["result"]["structuredContent"]));
    let stdio = over_mcp_stdio(folder, "report", &args).await?;
    row("MCP over stdio", &summary(&stdio["result"]["structuredContent"]));
    let cli = over_cli(folder, "report", &args).await?;
    row("command line", &summary(&cli["result"]));
    let bad = over_rest(address, "echo", &json!({"mesage": "hi"})).await?;
    let error = &bad["error"];
    row("with a mistake", &format!("{}: {}", word(&error["code"]), word(&error["message"])));
    Ok(())
}

/// Documents of two sources, and one question.
async fn knowledge(project: &Project, address: &str) -> Result<()> {
    title("The knowledge base: a folder and a connector script");
    for name in ["guide", "glossary"] {
        let source = project.knowledge.source(name)?;
        let options = SyncOptions::default();
        let summary = project.knowledge.sync(&source, &project.gateway, options).await?;
        let (documents, chunks) = (summary.added, summary.chunks);
        row(name, &format!("{documents} documents in {chunks} chunks"));
    }
    print(StyledText::from("  asked: ").with(TextStyle::Bold, QUESTION));
    let found = over_rest(address, "search", &json!({"query": QUESTION, "limit": 3})).await?;
    for hit in found["result"]["results"].as_array().into_iter().flatten() {
        let place = hit["heading"].as_str().unwrap_or(word(&hit["source_id"]));
        let score = format!("  {:.2} ", hit["score"].as_f64().unwrap_or_default());
        let found = format!("{}: {place}", word(&hit["title"]));
        print(StyledText::styled(TextStyle::Dim, score).with(TextStyle::Plain, found));
    }
    Ok(())
}

/// What an agent would send instead of five calls.
async fn agent_script(project: &Project, global: &Global) -> Done {
    title("One agent script, scripts/trip.luau, over all of it and another server");
    // The part that makes calls; the file has the rest.
    let calls = TRIP.lines().skip_while(|line| !line.starts_with("-- As plain globals"));
    for line in calls.take_while(|line| !line.starts_with("local best")) {
        print(StyledText::styled(TextStyle::Dim, format!("  {line}").trim_end().to_owned()));
    }
    let given = Given { script: TRIP, timeout: None, plan: false };
    // All of it belongs to the tour, which is on stdout.
    let quiet = Global { quiet: true, ..global.clone() };
    let ran = script::run(&project.gateway, given, &quiet).await;
    timeline::draw(&ran.steps, ran.took).into_iter().for_each(print);
    print(StyledText::from("All that reaches the agent:"));
    ran.outcome?.texts()?.iter().for_each(print_text);
    Ok(())
}

fn word(json: &Json) -> &str {
    json.as_str().unwrap_or("(no answer)")
}

fn title(text: &str) {
    print("");
    print(StyledText::styled(TextStyle::Bold, text));
}

/// A name, and what belongs to it, over as many lines as it takes.
fn row(name: &str, text: &str) {
    const NAME_COLUMNS: usize = 23;
    let room = terminal_width().saturating_sub(NAME_COLUMNS + 3);
    for (number, line) in wrap_words(text, room).iter().enumerate() {
        let name = if number == 0 { name } else { "" };
        print(
            StyledText::from("  ")
                .with(TextStyle::Green, format!("{name:<NAME_COLUMNS$}"))
                .with(TextStyle::Plain, format!(" {line}")),
        );
    }
}

fn next_steps(address: &str, folder: &Path) {
    title("Try next, in another terminal");
    print_text(format!(
        r#"  curl -s http://{address}/tools/echo \
    -H 'Content-Type: application/json' -d '{{"message": "hello"}}'
  cd {0}
  moonlark repl
  moonlark search "what may an agent's script do" --explain
  edit tools/echo.lua and call it again: it is live at once"#,
        folder.display()
    ));
    title("An MCP client that speaks HTTP takes");
    let client = json!({"mcpServers": {"moonlark": {"url": format!("http://{address}/mcp")}}});
    print(format!("  {client}"));
    title("A project of your own");
    print("  moonlark tool init hello");
    print("  moonlark tool test tools/hello.lua --param name=World");
    print("  moonlark serve");
}
