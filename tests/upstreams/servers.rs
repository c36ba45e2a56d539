//! Which real servers there are, and how each is started.
//!
//! Twelve packages in three languages, some of them twice: `everything` speaks all
//! three transports. Those over HTTP and SSE are started here, the others by
//! whoever wants to talk to them: Moonlark, or the test itself.

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{PATIENCE, repo};

/// In the environment of every process that Moonlark starts.
pub const MARK: &str = "MOONLARK_TEST_OF_UPSTREAMS";

pub struct Upstream {
    /// What it is called in the configuration.
    pub name: &'static str,
    /// What it is: two with the same one answer alike.
    pub package: &'static str,
    pub way: Way,
    command: Vec<String>,
    env: Vec<(&'static str, String)>,
    cwd: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Stdio,
    Http,
    Sse,
}

/// All of them, with their files under `data`. `{port}` in a command is the port.
pub fn all(data: &Path, postgres: &str) -> Vec<Upstream> {
    let installed = installed();
    let node = |name: &str| path(&installed.join("node_modules/.bin").join(name));
    let python = |name: &str| path(&installed.join("python/bin").join(name));
    let python1 = |name: &str| path(&installed.join("python-mcp1/bin").join(name));
    let at = |name: &str| path(&data.join(name));
    let kube = installed.join(
        "node_modules/kubernetes-mcp-server-linux-amd64/bin/kubernetes-mcp-server-linux-amd64",
    );
    let kube_command = |more: &[&str]| {
        [&[path(&kube), "--kubeconfig".to_owned(), at("kube.yaml")], &strings(more)[..]].concat()
    };
    let duck = |more: &[&str]| {
        [
            &[python("mcp-server-motherduck")],
            &strings(&["--db-path", ":memory:", "--read-write"])[..],
            &strings(more),
        ]
        .concat()
    };
    // What Moonlark sends is kept, to see what the server is told.
    let tee =
        format!("tee '{}' | exec '{}' stdio", at("sent.jsonl"), node("mcp-server-everything"));
    let upstream = |name, package, way, command: Vec<String>| Upstream {
        name,
        package,
        way,
        command,
        env: vec![
            ("HOME", at("home")),
            ("FASTMCP_CHECK_FOR_UPDATES", "off".to_owned()),
            ("MEMORY_FILE_PATH", at("memory.jsonl")),
            ("npm_config_cache", at("home")),
            ("npm_config_update_notifier", "false".to_owned()),
        ],
        cwd: data.to_owned(),
    };
    let mut all = vec![
        upstream("everything", "everything", Way::Stdio, strings(&["sh", "-c", &tee])),
        upstream(
            "filesystem",
            "filesystem",
            Way::Stdio,
            vec![node("mcp-server-filesystem"), at("files")],
        ),
        // As most people start servers: by another program, which starts a shell.
        Upstream {
            cwd: installed.clone(),
            ..upstream(
                "memory",
                "memory",
                Way::Stdio,
                strings(&["npx", "--offline", "--no-install", "mcp-server-memory"]),
            )
        },
        upstream("thinking", "thinking", Way::Stdio, vec![node("mcp-server-sequential-thinking")]),
        upstream(
            "postgres",
            "postgres",
            Way::Stdio,
            vec![node("mcp-server-postgres"), postgres.to_owned()],
        ),
        upstream("git", "git", Way::Stdio, vec![python("mcp-server-git")]),
        upstream(
            "time",
            "time",
            Way::Stdio,
            vec![python("mcp-server-time"), "--local-timezone=UTC".to_owned()],
        ),
        upstream(
            "fetch",
            "fetch",
            Way::Stdio,
            [
                &[python("mcp-server-fetch")],
                &strings(&["--ignore-robots-txt", "--allow-private-ips"])[..],
            ]
            .concat(),
        ),
        upstream("duck", "duck", Way::Stdio, duck(&[])),
        upstream(
            "sqlite",
            "sqlite",
            Way::Stdio,
            vec![python1("mcp-server-sqlite"), "--db-path".to_owned(), at("birds.db")],
        ),
        upstream("calculator", "calculator", Way::Stdio, vec![python1("mcp-server-calculator")]),
        upstream(
            "everything_http",
            "everything",
            Way::Http,
            vec![node("mcp-server-everything"), "streamableHttp".to_owned()],
        ),
        upstream(
            "everything_sse",
            "everything",
            Way::Sse,
            vec![node("mcp-server-everything"), "sse".to_owned()],
        ),
        upstream(
            "duck_http",
            "duck",
            Way::Http,
            duck(&["--transport", "http", "--host", "127.0.0.1", "--port", "{port}"]),
        ),
        upstream(
            "calculator_sse",
            "calculator",
            Way::Sse,
            vec![
                python1("mcp-proxy"),
                "--port={port}".to_owned(),
                python1("mcp-server-calculator"),
            ],
        ),
    ];
    // Published for one kind of machine.
    if kube.exists() {
        all.push(upstream("kube", "kube", Way::Stdio, kube_command(&[])));
        all.push(upstream("kube_http", "kube", Way::Http, kube_command(&["--port", "{port}"])));
    }
    all
}

impl Upstream {
    /// To talk to it over stdin and stdout.
    pub fn command(&self) -> Command {
        self.command_on(0)
    }

