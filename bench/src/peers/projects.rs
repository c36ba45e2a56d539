//! How Moonlark and each peer is started: a folder with its configuration, a command.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use serde_json::json;
use tempfile::TempDir;

use crate::scripts;
use crate::server::beside;

/// Calls that a script may make, in the gateways that limit them.
const MAX_SCRIPT_CALLS: u32 = 1000;

const MOONLARK_OVER_STDIO: [&str; 2] = ["stdio", "--quiet"];
const MOONLARK_OVER_HTTP: [&str; 3] = ["serve", "--port", "0"];

/// A program with a folder of its own, which must stay while it runs.
pub(super) struct PeerProject {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    folder: TempDir,
}

/// The native echo server behind a gateway, over stdio.
#[derive(Clone, Copy)]
pub(super) struct EchoUpstream {
    pub(super) tools: usize,
    /// Whether its tools say that they only read.
    pub(super) has_annotations: bool,
    /// How long each call takes.
    pub(super) delay_millis: u64,
}

impl PeerProject {
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        self.prepare(command)
    }

    /// The same program, started by another one.
    pub(super) fn command_under(&self, mut wrapper: Command) -> Command {
        wrapper.arg(&self.program).args(&self.arguments);
        self.prepare(wrapper)
    }

    /// The same configuration, served over HTTP.
    pub(super) fn over_http(mut self) -> PeerProject {
        self.arguments = MOONLARK_OVER_HTTP.iter().map(OsString::from).collect();
        self
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn moonlark_over_upstream(upstream: EchoUpstream) -> Result<PeerProject> {
        let folder = empty_folder()?;
        let (command, arguments) = (beside("moonlark-bench")?, upstream.arguments());
        let config = format!(
            "[limits]\ncalls = {MAX_SCRIPT_CALLS}\n\
             [mcp_servers.echo]\ncommand = {command:?}\nargs = {arguments:?}\n"
        );
        std::fs::write(folder.path().join("moonlark.toml"), config)?;
        PeerProject::moonlark(folder, &MOONLARK_OVER_STDIO)
    }

    pub(super) fn switch_off_type_check(&self) -> Result<()> {
        let file = self.folder.path().join("moonlark.toml");
        let config = std::fs::read_to_string(&file)?;
        Ok(std::fs::write(file, format!("{config}[execute]\ncheck = \"off\"\n"))?)
    }

    pub(super) fn toolscript(program: PathBuf, upstream: EchoUpstream) -> Result<PeerProject> {
        let folder = empty_folder()?;
        let (command, arguments) = (beside("moonlark-bench")?, upstream.arguments());
        let config = format!("[mcp_servers.echo]\ncommand = {command:?}\nargs = {arguments:?}\n");
        std::fs::write(folder.path().join("toolscript.toml"), config)?;
        let max_calls = MAX_SCRIPT_CALLS.to_string();
        let arguments =
            ["run", "--config", "toolscript.toml", "--max-api-calls", max_calls.as_str()];
        Ok(PeerProject::new(program, folder, &arguments))
    }

    /// Over HTTP, on the same upstream; it takes the port that it is given.
    pub(super) fn my_cool_proxy(
        program: PathBuf,
        upstream: EchoUpstream,
        port: u16,
    ) -> Result<PeerProject> {
        let folder = empty_folder()?;
        let config = json!({
            "transport": "http",
            "host": "127.0.0.1",
            "port": port,
            "mcpClients": {"echo": {
                "type": "stdio",
                "command": beside("moonlark-bench")?,
                "args": upstream.arguments(),
            }},
        });
        let file = folder.path().join("config.json");
        std::fs::write(&file, config.to_string())?;
        let mut project = PeerProject::new(program, folder, &[]);
        project.environment.push(("CONFIG_PATH", file.into()));
        Ok(project)
    }

    /// `count` Lua tools, one of them `echo`.
    pub(super) fn moonlark_with_lua_tools(count: usize) -> Result<PeerProject> {
        let folder = empty_folder()?;
        write_lua_tools(folder.path(), count)?;
        // Its own configuration, or that of the user would count.
        std::fs::write(folder.path().join("moonlark.toml"), "")?;
        PeerProject::moonlark(folder, &MOONLARK_OVER_HTTP)
    }

    pub(super) fn context_harness(program: PathBuf, count: usize) -> Result<PeerProject> {
        let folder = empty_folder()?;
        let names = write_lua_tools(folder.path(), count)?;
        let tools: String = names
            .iter()
            .map(|name| format!("[tools.script.{name}]\npath = \"tools/{name}.lua\"\n"))
            .collect();
        let config = format!(
            "[db]\npath = \"data.sqlite\"\n[chunking]\nmax_tokens = 700\n\
             [embedding]\nprovider = \"disabled\"\n[retrieval]\nfinal_limit = 12\n\
             [server]\nbind = \"127.0.0.1:{}\"\n{tools}",
            free_port()?
        );
        std::fs::write(folder.path().join("ctx.toml"), config)?;
        Ok(PeerProject::new(program, folder, &["serve", "mcp", "--config", "ctx.toml"]))
    }

    /// `count` Starlark files of one tool each, one of them `echo`.
    pub(super) fn moonlark_with_starlark(count: usize) -> Result<PeerProject> {
        let folder = empty_folder()?;
        write_starlark_files(folder.path(), count)?;
        std::fs::write(folder.path().join("moonlark.toml"), "")?;
        PeerProject::moonlark(folder, &MOONLARK_OVER_STDIO)
    }

    pub(super) fn starlark_mcp(program: PathBuf, count: usize) -> Result<PeerProject> {
        let folder = empty_folder()?;
        write_starlark_files(folder.path(), count)?;
        Ok(PeerProject::new(program, folder, &["--extensions-dir", "extensions"]))
    }

    fn moonlark(folder: TempDir, arguments: &[&str]) -> Result<PeerProject> {
        Ok(PeerProject::new(beside("moonlark")?, folder, arguments))
    }

    fn new(program: PathBuf, folder: TempDir, arguments: &[&str]) -> PeerProject {
        let arguments = arguments.iter().map(OsString::from).collect();
        PeerProject { program, arguments, environment: Vec::new(), folder }
    }

    /// Nothing of the user's own may count, nor be written.
    fn prepare(&self, mut command: Command) -> Command {
        let folder = self.folder.path();
        for variable in HOME_VARIABLES {
            command.env(variable, folder);
        }
        command.current_dir(folder).envs(self.environment.iter().map(|(name, it)| (name, it)));
        command
    }
}

