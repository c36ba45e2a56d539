//! A project with an upstream that misbehaves, one that does not, and a script
//! of its own; and the accounts that have to balance when it ends.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::harness::{Project, Server, eventually};
use crate::processes::{fifo, marked, open_files, signal, status};

const LOCAL: &str = r#"
tool = { name = "local", description = "Nobody's upstream" }
function tool.execute() return "here" end
"#;

/// What a call comes to: the result, or what is [told](World::told) of the Problem.
pub type Outcome = Result<Value, String>;

pub struct World {
    pub project: Project,
    pub server: Server,
    /// In the environment of every process of an upstream, and only there.
    mark: String,
    /// The configuration without the upstream `bad`.
    without: String,
    /// Descriptors of the server at the start.
    open: usize,
    /// An address that nobody may ask anything.
    remote: TcpListener,
    /// The server with the fault, if it is one on HTTP.
    site: Option<Mutex<Child>>,
    /// What is called otherwise in every run, and what we call it.
    names: Vec<(String, &'static str)>,
}

/// How the upstream `bad` is reached.
#[derive(Clone, Copy)]
pub enum Way {
    Stdio,
    Http,
    Sse,
}

impl World {
    pub fn stdio(mode: &str) -> World {
        World::new(Way::Stdio, mode, "")
    }

    pub fn http(mode: &str) -> World {
        World::new(Way::Http, mode, "")
    }

    /// `more` are keys of the upstream `bad`.
    pub fn new(way: Way, mode: &str, more: &str) -> World {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let mark = format!("FAULTY_MARK={}-{number}-", std::process::id());
        let project = Project::new(&[("tools/local.lua", LOCAL)]);
        fifo(&project.path("go"));
        let remote = TcpListener::bind("127.0.0.1:0").unwrap();
        remote.set_nonblocking(true).unwrap();
        let env = [
            ("FAULTY_MARK", mark.split_once('=').unwrap().1.to_owned()),
            ("COUNT_FILE", project.path("count").display().to_string()),
            ("GO", project.path("go").display().to_string()),
            ("REMOTE", format!("http://{}", remote.local_addr().unwrap())),
        ];
        let program = faulty().display().to_string();
        let mut names = vec![(program.clone(), "FAULTY"), (env[3].1.clone(), "REMOTE")];
        let (bad, site) = match way {
            Way::Stdio => {
                (format!("command = {program:?}\nargs = [{mode:?}]\nenv = {}", table(&env)), None)
            }
            Way::Http | Way::Sse => {
                let (flag, transport) = match way {
                    Way::Sse => ("--sse", "transport = \"sse\""),
                    _ => ("--http", ""),
                };
                let (url, site) = start_site(mode, flag, &env);
                names.push((url[..url.rfind('/').unwrap()].to_owned(), "SITE"));
                (format!("url = {url:?}\n{transport}"), Some(site))
            }
        };
        let good =
            format!("command = {program:?}\nargs = [\"healthy\"]\nenv = {}", table(&env[..1]));
        let without = format!("[mcp_servers.good]\n{good}\n");
        let with = format!("[mcp_servers.bad]\nexpose = \"direct\"\n{bad}\n{more}\n\n{without}");
        project.write("moonlark.toml", &with);
        let server = project.serve();
        let mut world = World { project, server, mark, without, open: 0, remote, site, names };
        world.check_neighbours();
        world.open = open_files(world.server.pid()).len();
        world
    }

    /// Call a tool of the upstream `bad`.
    pub fn call(&self, tool: &str) -> Outcome {
        self.call_with(tool, json!({}))
    }

    pub fn call_with(&self, tool: &str, args: Value) -> Outcome {
        self.outcome(&format!("bad.{tool}"), args)
    }

    fn outcome(&self, tool: &str, args: Value) -> Outcome {
        let (_, answer) = self.server.post(&encoded(tool), &args);
        match answer.get("error") {
            None => Ok(answer["result"].clone()),
            Some(error) => {
                let told = self.told(error);
                let Some((what, hint)) = told.split_once(NOT_REPEATED) else { return Err(told) };
                // What to do next depends on what broke, and is always said.
                assert!(hint.len() > "; ".len(), "{told}");
                Err(format!("{what}{NOT_REPEATED}"))
            }
        }
    }

