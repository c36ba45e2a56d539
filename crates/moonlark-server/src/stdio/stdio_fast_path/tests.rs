use moonlark_core::schema::Schema;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::{Catalog, Tool};
use moonlark_gateway::Gateway;
use moonlark_gateway::tool_body::ToolBody;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::mcp::session_call_cases::{
    CasePath, OLD_VERSIONS, case_call, case_tools, session_call_cases,
};
use crate::principal::Principal;

/// Tools that answer with their arguments, and that never do.
fn gateway() -> Gateway {
    let source = Arc::new(Source { kind: SourceKind::Script, name: "a".to_owned() });
    let tool = |name: &str, body| {
        let schema = Schema::description_only(serde_json::Map::new());
        Arc::new(Tool::new(name, source.clone(), schema, body))
    };
    let same = tool("same", ToolBody::from_fn(|_, args| Ok(args)));
    let never = tool("never", ToolBody::from_async_fn(|_, _| std::future::pending()));
    Gateway::new(Catalog::new(Arc::default(), vec![same, never], &[], vec![]), 10)
}

/// A client, and what reaches the SDK of what it says.
struct Scene {
    client: DuplexStream,
    answers: BufReader<DuplexStream>,
    sdk: BufReader<PlainCallFilter<DuplexStream, DuplexStream>>,
    short: Arc<StdioFastPath<DuplexStream>>,
}

fn scene() -> Scene {
    let (client, input) = duplex(1 << 20);
    let (output, answers) = duplex(1 << 20);
    let short = StdioFastPath::new(
        McpServer::new(gateway(), Principal::local()),
        SharedOutput::new(output, Arc::default()),
    );
    short.open.store(true, Ordering::Release);
    let sdk = BufReader::new(PlainCallFilter::new(input, short.clone()));
    Scene { client, answers: BufReader::new(answers), sdk, short }
}

impl Scene {
    async fn say(&mut self, text: &str) {
        self.client.write_all(text.as_bytes()).await.unwrap();
    }

    async fn passed(&mut self) -> String {
        let mut line = String::new();
        self.sdk.read_line(&mut line).await.unwrap();
        line
    }

    async fn answer(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.answers.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

fn call(id: usize, name: &str) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"name": name, "arguments": {"n": id}, "_meta": meta});
    let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    format!("{message}\n")
}

#[tokio::test]
async fn plain_calls_are_answered_and_everything_else_goes_on_as_it_came() {
    let mut scene = scene();
    let list = "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}\r\n";
    let old =
        "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/call\",\"params\":{\"name\":\"same\"}}\n";
    let (first, last) = (call(1, "same"), call(4, "same"));
    scene.say(&format!("{first}{list}\n{old}no JSON\n{last}end\nhalf")).await;
    scene.client.shutdown().await.unwrap();
    for line in [list, "\n", old, "no JSON\n", "end\n", "half", ""] {
        assert_eq!(scene.passed().await, line);
    }
    let mut ids = [scene.answer().await, scene.answer().await].map(|answer| {
        assert_eq!(answer["result"]["structuredContent"]["n"], answer["id"]);
        answer["id"].as_u64()
    });
    ids.sort_unstable();
    assert_eq!(ids, [Some(1), Some(4)]);
}

#[tokio::test]
async fn lines_that_come_in_parts_are_whole_and_long_ones_go_on_in_parts() {
    let mut scene = scene();
    let whole = call(1, "same");
    let (one, other) = whole.split_at(40);
    scene.say(one).await;
    // There is half a line: nothing to go on with.
    assert!(futures::poll!(Box::pin(scene.sdk.fill_buf())).is_pending());
    scene.say(other).await;
    let long = call(2, &"x".repeat(3 * MAX_PLAIN_LINE_BYTES));
    scene.say(&long).await;
    scene.say(&call(3, "same")).await;
    scene.say("end\n").await;
    assert_eq!(scene.passed().await, long);
    assert_eq!(scene.passed().await, "end\n");
    assert_eq!(scene.answer().await["id"], 1);
    assert_eq!(scene.answer().await["id"], 3);
}