const HOME_VARIABLES: [&str; 5] =
    ["HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"];

impl EchoUpstream {
    fn arguments(self) -> Vec<String> {
        let (tools, delay) = (self.tools.to_string(), self.delay_millis.to_string());
        let given = ["floor-rmcp", "--stdio", "--tools", &tools, "--delay", &delay];
        let mut arguments = Vec::from(given.map(str::to_owned));
        if !self.has_annotations {
            arguments.push("--without-annotations".to_owned());
        }
        arguments
    }
}

/// For a server that must be told one.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn empty_folder() -> Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("bench-").tempdir()?)
}

/// The same text in Lua 5.4 and in Luau.
const LUA_ECHO: &str = r#"
tool = {
    name = "echo",
    version = "1.0.0",
    description = "Echoes back the input message",
    parameters = {
        { name = "message", type = "string", required = true, description = "What to say" },
    },
}

function tool.execute(params, context)
    return { echo = "Echo: " .. params.message }
end
"#;

/// Returns the names of the tools, which are those of the files.
fn write_lua_tools(folder: &Path, count: usize) -> Result<Vec<String>> {
    let tools = folder.join("tools");
    std::fs::create_dir(&tools)?;
    let names = names(count);
    for name in &names {
        let text = LUA_ECHO.replacen("\"echo\"", &format!("{name:?}"), 1);
        std::fs::write(tools.join(format!("{name}.lua")), text)?;
    }
    Ok(names)
}

const STARLARK_ECHO: &str = r#"
def echo(params):
    return {"content": [{"type": "text", "text": "Echo: " + params["message"]}]}

def describe_extension():
    return Extension(
        name = "echo",
        version = "1.0.0",
        description = "Echo",
        tools = [
            Tool(
                name = "echo",
                description = "Echoes back the input message",
                parameters = [ToolParameter(name = "message", param_type = "string", required = True, description = "What to say")],
                handler = echo,
            ),
        ],
    )
"#;

fn write_starlark_files(folder: &Path, count: usize) -> Result<()> {
    let extensions = folder.join("extensions");
    std::fs::create_dir(&extensions)?;
    for name in names(count) {
        let text = STARLARK_ECHO.replace("name = \"echo\"", &format!("name = {name:?}"));
        std::fs::write(extensions.join(format!("{name}.star")), text)?;
    }
    Ok(())
}

/// Write the extension `echo` anew, so that it answers with `prefix`.
pub(super) fn edit_starlark_echo(project: &PeerProject, prefix: &str) -> Result<()> {
    let text = STARLARK_ECHO.replacen("Echo: ", prefix, 1);
    Ok(std::fs::write(project.folder().join("extensions/echo.star"), text)?)
}

fn names(count: usize) -> Vec<String> {
    let others = (1..count).map(scripts::name);
    std::iter::once("echo".to_owned()).chain(others).collect()
}
