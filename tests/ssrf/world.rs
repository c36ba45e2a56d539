//! A server whose internet is made up: names, routes, and sites behind them.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{PATIENCE, Project, Server, read_request, repo};

/// The address that `open.example` leads to.
pub const PUBLIC: &str = "93.184.215.14";

/// Fetches whatever it is told to; `ask` says how.
const FETCH_LUA: &str = r#"
tool = {
    name = "fetch", description = "Fetch",
    parameters = { { name = "ask", type = "object", required = true } },
}
function tool.execute(params) return http.request(params.ask).body end
"#;

const FETCH_STAR: &str = r#"
def fetch(params):
    return http.request(params["ask"])["body"]

def describe_extension():
    return Extension(name = "star", tools = [
        Tool("star_fetch", "Fetch", [ToolParameter("ask", "object", True)], fetch),
    ])
"#;

/// The same tool in both languages, with the grants that `{allow}` stands for.
pub const FETCHERS: [&str; 2] = ["fetch", "star_fetch"];

pub struct World {
    pub project: Project,
    pub server: Server,
    /// A site on the internet.
    pub open: Site,
    /// One on this machine, that nobody was granted.
    pub hidden: Site,
}

impl World {
    /// A world in which both fetchers have these grants, with further `config` and
    /// names.
    pub fn new(allow: &[&str], config: &str, names: &[(&str, &str)]) -> World {
        World::with(allow, config, names, Vec::new())
    }

    pub fn with(
        allow: &[&str],
        config: &str,
        names: &[(&str, &str)],
        mut env: Vec<(&str, String)>,
    ) -> World {
        let (open, hidden) = (Site::saying("open"), Site::saying("hidden"));
        let allow = json!(allow).to_string().replace("HIDDEN", &hidden.port.to_string());
        let config = format!(
            "{config}\n[tools.script.fetch]\npath = \"tools/fetch.lua\"\nallow = {allow}\n\
             [extensions.script.star]\npath = \"star.star\"\nallow = {allow}\n"
        );
        let project = Project::new(&[
            ("moonlark.toml", &config),
            ("tools/fetch.lua", FETCH_LUA),
            ("extensions/star.star", FETCH_STAR),
        ]);
        let mut lines = format!("open.example {PUBLIC}\nlocalhost 127.0.0.1\n");
        for (name, answers) in names {
            lines.push_str(&format!("{name} {answers}\n"));
        }
        project.write("world/names", &lines);
        project.write("world/routes", &format!("{PUBLIC} 80 {}\n", open.port));
        let library = project.path("world/world.so");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(repo().join("tests/ssrf/world.c"))
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        env.push(("LD_PRELOAD", library.display().to_string()));
        env.push(("WORLD", project.path("world").display().to_string()));
        for (_, value) in &mut env {
            *value = value
                .replace("OPEN", &open.port.to_string())
                .replace("HIDDEN", &hidden.port.to_string());
        }
        let env: Vec<(&str, &str)> = env.iter().map(|(key, value)| (*key, &**value)).collect();
        let server = project.serve_with(&[], &env);
        World { project, server, open, hidden }
    }

    /// What `tool` gets for a request: the body, or `code: message`.
    pub fn ask(&self, tool: &str, ask: Value) -> Result<String, String> {
        let (_, answer) = self.server.post(tool, &json!({ "ask": ask }));
        match answer.get("error") {
            None => Ok(answer["result"].as_str().unwrap_or_default().to_owned()),
            Some(error) => {
                let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
                Err(format!("{}: {}", text("code"), text("message")))
            }
        }
    }

    pub fn get(&self, tool: &str, url: &str) -> Result<String, String> {
        self.ask(tool, json!({ "url": url, "timeout": 20 }))
    }

    /// The same in both languages, which have to agree.
    pub fn get_both(&self, url: &str) -> Result<String, String> {
        let [lua, star] = FETCHERS.map(|tool| self.get(tool, url).map_err(|text| outcome(&text)));
        assert_eq!(lua, star, "{url}");
        lua
    }

    /// Both languages are refused, and nothing was connected to.
    pub fn assert_refused(&self, url: &str) {
        let before = self.connected();
        let text = self.get_both(url).expect_err(url);
        let refused = ["denied: ", "tool_error: "].iter().any(|code| text.starts_with(code));
        assert!(refused, "{url:?}: {text}");
        assert_eq!(self.connected(), before, "{url:?}");
        assert_eq!(self.hidden.seen(), Vec::<String>::new(), "{url:?}");
    }

    /// `address port` of every connection that was tried.
    pub fn connected(&self) -> Vec<String> {
        self.lines("world/connected")
    }

    /// How often a name was looked up.
    pub fn asked(&self, name: &str) -> usize {
        self.lines("world/asked").iter().filter(|line| *line == name).count()
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.project.path(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// An error without where in which script it was.
fn outcome(text: &str) -> String {
    let (code, message) = text.split_once(": ").unwrap_or_default();
    let message = message.find("http.request").map_or(message, |at| &message[at..]);
    format!("{code}: {message}")
}

/// A web site on a port of this machine that remembers what it was asked.
pub struct Site {
    pub port: u16,
    seen: Arc<Mutex<Vec<String>>>,
    redirect: Arc<Mutex<String>>,
}

impl Site {
    /// It answers every request with `body`, unless it was told to redirect. A
    /// connection stays open for more.
    fn saying(body: &'static str) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let site = Site { port, seen: Arc::default(), redirect: Arc::default() };
        let (seen, redirect) = (site.seen.clone(), site.redirect.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, redirect) = (seen.clone(), redirect.clone());
                std::thread::spawn(move || serve(stream, body, &seen, &redirect));
            }
        });
        site
    }

    /// Everything under `/to/` is answered with this status and place.
    pub fn redirects(&self, status: u16, location: &str) {
        *self.redirect.lock().unwrap() =
            format!("HTTP/1.1 {status} Elsewhere\r\nLocation: {location}\r\n");
    }

    /// The requests that came, headers and all.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: TcpStream,
    body: &str,
    seen: &Mutex<Vec<String>>,
    redirect: &Mutex<String>,
) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    loop {
        let request = read_request(&mut stream)?;
        let to = request.split(' ').nth(1).unwrap_or_default().contains("/to/");
        let head =
            if to { redirect.lock().unwrap().clone() } else { "HTTP/1.1 200 OK\r\n".to_owned() };
        seen.lock().unwrap().push(request);
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).ok()?;
    }
}
