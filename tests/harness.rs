//! A project in a temporary folder, a server on a free port, the ways in.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::oneshot;

/// How long anything may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at something that no event tells of.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Poll until `ask` gives something, for what no event tells of.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let started = Instant::now();
    loop {
        match ask() {
            Ok(found) => return found,
            Err(last) if started.elapsed() > PATIENCE => panic!("{what} never came: {last}"),
            Err(_) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Poll until it is so.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    eventually(what, || if done() { Ok(()) } else { Err("it is not so".to_owned()) });
}

/// A tool that only reads, and leaves a file `looked-…` each time it is called.
pub const LOOK: &str = r#"
tool = { name = "look", description = "Look", annotations = { read_only = true } }
function tool.execute()
    fs.write(`looked-{crypto.uuid()}`, "")
    return "seen"
end
"#;

/// The repository.
pub fn repo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The binary under test.
pub fn moonlark() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moonlark"));
    command.env_remove("MOONLARK_LOG").env("NO_COLOR", "1").env("HOME", "/nonexistent");
    command.env_remove("XDG_CONFIG_HOME");
    command
}

/// Whether the test `name` has its process for itself, as it has with nextest, so that
/// memory and the like of the process are its own. Where tests share a process, as with
/// `cargo test`, the test is run in another one and this is false once it has passed.
pub fn is_own_process(name: &str) -> bool {
    const RUN_ALONE: &str = "MOONLARK_TEST_RUNS_ALONE";
    let process_per_test =
        std::env::var("NEXTEST_EXECUTION_MODE").is_ok_and(|mode| mode == "process-per-test");
    if process_per_test || std::env::var_os(RUN_ALONE).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .env(RUN_ALONE, "1")
        .output()
        .unwrap();
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    println!("{said}");
    assert!(output.status.success(), "it failed in a process of its own");
    assert!(said.contains("1 passed"), "no test is called {name}");
    false
}

/// A project folder that goes away with the test.
pub struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    pub fn new(files: &[(&str, &str)]) -> Project {
        let project = Project { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(project.path("tools")).unwrap();
        for (name, text) in files {
            project.write(name, text);
        }
        project
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Write a file the way careful editors do: beside it, then rename.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let aside = path.with_extension("tmp~");
        std::fs::write(&aside, text).unwrap();
        std::fs::rename(aside, path).unwrap();
    }

    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.path(name)).unwrap();
    }

    /// Run a command of the binary in this project to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        moonlark().args(args).current_dir(self.dir.path()).stdin(Stdio::null()).output().unwrap()
    }

    pub fn serve(&self) -> Server {
        self.serve_with(&[], &[])
    }

    pub fn serve_with(&self, args: &[&str], env: &[(&str, &str)]) -> Server {
        Server::start(
            moonlark()
                .args(["serve", "--port", "0"])
                .args(args)
                .envs(env.iter().copied())
                .current_dir(self.dir.path()),
        )
    }

    /// An MCP session over stdin and stdout.
    pub fn stdio(&self) -> StdioClient {
        let mut child = moonlark()
            .arg("stdio")
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        StdioClient { child, stdin, lines: Log::follow(stdout), next: 0 }
    }
}

/// Lines of a child's output, as they come.
pub struct Log {
    /// Behind a lock, so that a server can be shared by the threads of a test.
    lines: Mutex<mpsc::Receiver<String>>,
}

impl Log {
    pub fn follow(output: impl Read + Send + 'static) -> Log {
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        Log { lines: Mutex::new(lines) }
    }

    /// The next line, or a panic when there is none in time.
    pub fn next(&self) -> String {
        self.lines.lock().unwrap().recv_timeout(PATIENCE).expect("a line of output")
    }

    /// All lines that are left of an output that has ended.
    pub fn rest(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        let next = || lines.recv_timeout(PATIENCE);
        let rest = std::iter::from_fn(|| match next() {
            Ok(line) => Some(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the output never ended"),
        });
        rest.collect()
    }

    /// The next line that contains `text`.
    pub fn wait_for(&self, text: &str) -> String {
        let started = Instant::now();
        let mut seen = Vec::new();
        while started.elapsed() < PATIENCE {
            match self.lines.lock().unwrap().recv_timeout(Duration::from_secs(1)) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => seen.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
        panic!("no line with {text:?}; got:\n{}", seen.join("\n"));
    }
}

pub struct Server {
    child: Child,
    pub address: String,
    pub log: Log,
}

impl Server {
    /// Run a command that serves, until it listens.
    pub fn start(command: &mut Command) -> Server {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Log::follow(child.stderr.take().unwrap());
        let line = log.wait_for("listening on http://");
        let address = line.split("http://").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        Server { child, address, log }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// End it without warning.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// End it. Everything that it has logged and nobody has read yet.
    pub fn stop_and_read_log(mut self) -> String {
        self.kill();
        self.log.rest().join("\n")
    }

    /// Ask it to stop, and wait until it has.
    #[cfg(unix)]
    pub fn stop(&mut self) {
        // SAFETY: the process is our child and was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) }, 0);
        self.child.wait().unwrap();
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// `POST /tools/{name}`: status and body.
    pub fn post(&self, tool: &str, args: &Value) -> (u16, Value) {
        let answer = self.request(
            "POST",
            &format!("/tools/{tool}"),
            &[("Content-Type", "application/json")],
            args.to_string().as_bytes(),
        );
        (answer.status, answer.json())
    }

    /// Call a tool until the answer is as wanted.
    pub fn wait_until(&self, tool: &str, wanted: impl Fn(u16, &Value) -> bool) {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let (status, answer) = self.post(tool, &json!({}));
            if wanted(status, &answer) {
                return;
            }
            // The server needs the processor to get there.
            std::thread::sleep(POLL_INTERVAL);
        }
        panic!("{tool} never changed as wanted");
    }

    pub fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], b"")
    }

