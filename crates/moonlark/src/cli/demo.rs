//! `moonlark demo`: a server with example tools, another one behind it, a small
//! knowledge base, one call through every way in, and one agent script over all
//! of them.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use clap::Args;
use moonlark_core::tool::SourceKind;
use moonlark_core::{Problem, Result};
use moonlark_knowledge::SyncOptions;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::run::script::{self, Given};
use super::run::timeline;
use super::serve::{serve, until_asked_to_stop};
use super::{Done, Global, colours, print};
use crate::config::McpServer;
use crate::project::{More, Project};
use crate::reload;

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
const FILES: [(&str, &str); 18] = [
    ("moonlark.toml", example!("moonlark.toml")),
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
        let watcher = tokio::spawn(reload::watch(project.clone()));

        tour(&project, &address, folder).await?;
        knowledge(&project, &address).await?;
        agent_script(&project, global).await?;
        next_steps(&address, folder);
        let stay = !self.once && std::io::stdin().is_terminal();
        if stay {
            print("\nServing until Ctrl-C.");
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

/// Documents of two sources, and one question.
async fn knowledge(project: &Project, address: &str) -> Result<()> {
    print("\nThe knowledge base, of a folder and of a connector script:");
    for name in ["guide", "glossary"] {
        let source = project.knowledge.source(name)?;
        let options = SyncOptions::default();
        let summary = project.knowledge.sync(&source, &project.gateway, options).await?;
        let (documents, chunks) = (summary.added, summary.chunks);
        print(&format!("  {name:<15} {documents} documents in {chunks} chunks"));
    }
    let question = "How can I stop a script from reaching the internet?";
    print(&format!("Asked {question:?}, it finds:"));
    let found = over_rest(address, "search", &json!({"query": question, "limit": 3})).await?;
    for hit in found["result"]["results"].as_array().into_iter().flatten() {
        let place = hit["heading"].as_str().unwrap_or(word(&hit["source_id"]));
        print(&format!(
            "  {:.2} {}: {place}",
            hit["score"].as_f64().unwrap_or_default(),
            word(&hit["title"])
        ));
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

/// What an agent would send instead of five calls.
async fn agent_script(project: &Project, global: &Global) -> Done {
    print(
        "\nOne agent script, scripts/trip.luau, over the Lua tools, an extension, the knowledge base and the upstream server weather:\n",
    );
    TRIP.trim_end().lines().for_each(|line| print(&format!("  {line}")));
    print("");
    let given = Given { script: TRIP, timeout: None, plan: false };
    // All of it belongs to the tour, which is on stdout.
    let quiet = Global { quiet: true, ..global.clone() };
    let ran = script::run(&project.gateway, given, &quiet).await;
    ran.logs.iter().for_each(|line| print(&format!("log: {line}")));
    timeline::draw(&ran.steps, ran.took, colours()).iter().for_each(|line| print(line));
    print("\nWhat the agent gets of it:");
    ran.outcome?.lines()?.iter().for_each(|line| print(line));
    Ok(())
}

async fn tour(project: &Project, address: &str, folder: &Path) -> Result<()> {
    let catalog = project.gateway.catalog();
    print(&format!("Moonlark {} on http://{address}", env!("CARGO_PKG_VERSION")));
    for (kind, what, width) in [
        (SourceKind::Script, "Lua tools in {}/tools:", 11),
        (SourceKind::Extension, "Starlark extensions in {}/extensions:", 20),
    ] {
        print(&format!("\n{}", what.replace("{}", &folder.display().to_string())));
        for tool in catalog.tools().iter().filter(|tool| tool.source.kind == kind) {
            print(&format!("  {:<width$} {}", tool.name, tool.description));
        }
    }

    let args = json!({"text": "a rose is a rose\nis a rose"});
    print(&format!("\nThe tool report, called with {args} through every way in:"));
    let rest = over_rest(address, "report", &args).await?;
    show("REST", &rest["result"]);
    let http = over_mcp_http(address, "report", &args).await?;
    show("MCP over HTTP", &http["result"]["structuredContent"]);
    let stdio = over_mcp_stdio(folder, "report", &args).await?;
    show("MCP over stdio", &stdio["result"]["structuredContent"]);
    let cli = over_cli(folder, "report", &args).await?;
    show("command line", &cli["result"]);

    print("\nThe tool csv_summary, of a Starlark extension:");
    let table = json!({"text": "city,people\nBonn,330000\nKiel,250000"});
    let summary = over_rest(address, "csv_summary", &table).await?;
    for column in summary["result"]["columns"].as_array().into_iter().flatten() {
        print(&format!("  {column}"));
    }

    print("\nBad input is answered, not guessed at:");
    let bad = over_rest(address, "echo", &json!({"mesage": "hi"})).await?;
    print(&format!("  {}: {}", word(&bad["error"]["code"]), word(&bad["error"]["message"])));
    Ok(())
}

fn show(way: &str, result: &Json) {
    print(&format!("  {way:<15} {}", word(&result["summary"])));
}

fn word(json: &Json) -> &str {
    json.as_str().unwrap_or("(no answer)")
}

fn next_steps(address: &str, folder: &Path) {
    let client = json!({"mcpServers": {"moonlark": {"url": format!("http://{address}/mcp")}}});
    print(&format!(
        r#"
Try next:
  curl -s http://{address}/tools/list
  curl -s http://{address}/tools/echo -H 'Content-Type: application/json' -d '{{"message": "hello"}}'
  curl -N http://{address}/tools/countdown -H 'Content-Type: application/json' -H 'Accept: text/event-stream' -d '{{}}'
  edit {0}/tools/echo.lua and call it again: it is live at once
  cd {0} && moonlark run scripts/trip.luau --mcp weather='moonlark stdio --config weather/moonlark.toml'
  cd {0} && moonlark repl
  cd {0} && moonlark search "what may an agent's script do" --explain

An MCP client that speaks HTTP takes this configuration:
{client:#}
One that starts its servers itself takes "command": "moonlark", "args": ["stdio"] in your project's folder.

Your own:
  moonlark tool init hello && moonlark tool test tools/hello.lua --param name=World
  moonlark tool init hi --starlark && moonlark test
  moonlark serve"#,
        folder.display()
    ));
}

fn failed(way: &str) -> impl Fn(std::io::Error) -> Problem + '_ {
    move |error| Problem::unavailable(format!("the call over {way} failed: {error}"))
}

async fn over_rest(address: &str, tool: &str, args: &Json) -> Result<Json> {
    post(address, &format!("/tools/{tool}"), &[], args).await.map_err(failed("REST"))
}

async fn over_mcp_http(address: &str, tool: &str, args: &Json) -> Result<Json> {
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", tool),
    ];
    post(address, "/mcp", &headers, &request(tool, args)).await.map_err(failed("MCP"))
}

const MODERN: &str = "2026-07-28";

/// One call that needs nothing before it.
fn request(tool: &str, args: &Json) -> Json {
    json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": tool,
            "arguments": args,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "moonlark demo", "version": "1"},
            },
        },
    })
}

