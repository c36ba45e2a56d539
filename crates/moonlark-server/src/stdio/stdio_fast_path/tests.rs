use moonlark_core::schema::Schema;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::{Catalog, Tool};
use moonlark_gateway::Gateway;
use moonlark_gateway::tool_body::ToolBody;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};

use super::*;
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
