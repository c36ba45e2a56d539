//! `cargo x bench tokens`: what agents read, in tokens.
//!
//! The lists of real servers, as they are; and the same servers behind
//! Moonlark: the list and the instructions that an agent gets, then the way to
//! one call. The real binary is asked, over stdio.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};
use tiktoken_rs::CoreBPE;

use super::server::beside;
use super::tokens_repeated;

/// Tools of a server that are looked for, spread over its list.
const SAMPLE: usize = 8;
/// How long servers may take to connect.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Args)]
pub struct Tokens {
    /// A folder of what servers list: NAME.json with `init` and `tools`.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Write the report to this file as well.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Tokens {
    pub fn run(self) -> Result<()> {
        let lists = load(&self.data)?;
        let counter = Counter(tiktoken_rs::o200k_base()?);
        let mut rows = Vec::new();
        for list in &lists {
            eprintln!("{}", list.name);
            rows.push(measure(&list.name, std::slice::from_ref(list), &counter)?);
        }
        eprintln!("all of them");
        let all = measure("**all together**", &lists, &counter)?;
        eprintln!("a job that is repeated");
        let page = page(&rows, &all, lists.len())? + &tokens_repeated::section(&counter)?;
        println!("{page}");
        if let Some(out) = &self.out {
            std::fs::write(out, &page)
                .with_context(|| format!("cannot write {}", out.display()))?;
        }
        Ok(())
    }
}

/// What one server lists.
struct List {
    name: String,
    path: PathBuf,
    tools: Vec<Value>,
}

fn load(folder: &Path) -> Result<Vec<List>> {
    let mut lists = Vec::new();
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_none_or(|it| it != "json") {
            continue;
        }
        let file: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
        if let Some(tools) = file["tools"].as_array().filter(|tools| !tools.is_empty()) {
            lists.push(List { name, path: path.canonicalize()?, tools: tools.clone() });
        }
    }
    ensure!(!lists.is_empty(), "there is no list of tools in {}", folder.display());
    lists.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(lists)
}

pub(super) struct Counter(CoreBPE);

impl Counter {
    fn of(&self, text: &str) -> usize {
        self.0.encode_ordinary(text).len()
    }

    pub(super) fn count(&self, text: &str) -> usize {
        self.of(text)
    }
}

struct Row {
    name: String,
    tools: usize,
    raw: usize,
    /// The list as it is sent, and the instructions.
    list: usize,
    instructions: usize,
    /// Medians of the answers.
    search: usize,
    docs: usize,
    /// Of the tools that were looked for.
    found: usize,
    asked: usize,
}

fn measure(name: &str, lists: &[List], counter: &Counter) -> Result<Row> {
    let mut agent = Agent::start(lists)?;
    agent.wait()?;
    let listed = agent.ask("tools/list", json!({}))?;
    let said = agent.ask("server/discover", json!({}))?;
    let (mut search, mut docs, mut found, mut asked) = (Vec::new(), Vec::new(), 0, 0);
    // All together, one of each server is a fair sample.
    let sample = if lists.len() == 1 { SAMPLE } else { 1 };
    for list in lists {
        for tool in list.tools.iter().step_by(list.tools.len().div_ceil(sample)) {
            let own = tool["name"].as_str().unwrap_or_default();
            let Some(question) = question(tool) else { continue };
            let path = format!("{}.{own}", list.name);
            let answer = agent.call("search_docs", json!({"query": question}))?;
            let full = agent.call("get_function_docs", json!({"names": [path]}))?;
            let call = full.lines().find_map(|line| line.strip_prefix("function "));
            let call = call.and_then(|line| Some(line.split_once('(')?.0)).unwrap_or_default();
            asked += 1;
            found += usize::from(answer.contains(&format!("{call}(")));
            search.push(counter.of(&answer));
            docs.push(counter.of(&full));
        }
    }
    let raw: usize = lists.iter().map(|it| counter.of(&json!(it.tools).to_string())).sum();
    Ok(Row {
        name: name.to_owned(),
        tools: lists.iter().map(|it| it.tools.len()).sum(),
        raw,
        list: counter.of(&listed["tools"].to_string()),
        instructions: counter.of(said["instructions"].as_str().unwrap_or_default()),
        search: median(search),
        docs: median(docs),
        found,
        asked,
    })
}