    fn command_on(&self, port: u16) -> Command {
        let port = port.to_string();
        let mut words = self.command.iter().map(|word| word.replace("{port}", &port));
        let mut command = Command::new(words.next().unwrap());
        command.args(words).current_dir(&self.cwd).env_clear().env("PORT", &port);
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.envs(self.env.iter().map(|(name, value)| (*name, value)));
        command
    }

    /// Its part of `moonlark.toml`.
    pub fn config(&self, port: Option<u16>, mark: &str) -> String {
        let mut text = format!("[mcp_servers.{}]\n", self.name);
        match port {
            None => {
                text +=
                    &format!("command = {:?}\nargs = {:?}\n", self.command[0], &self.command[1..]);
                text += &format!("cwd = {:?}\n", self.cwd);
                let mut env = vec![format!("{MARK} = {mark:?}")];
                env.extend(self.env.iter().map(|(name, value)| format!("{name} = {value:?}")));
                text += &format!("env = {{ {} }}\n", env.join(", "));
            }
            Some(port) if self.way == Way::Sse => {
                text += &format!("url = \"http://127.0.0.1:{port}/sse\"\ntransport = \"sse\"\n");
            }
            Some(port) => text += &format!("url = \"http://127.0.0.1:{port}/mcp\"\n"),
        }
        if self.package == "everything" {
            text += &format!("roots = [{:?}]\n", self.cwd.join("files"));
        }
        // Python takes its time on a busy machine.
        text + "expose = \"direct\"\nconnect_timeout = 300\ntimeout = 120\n\n"
    }
}

/// A server on a port of this machine, which ends with the test.
pub struct Running {
    child: Child,
    pub port: u16,
}

impl Running {
    pub fn start(upstream: &Upstream) -> Running {
        // Somebody else may take the port in between.
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if let Some(running) = Running::launch(upstream, port) {
                return running;
            }
        }
        panic!("{} does not start on any port", upstream.name);
    }

    fn launch(upstream: &Upstream, port: u16) -> Option<Running> {
        let mut command = upstream.command_on(port);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: prctl is async-signal-safe and touches no memory of ours.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        let mut running = Running { child: command.spawn().unwrap(), port };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if running.child.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(started.elapsed() < PATIENCE, "{} does not listen", upstream.name);
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gently, so that it ends what it started itself.
        // SAFETY: the process is our child and was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let started = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if started.elapsed() > Duration::from_secs(5) {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Where the servers are; fails when they are not.
fn installed() -> PathBuf {
    let script = repo().join("tests/upstreams/install.sh");
    assert!(Command::new(&script).arg("--check").status().unwrap().success(), "run {script:?}");
    repo().join("target/upstreams")
}

fn path(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