    /// A Problem in one line, without what differs from run to run.
    pub fn told(&self, error: &Value) -> String {
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        let told = [text("code"), text("message"), text("hint")].join("; ");
        self.names.iter().fold(told, |told, (it, name)| told.replace(it, name))
    }

    /// Call a tool that takes its time, and see after the neighbours when the
    /// upstream has it.
    pub fn call_meanwhile(&self, tool: &str, args: Value) -> Outcome {
        let before = self.count(&format!("call {tool}"));
        std::thread::scope(|scope| {
            let calling = scope.spawn(|| self.call_with(tool, args));
            self.wait_for_count(&format!("call {tool}"), before + 1);
            self.check_neighbours();
            calling.join().unwrap()
        })
    }

    /// They answer, whatever else happens.
    pub fn check_neighbours(&self) {
        assert_eq!(self.outcome("good.echo", json!({"text": "neighbour"})), Ok(json!("neighbour")));
        assert_eq!(self.outcome("local", json!({})), Ok(json!("here")));
    }

    /// What `GET /sources` says about the upstream `bad`.
    pub fn source(&self) -> Value {
        let sources = self.server.get("/sources").json();
        let all = sources["upstreams"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|source| source["name"] == "bad").expect("a source named bad")
    }

    pub fn wait_for_state(&self, state: &str) -> Value {
        eventually(&format!("the state {state}"), || {
            let source = self.source();
            if source["state"] == state { Ok(source) } else { Err(source.to_string()) }
        })
    }

    /// The names of the tools of `bad` that anybody may call, in order.
    pub fn tools(&self) -> Vec<String> {
        let listed = self.server.get("/tools/list").json();
        let names = listed["tools"].as_array().unwrap().iter();
        let names = names.filter_map(|tool| tool["name"].as_str()?.strip_prefix("bad."));
        names.map(str::to_owned).collect()
    }

    /// The names that agents are shown for them.
    pub fn shown(&self) -> Vec<String> {
        let listed = self.server.mcp("tools/list", json!({}));
        let names = listed["result"]["tools"].as_array().unwrap().iter();
        let names = names.filter_map(|tool| tool["name"].as_str()?.strip_prefix("bad__"));
        names.map(str::to_owned).collect()
    }

    /// What `moonlark doctor` finds wrong.
    pub fn complaints(&self) -> Vec<String> {
        let said = self.project.run(&["doctor"]).stdout;
        let said = String::from_utf8(said).unwrap();
        let lines = said.lines().filter_map(|line| line.trim().strip_prefix("✗ upstream: "));
        lines.map(str::to_owned).collect()
    }

    pub fn wait_for_tool(&self, name: &str) {
        eventually(&format!("the tool {name}"), || match self.tools() {
            tools if tools.iter().any(|tool| tool == name) => Ok(()),
            tools => Err(format!("{tools:?}")),
        });
    }

    /// How often the upstream wrote this line to its count.
    pub fn count(&self, line: &str) -> usize {
        let text = std::fs::read_to_string(self.project.path("count")).unwrap_or_default();
        text.lines().filter(|found| *found == line).count()
    }

    pub fn wait_for_count(&self, line: &str, times: usize) {
        eventually(&format!("{times} times {line:?}"), || match self.count(line) {
            count if count >= times => Ok(()),
            count => Err(count.to_string()),
        });
    }

    /// By how many kilobytes the server's memory was larger at its peak.
    pub fn grown(&self, work: impl FnOnce(&World)) -> i64 {
        // Make the peak the present: only growth from here on counts.
        let clear = format!("/proc/{}/clear_refs", self.server.pid());
        std::fs::write(clear, "5").unwrap();
        let before = status(self.server.pid(), "VmHWM:");
        work(self);
        status(self.server.pid(), "VmHWM:") - before
    }