    /// One request on a connection of its own, byte for byte as given.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        request(&self.address, method, path, headers, body)
    }

    /// A modern MCP request, which needs nothing before it.
    pub fn mcp(&self, method: &str, params: Value) -> Value {
        mcp(&self.address, &[], method, params)
    }
}

/// The same to a server of any kind.
pub fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses early closes while we still write.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Answer::parse(&answer)
}

/// The same to a server of any kind, with further headers.
pub fn mcp(address: &str, more: &[(&str, &str)], method: &str, params: Value) -> Value {
    let name = params["name"].as_str().or(params["uri"].as_str()).map(str::to_owned);
    let body = modern(1, method, params).to_string();
    let mut headers = vec![
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", method),
    ];
    headers.extend(name.as_deref().map(|name| ("Mcp-Name", name)));
    headers.extend(more);
    let answer = request(address, "POST", "/mcp", &headers, body.as_bytes());
    // A call that said something is answered as a stream of events.
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let last = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .rfind(|data| data.contains("\"id\":1"));
    serde_json::from_str(last.unwrap_or(&text)).unwrap_or_else(|_| panic!("not JSON: {text}"))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A step of a story, and what it is called.
pub type Step<'a, W> = (&'a str, fn(&mut W));

/// One story in steps, for a world that is costly to make. One that fails does
/// not keep the others from being tried.
pub fn go_through<W>(world: &mut W, steps: &[Step<'_, W>]) {
    let failed: Vec<&str> = steps
        .iter()
        .filter(|(name, step)| {
            let started = Instant::now();
            let ended = catch_unwind(AssertUnwindSafe(|| step(world)));
            println!("{name}: {:?}", started.elapsed());
            ended.is_err()
        })
        .map(|(name, _)| *name)
        .collect();
    assert!(failed.is_empty(), "failed: {failed:#?}");
}

/// A request of protocol version 2026-07-28.
pub fn modern(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    params["_meta"]["io.modelcontextprotocol/clientInfo"] =
        json!({"name": "suite", "version": "1"});
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Answer {
        let end = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .unwrap_or_else(|| panic!("no HTTP answer: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut body = bytes[end + 4..].to_vec();
        if headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked") {
            body = unchunk(&body);
        }
        Answer { status, headers, body }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.text()))
    }
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let size =
            usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap().trim(), 16).unwrap();
        if size == 0 || body.len() < end + 2 + size {
            break;
        }
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[(end + 4 + size).min(body.len())..];
    }
    whole
}

/// An MCP session over stdin and stdout.
pub struct StdioClient {
    child: Child,
    stdin: Option<std::process::ChildStdin>,
    lines: Log,
    next: u64,
}

impl StdioClient {
    pub fn send_raw(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.flush().unwrap();
    }

    /// Send a modern request and wait for its answer; notifications are passed over.
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        self.send_raw(format!("{}\n", modern(id, method, params)).as_bytes());
        self.answer(id)
    }

    pub fn answer(&self, id: u64) -> Value {
        loop {
            let message: Value =
                serde_json::from_str(&self.lines.next()).expect("only JSON on stdout");
            if message["id"] == json!(id) {
                return message;
            }
        }
    }

    /// The next message of any kind.
    pub fn message(&self) -> Value {
        serde_json::from_str(&self.lines.next()).expect("only JSON on stdout")
    }

    /// Close stdin and wait for the end.
    pub fn close(mut self) -> i32 {
        drop(self.stdin.take());
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One HTTP request as it came, up to the end of its body.
pub fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        let mut chunk = [0; 65536];
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

/// Serve on a thread of its own, until what is returned is dropped.
pub fn serve_inside(router: axum::Router) -> (std::net::SocketAddr, oneshot::Sender<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let (ends, end) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            tokio::select! {
                served = async { axum::serve(listener, router).await } => served.unwrap(),
                _ = end => {}
            }
        });
    });
    (address, ends)
}