#[tokio::test]
async fn a_call_that_is_called_off_ends_and_has_no_answer() {
    let mut scene = scene();
    let cancelled = |id: usize| {
        let params = json!({ "requestId": id });
        let method = "notifications/cancelled";
        format!("{}\n", json!({"jsonrpc": "2.0", "method": method, "params": params}))
    };
    let unknown = cancelled(9);
    scene.say(&format!("{}{unknown}{}end\n", call(1, "never"), cancelled(1))).await;
    assert_eq!(scene.passed().await, unknown, "it is the SDK's");
    assert_eq!(scene.passed().await, "end\n");
    scene.short.wait_finished().await;
    assert!(scene.short.tasks.is_empty() && scene.short.running.lock().is_empty());
    let Scene { sdk, short, mut answers, .. } = scene;
    drop((sdk, short));
    let mut rest = Vec::new();
    answers.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn before_the_first_request_everything_is_the_sdks() {
    let mut scene = scene();
    scene.short.open.store(false, Ordering::Release);
    let first = call(1, "same");
    scene.say(&first).await;
    assert_eq!(scene.passed().await, first);
}

#[tokio::test]
async fn json_that_is_no_message_is_refused_in_words() {
    for is_open in [false, true] {
        let mut scene = scene();
        scene.short.open.store(is_open, Ordering::Release);
        let ping = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
        for (line, id, expected) in [
            (
                format!("[{ping}]"),
                serde_json::Value::Null,
                "batches are not supported: send each message in a request of its own",
            ),
            (
                r#"{"jsonrpc":"2.0","id":3}"#.to_owned(),
                json!(3),
                "method must be a string, where a message is no answer",
            ),
            ("7".to_owned(), serde_json::Value::Null, "a message must be an object, got a number"),
        ] {
            scene.say(&format!("{line}\n{ping}\nno JSON\n\n")).await;
            for passed in [ping, "no JSON", ""] {
                assert_eq!(scene.passed().await, format!("{passed}\n"));
            }
            let answer = scene.answer().await;
            assert_eq!((&answer["id"], &answer["error"]["message"]), (&id, &json!(expected)));
        }
    }
}

#[tokio::test]
async fn calls_of_a_session_are_the_sdks_until_its_client_knows_of_it() {
    let mut scene = scene();
    let old = format!("{}\n", case_call(1, "same"));
    scene.say(&old).await;
    assert_eq!(scene.passed().await, old);
    scene.short.has_session.store(true, Ordering::Release);
    for (path, message) in session_call_cases() {
        let line = format!("{message}\n");
        scene.say(&format!("{line}end\n")).await;
        // What is no message is nobody's.
        let is_message = message["jsonrpc"] == "2.0" && !message["id"].is_object();
        let is_sdks = path == CasePath::Sdk && is_message;
        let expected = if is_sdks { line } else { "end\n".to_owned() };
        assert_eq!(scene.passed().await, expected);
        if is_sdks {
            assert_eq!(scene.passed().await, "end\n");
        }
    }
}

/// A client of an old version over pipes.
struct OldClient {
    to_server: DuplexStream,
    from_server: tokio::io::Lines<BufReader<DuplexStream>>,
    _serving: tokio_util::task::AbortOnDropHandle<()>,
}

impl OldClient {
    async fn connect(version: &str) -> OldClient {
        let (to_server, input) = duplex(1 << 20);
        let (output, from_server) = duplex(1 << 20);
        let gateway = Gateway::new(Catalog::new(Arc::default(), case_tools(), &[], vec![]), 10);
        let serving = crate::serve_lines(gateway, input, output, CancellationToken::new());
        let _serving = moonlark_child::spawn_owned(async { serving.await.unwrap() });
        let from_server = BufReader::new(from_server).lines();
        let mut client = OldClient { to_server, from_server, _serving };
        let params = json!({
            "protocolVersion": version,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "suite", "version": "1"},
        });
        let begin = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        client.say(&begin.to_string()).await;
        assert!(client.next_line().await.contains(version));
        client.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        client
    }

    async fn say(&mut self, line: &str) {
        self.to_server.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn next_line(&mut self) -> String {
        self.from_server.next_line().await.unwrap().unwrap()
    }

    /// All that is said until the request is answered.
    async fn ask(&mut self, message: &serde_json::Value, way: PipeWay) -> Vec<String> {
        let text = message.to_string();
        match way {
            PipeWay::Short => self.say(&text).await,
            // Longer lines are the SDK's.
            PipeWay::Sdk => {
                let space = " ".repeat(MAX_PLAIN_LINE_BYTES);
                self.say(&format!("{{{space}{}", &text[1..])).await;
            }
        }
        let mut said = Vec::new();
        loop {
            let line = self.next_line().await;
            let is_answer =
                line.contains(&format!("\"id\":{}", message["id"])) && !line.contains("\"method\"");
            if line.contains("elicitation/create") {
                let mut asked: serde_json::Value = serde_json::from_str(&line).unwrap();
                // It has a number that counts questions.
                asked["params"].as_object_mut().unwrap().remove("_meta");
                let answer = json!({"action": "accept", "content": {"way": 1}});
                let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer});
                self.say(&answer.to_string()).await;
                said.push(asked["params"].to_string());
            } else {
                said.push(line);
            }
            if is_answer {
                return said;
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum PipeWay {
    Short,
    Sdk,
}

#[tokio::test]
async fn the_short_way_over_pipes_answers_as_the_sdk_does_for_every_version() {
    for version in OLD_VERSIONS {
        let mut client = OldClient::connect(version).await;
        let cases = session_call_cases().into_iter().filter(|(path, _)| *path != CasePath::Sdk);
        for message in cases.map(|it| it.1).chain([case_call(9, "ask")]) {
            let short = client.ask(&message, PipeWay::Short).await;
            let by_sdk = client.ask(&message, PipeWay::Sdk).await;
            assert_eq!(short, by_sdk, "{version}: {message}");
        }
    }
}

#[tokio::test]
async fn a_client_that_sends_everything_at_once_reads_of_its_session_first() {
    for round in 0..20 {
        let (mut to_server, input) = duplex(1 << 20);
        let (output, from_server) = duplex(1 << 20);
        let gateway = Gateway::new(Catalog::new(Arc::default(), case_tools(), &[], vec![]), 10);
        let serving = crate::serve_lines(gateway, input, output, CancellationToken::new());
        let _serving = moonlark_child::spawn_owned(async { serving.await.unwrap() });
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "suite", "version": "1"}});
        let begin = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let all = format!("{begin}\n{}\n{}\n", case_call(1, "same"), case_call(2, "later"));
        to_server.write_all(all.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(from_server).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        assert!(first.contains("protocolVersion"), "{round}: {first}");
        for _ in 0..2 {
            let answer = lines.next_line().await.unwrap().unwrap();
            assert!(answer.contains("structuredContent"), "{round}: {answer}");
        }
    }
}