    /// Once is as good as often: no descriptor stays open of whatever `work`
    /// does, and no process.
    pub fn leaks_nothing(&self, work: impl Fn(&World)) {
        work(self);
        let (open, running) = (self.open_files().len(), self.processes().len());
        for _ in 0..10 {
            work(self);
        }
        self.wait_for_open_files(open);
        self.wait_for_processes(running);
    }

    /// Without those of the journal, which opens its own when it has something to
    /// write, and keeps them.
    fn open_files(&self) -> Vec<String> {
        let mut open = open_files(self.server.pid());
        open.retain(|file| !file.contains("/.moonlark/"));
        open
    }

    fn wait_for_open_files(&self, most: usize) {
        eventually(&format!("{most} open files"), || {
            let open = self.open_files();
            if open.len() <= most { Ok(()) } else { Err(format!("{open:#?}")) }
        });
    }

    /// Take the upstream `bad` out of the configuration.
    pub fn remove_bad(&self) {
        self.project.write("moonlark.toml", &self.without);
    }

    /// End the server with the fault, which is not ours to start.
    pub fn stop_site(&self) {
        let mut site = self.site.as_ref().unwrap().lock().unwrap();
        site.kill().unwrap();
        site.wait().unwrap();
    }

    /// Processes of upstreams that live.
    pub fn processes(&self) -> Vec<u32> {
        let site = self.site.as_ref().map(|site| site.lock().unwrap().id());
        marked(&self.mark).into_iter().filter(|pid| Some(*pid) != site).collect()
    }

    /// Until there are exactly as many.
    pub fn wait_until_running(&self, count: usize) {
        eventually(&format!("{count} processes"), || match self.processes() {
            running if running.len() == count => Ok(()),
            running => Err(format!("{running:?}")),
        });
    }

    pub fn wait_for_processes(&self, most: usize) {
        eventually(&format!("{most} processes"), || {
            let running = self.processes();
            if running.len() <= most { Ok(()) } else { Err(format!("{running:?}")) }
        });
    }

    /// Balance the accounts: the neighbours are well, nobody was sent where
    /// nobody should go, nothing is open but the connection to an upstream, and
    /// when the server has ended nothing of an upstream is left.
    pub fn end(self) {
        /// Pipes, sockets and handles of one upstream that is connected.
        const CONNECTION: usize = 8;
        self.check_neighbours();
        assert_eq!(self.remote.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        self.wait_for_open_files(self.open + CONNECTION);
        signal(self.server.pid(), libc::SIGTERM);
        self.wait_for_processes(0);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(site) = &mut self.site {
            let site = site.get_mut().unwrap();
            let _ = site.kill();
            let _ = site.wait();
        }
    }
}

/// The server with all the faults, which is an example of the crate `moonlark`.
pub fn faulty() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let faulty = tests.parent().unwrap().parent().unwrap().join("examples/faulty");
    assert!(faulty.exists(), "run: cargo build -p moonlark --example faulty");
    faulty
}

/// What a call of `echo` is told where its server is in the trouble that was
/// [told](World::told).
pub fn not_there(trouble: &str) -> Outcome {
    let (code, rest) = trouble.split_once("; ").unwrap();
    Err(format!("{code}; tool 'bad.echo' is not there: {rest}"))
}

/// A call that reached the upstream, and whose answer did not reach us.
pub fn lost(what: &str) -> Outcome {
    lost_with("unavailable", what)
}

pub fn lost_with(code: &str, what: &str) -> Outcome {
    Err(format!("{code}; {what}{NOT_REPEATED}"))
}

const NOT_REPEATED: &str = "; the call may have happened, and was not repeated";

/// As a part of a URL, whatever is in it.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let parts = name.bytes().map(|byte| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    });
    parts.collect()
}

fn table(env: &[(&str, String)]) -> String {
    let entries: Vec<String> =
        env.iter().map(|(name, value)| format!("{name} = {value:?}")).collect();
    format!("{{ {} }}", entries.join(", "))
}

fn start_site(mode: &str, way: &str, env: &[(&str, String)]) -> (String, Mutex<Child>) {
    let mut site = Command::new(faulty())
        .args([mode, way])
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(site.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (line.trim().strip_prefix("listening on ").unwrap().to_owned(), Mutex::new(site))
}