/// What somebody who needs a tool might ask: the first words about it, without
/// its name.
fn question(tool: &Value) -> Option<String> {
    let words: Vec<&str> = tool["description"].as_str()?.split_whitespace().take(12).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

fn median(mut numbers: Vec<usize>) -> usize {
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

/// An agent that speaks 2026-07-28 to a Moonlark of its own.
pub(super) struct Agent {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next: u64,
    /// Where its configuration is.
    _folder: tempfile::TempDir,
}

impl Agent {
    fn start(lists: &[List]) -> Result<Agent> {
        let folder = tempfile::tempdir()?;
        let mut servers = toml::Table::new();
        for list in lists {
            let args = ["listed".into(), list.path.display().to_string().into()];
            let mut server = toml::Table::new();
            server.insert(
                "command".to_owned(),
                beside("moonlark-bench")?.display().to_string().into(),
            );
            server.insert("args".to_owned(), toml::Value::Array(args.into()));
            servers.insert(list.name.clone(), server.into());
        }
        let mut config = toml::Table::new();
        config.insert("mcp_servers".to_owned(), servers.into());
        Agent::start_in(folder, &toml::to_string(&config)?)
    }

    /// With these files beside the configuration.
    pub(super) fn start_with(config: &str, files: &[(&str, &str)]) -> Result<Agent> {
        let folder = tempfile::tempdir()?;
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
            std::fs::write(path, text)?;
        }
        Agent::start_in(folder, config)
    }

    fn start_in(folder: tempfile::TempDir, config: &str) -> Result<Agent> {
        std::fs::write(folder.path().join("moonlark.toml"), config)?;
        let mut child = Command::new(beside("moonlark")?)
            .arg("stdio")
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start moonlark")?;
        let ends = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = ends.context("no pipes")?;
        let stdout = BufReader::new(stdout);
        Ok(Agent { child, stdin, stdout, next: 1, _folder: folder })
    }

    /// Until every server has connected.
    fn wait(&mut self) -> Result<()> {
        let began = Instant::now();
        while self.call("list_functions", json!({}))?.contains("Still connecting") {
            ensure!(began.elapsed() < PATIENCE, "the servers do not connect");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Result<String> {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}))?;
        let text = answer["content"][0]["text"].as_str();
        Ok(text.with_context(|| format!("no text in {answer}"))?.to_owned())
    }

    pub(super) fn ask(&mut self, method: &str, mut params: Value) -> Result<Value> {
        let id = self.next;
        self.next += 1;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        });
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(self.stdin, "{request}")?;
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(self.stdout.read_line(&mut line)? > 0, "moonlark has ended");
            let mut message: Value = serde_json::from_str(&line)?;
            if message["id"] != json!(id) {
                continue;
            }
            if let Some(error) = message.get("error") {
                bail!("{method}: {error}");
            }
            return Ok(message["result"].take());
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn page(rows: &[Row], all: &Row, servers: usize) -> Result<String> {
    let mut page = String::new();
    let less = rows.iter().filter(|it| it.raw < it.surface()).count();
    writeln!(page, "# Benchmarks: tokens\n")?;
    writeln!(
        page,
        "Written by `cargo x bench tokens`: what agents read, in tokens of o200k, with the lists of \
         {servers} real MCP servers. **Raw** is the list of tools as the server sends it. **Surface** \
         is what every agent of Moonlark has in its context instead: the list of four tools, and the \
         instructions. **Search** is what `search_docs` answers to the first words of a tool's own \
         description, **docs** what `get_function_docs` answers for it (medians over some tools of the \
         server); **found** says how often the search was enough to write the call. **To a call** is \
         surface and search, as a share of the raw list.\n"
    )?;
    writeln!(
        page,
        "For {less} of the servers alone, the raw list is smaller than the surface: with \
         `expose = \"auto\"` Moonlark lists their tools directly.\n"
    )?;
    writeln!(page, "| server | tools | raw | surface | search | docs | found | to a call |")?;
    writeln!(page, "|---|---|---|---|---|---|---|---|")?;
    for row in std::iter::once(all).chain(rows) {
        writeln!(
            page,
            "| {} | {} | {} | {} + {} | {} | {} | {} of {} | {:.1} % |",
            row.name,
            row.tools,
            row.raw,
            row.list,
            row.instructions,
            row.search,
            row.docs,
            row.found,
            row.asked,
            (row.surface() + row.search) as f64 / row.raw as f64 * 100.0
        )?;
    }
    Ok(page)
}

impl Row {
    fn surface(&self) -> usize {
        self.list + self.instructions
    }
}
