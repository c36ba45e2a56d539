//! Lines on standard input and output, and what can be wrong with them.

use std::io::{self, BufRead, Write};
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::calls;
use crate::server::{Reply, Server};

pub const FAULTS: &[&str] = &[
    "asks",
    "batch",
    "close",
    "duplicate",
    "flood",
    "garbage",
    "half",
    "huge",
    "late",
    "text_id",
    "unended",
    "wrong_id",
    "zeros",
];

/// How many notifications make a flood.
const FLOOD: usize = 1_000_000;

struct Line {
    server: Arc<Server>,
    /// The end of input is not the end.
    stays: AtomicBool,
}

pub async fn serve(server: Arc<Server>) {
    let stays = AtomicBool::new(server.mode == "deaf");
    let line = Arc::new(Line { server, stays });
    tokio::spawn(say(line.clone()));
    let reading = line.clone();
    tokio::task::spawn_blocking(move || read(&reading)).await.unwrap();
    if line.stays.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
}

/// Until the end of input. Answers come in any order; none waits for another.
fn read(line: &Arc<Line>) {
    for text in io::stdin().lock().lines().map_while(Result::ok) {
        let message = serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON: {text}"));
        Handle::current().spawn(take(line.clone(), message));
    }
}

async fn say(line: Arc<Line>) {
    let mut says = line.server.says.subscribe();
    while let Ok(message) = says.recv().await {
        let _ = line.send(&message);
    }
}

async fn take(line: Arc<Line>, message: Value) {
    let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else {
        return line.server.hear(&message);
    };
    let reply = line.server.answer(method, &message["params"]).await;
    let done = match reply {
        Reply::Fault(fault, right) => {
            let right = line.server.message(*right, id).unwrap_or_default();
            misbehave(&line, &fault, right, &message["params"]["arguments"]).await
        }
        reply => match line.server.message(reply, id) {
            Some(message) => line.send(&message),
            None => Ok(()),
        },
    };
    // Nobody reads any more.
    if done.is_err() && !line.stays.load(Ordering::SeqCst) {
        exit(0);
    }
}

/// `right` is what the answer should have been.
async fn misbehave(line: &Line, fault: &str, right: Value, args: &Value) -> io::Result<()> {
    let with_id = |id: Value| {
        let mut answer = right.clone();
        answer["id"] = id;
        answer
    };
    match fault {
        "garbage" => {
            for garbage in GARBAGE {
                line.raw(garbage.as_bytes())?;
            }
            line.send(&right)
        }
        "wrong_id" => {
            for wrong in [json!(4_000_000_000_u32), json!(-1), json!(null), json!([]), json!(1.5)] {
                line.send(&with_id(wrong))?;
            }
            Ok(())
        }
        "text_id" => line.send(&with_id(json!(right["id"].to_string()))),
        "duplicate" => {
            let mut second = right.clone();
            second["result"] = json!({"content": [{"type": "text", "text": "second"}]});
            line.send(&right)?;
            line.send(&second)
        }
        "batch" => line.send(&json!([calls::said("in a batch"), right])),
        "half" => {
            let text = right.to_string();
            line.raw(&text.as_bytes()[..text.len() / 2])?;
            exit(0)
        }
        "unended" => {
            // The whole answer, but its line is never ended.
            line.raw(right.to_string().as_bytes())?;
            exit(0)
        }
        "close" => {
            line.stays.store(true, Ordering::SeqCst);
            // SAFETY: two numbers; whoever uses them here gets an error.
            unsafe { libc::close(0) };
            // SAFETY: nothing of this process writes to stdout afterwards.
            unsafe { libc::close(1) };
            Ok(())
        }
        "huge" => huge(&right["id"], args),
        "zeros" => zeros(&right["id"], args),
        "flood" => {
            flood(line, args)?;
            line.send(&right)
        }
        // When the call is over, and so in nobody's.
        "late" => {
            line.send(&right)?;
            line.send(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": args}))
        }
        "asks" => {
            asks(line, args).await?;
            line.send(&right)
        }
        other => panic!("no fault {other}"),
    }
}

const GARBAGE: &[&str] = &[
    "\n",
    "Server started on stdio\n",
    "{\n",
    "}\n",
    "\"text\"\n",
    "5\n",
    "null\n",
    "[]\n",
    "[5]\n",
    "{}\n",
    "{\"level\":\"info\",\"message\":\"a line for some log\"}\n",
    "{\"jsonrpc\":\"1.0\",\"id\":1}\n",
    "{\"jsonrpc\":\"2.0\",\"method\":5}\n",
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/none\",\"params\":5}\n",
    "\u{0}\u{1}\u{1b}[31m\n",
];

/// A hundred megabytes in one line. With `late`, the id comes after them.
fn huge(id: &Value, args: &Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let (head, tail) = match args["late"].as_bool() {
        Some(true) => (String::new(), format!(",\"id\":{id}")),
        _ => (format!("\"id\":{id},"), String::new()),
    };
    let start = "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"";
    out.write_all(format!("{{\"jsonrpc\":\"2.0\",{head}{start}").as_bytes())?;
    for _ in 0..1000 {
        out.write_all(&[b'x'; 100_000])?;
    }
    out.write_all(format!("\"}}]}}{tail}}}\n").as_bytes())?;
    out.flush()
}

/// As many zeros as `count` says, in a list that takes far more memory than its text.
fn zeros(id: &Value, args: &Value) -> io::Result<()> {
    let count = args["count"].as_u64().unwrap_or(7_500_000) as usize;
    let zeros = "0,".repeat(count - 1);
    let answer = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[],\"structuredContent\":{{\"zeros\":[{zeros}0]}}}}}}\n"
    );
    let mut out = io::stdout().lock();
    out.write_all(answer.as_bytes())?;
    out.flush()
}

/// A million notifications of the given kind.
fn flood(line: &Line, args: &Value) -> io::Result<()> {
    let method = args["method"].as_str().unwrap_or("notifications/message");
    let params = args.get("params").cloned().unwrap_or(json!({"level": "info", "data": "flood"}));
    let one = format!("{}\n", json!({"jsonrpc": "2.0", "method": method, "params": params}));
    let many = one.repeat(1000);
    for _ in 0..FLOOD / 1000 {
        line.raw(many.as_bytes())?;
    }
    Ok(())
}

/// As many requests of our own at once as `count` says, and, with `wait`, their
/// answers.
async fn asks(line: &Line, args: &Value) -> io::Result<()> {
    let count = args["count"].as_u64().unwrap_or(1) as usize;
    let before = line.server.heard.load(Ordering::SeqCst);
    for number in 0..count {
        let id = format!("ask-{number}");
        line.send(&json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"}))?;
    }
    while args["wait"] == true && line.server.heard.load(Ordering::SeqCst) < before + count {
        line.server.hears.notified().await;
    }
    Ok(())
}

impl Line {
    fn send(&self, message: &Value) -> io::Result<()> {
        self.raw(format!("{message}\n").as_bytes())
    }

    /// Waits as long as nobody reads: there are threads enough.
    fn raw(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }
}