/// One HTTP request on a connection of its own.
async fn post(
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Json,
) -> std::io::Result<Json> {
    let body = body.to_string();
    let extra: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n{extra}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(1024 * 1024).read_to_string(&mut answer).await?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(std::io::Error::other)
}

async fn over_mcp_stdio(folder: &Path, tool: &str, args: &Json) -> Result<Json> {
    let talk = async {
        let mut child = this_binary(folder)?
            .args(["stdio", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::Error::other("no pipes"));
        };
        stdin.write_all(format!("{}\n", request(tool, args)).as_bytes()).await?;
        let line = BufReader::new(stdout).lines().next_line().await?.unwrap_or_default();
        drop(stdin);
        child.wait().await?;
        serde_json::from_str(&line).map_err(std::io::Error::other)
    };
    talk.await.map_err(failed("stdio"))
}

async fn over_cli(folder: &Path, tool: &str, args: &Json) -> Result<Json> {
    let talk = async {
        let output = this_binary(folder)?
            .args(["call", tool, "--json", "--quiet", "--args", &args.to_string()])
            .output()
            .await?;
        serde_json::from_slice(&output.stdout).map_err(std::io::Error::other)
    };
    talk.await.map_err(failed("the command line"))
}

fn this_binary(folder: &Path) -> std::io::Result<tokio::process::Command> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.current_dir(folder);
    Ok(command)
}
