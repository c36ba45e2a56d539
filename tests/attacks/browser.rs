//! A page in a real browser that tries everything a page can (`page.html`): from
//! another site, from another port of this machine, from a name that was made to
//! lead here meanwhile. The same page shows, from the server's own origin and from
//! one that is allowed, that all of it works where it may.
//!
//! `tests/browser/install.sh` installs the browser.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use serde_json::Value;

use crate::harness::{LOOK, PATIENCE, Project, repo};

const PAGE: &str = include_str!("page.html");

struct World {
    project: Project,
    server: crate::harness::Server,
    front: Front,
}

impl World {
    fn new() -> World {
        let front = Front::open();
        let config = format!(
            "[server]\nallowed_origins = [\"http://app.example:{}\"]\n\n[tools.script.look]\npath = \"tools/look.lua\"\nallow = [\"fs:write\"]\n",
            front.port
        );
        let project = Project::new(&[("moonlark.toml", &config), ("tools/look.lua", LOOK)]);
        let server = project.serve();
        front.lead_to(&server.address);
        World { project, server, front }
    }

    fn looked(&self) -> usize {
        let entries = std::fs::read_dir(self.project.path("tools")).unwrap();
        entries.filter(|it| it.as_ref().unwrap().file_name() != "look.lua").count()
    }

    /// What the page can read, opened under this name; directly from the server,
    /// or from where the page itself comes.
    fn open(&self, name: &str, directly: bool) -> Value {
        let Front { port, tell_port, .. } = self.front;
        let target = if directly { self.server.url("") } else { String::new() };
        let tell = format!("http://127.0.0.1:{tell_port}/");
        let _browser =
            Browser::open(&format!("http://{name}:{port}/page?target={target}&tell={tell}"));
        self.front.told()
    }
}

#[test]
#[ignore = "needs tests/browser/install.sh: run ./test"]
fn a_page_calls_nothing_and_reads_nothing_unless_it_may() {
    let world = World::new();
    for (what, name, directly) in [
        ("a page of another site", "evil.example", true),
        ("a page of another port of this machine", "127.0.0.1", true),
        ("a page whose name leads here now", "evil.example", false),
    ] {
        let read = world.open(name, directly);
        for (attempt, read) in read.as_object().unwrap() {
            let read = read.as_str().unwrap();
            // From its own origin, a page sees that it is refused.
            let nothing = read.is_empty() || read.contains("is not served here");
            assert!(nothing, "{what} reads by {attempt}: {read}");
        }
        assert_eq!(world.looked(), 0, "{what} called a tool");
    }

    let own = world.open("127.0.0.1", false);
    check(&own, "its own page");
    // By get, unseen, as JSON, with a token, without anything, by request, by MCP, as an image, a
    // style, a frame and a form: whatever its own pages send that is no other kind of body.
    assert!(world.looked() >= 8, "{}", world.looked());

    let before = world.looked();
    let allowed = world.open("app.example", true);
    check(&allowed, "a page of an allowed origin");
    assert!(world.looked() > before + 4);
    // What it could not ask for is not made for it either.
    for attempt in ["image", "frame", "form_by_get"] {
        assert_eq!(allowed[attempt], "", "{attempt}");
    }
}

/// All that a page can do that may.
fn check(read: &Value, what: &str) {
    for (attempt, text) in [
        ("list", "\"look\""),
        ("health", "\"ok\""),
        ("documents", "openapi"),
        ("runs", "runs"),
        ("call_by_get", "seen"),
        ("call", "seen"),
        ("call_with_a_token", "seen"),
        ("mcp", "seen"),
        ("call_as_text", "must be JSON"),
    ] {
        let seen = read[attempt].as_str().unwrap();
        assert!(seen.contains(text), "{what} reads by {attempt}: {seen}");
    }
}

/// Serves the page. Everything else goes to Moonlark as it came, byte for byte: as
/// if the name under which the page was got had been made to lead there.
struct Front {
    port: u16,
    tell_port: u16,
    leads: mpsc::Sender<String>,
    told: mpsc::Receiver<Value>,
}

impl Front {
    fn open() -> Front {
        let (page, tells) = (listener(), listener());
        let (port, tell_port) = (port(&page), port(&tells));
        let (leads, to) = mpsc::channel::<String>();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let Ok(address) = to.recv() else { return };
            for client in page.incoming().map_while(Result::ok) {
                let address = address.clone();
                std::thread::spawn(move || serve(client, &address));
            }
        });
        std::thread::spawn(move || {
            for client in tells.incoming().map_while(Result::ok) {
                if tell.send(hear(client)).is_err() {
                    return;
                }
            }
        });
        Front { port, tell_port, leads, told }
    }

    fn lead_to(&self, address: &str) {
        self.leads.send(address.to_owned()).unwrap();
    }

    /// What the page says it could read.
    fn told(&self) -> Value {
        let told = self.told.recv_timeout(4 * PATIENCE).expect("the page says nothing");
        println!("{told:#}");
        told
    }
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn port(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

fn serve(mut client: TcpStream, address: &str) {
    let Some((head, rest)) = head(&mut client) else { return };
    if head.starts_with("GET /page?") {
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{PAGE}",
            PAGE.len()
        );
        let _ = client.write_all(answer.as_bytes());
        return;
    }
    let Ok(mut server) = TcpStream::connect(address) else { return };
    let _ = server.write_all(head.as_bytes()).and_then(|()| server.write_all(&rest));
    let (Ok(mut from), Ok(mut to)) = (client.try_clone(), server.try_clone()) else { return };
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let _ = std::io::copy(&mut server, &mut client);
    let _ = client.shutdown(std::net::Shutdown::Both);
}

/// What the page says in the end.
fn hear(mut client: TcpStream) -> Value {
    let (head, mut body) = head(&mut client).expect("a request");
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().unwrap())
    });
    let mut more = vec![0; length.unwrap().saturating_sub(body.len())];
    client.read_exact(&mut more).unwrap();
    body.extend(more);
    let _ = client.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    serde_json::from_slice(&body).unwrap()
}

/// The head of a request, and what came with it.
fn head(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    client.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let read = client.read(&mut part).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&part[..read]);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Some((String::from_utf8_lossy(&bytes).into_owned(), rest));
        }
        assert!(bytes.len() < 1 << 20);
    }
}

/// Ends with the test.
struct Browser {
    child: Child,
    _home: tempfile::TempDir,
}

impl Browser {
    fn open(url: &str) -> Browser {
        let script = repo().join("tests/browser/install.sh");
        let check = Command::new("sh").arg(script).arg("--check").output().unwrap();
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
        let installed = repo().join("target/browser");
        let home = tempfile::tempdir().unwrap();
        let child = Command::new(installed.join("chromium"))
            .args(["--headless", "--no-sandbox", "--no-zygote"])
            .args(["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--no-proxy-server", "--remote-debugging-port=0"])
            .arg("--host-resolver-rules=MAP *.example 127.0.0.1")
            .arg(format!("--user-data-dir={}", home.path().display()))
            .arg(url)
            .env("LD_LIBRARY_PATH", installed.join("lib"))
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        Browser { child, _home: home }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It is several processes.
        // SAFETY: a system call with plain numbers.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}
