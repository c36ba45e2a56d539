//! A client, servers that end, and what each of them gets to read.

use std::collections::VecDeque;

use serde_json::{Value as Json, json};
use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};

use super::*;

/// One end of a conversation, for the test.
struct End {
    read: BufReader<ReadHalf<DuplexStream>>,
    write: WriteHalf<DuplexStream>,
}

impl End {
    fn new(stream: DuplexStream) -> End {
        let (read, write) = split(stream);
        End { read: BufReader::new(read), write }
    }

    async fn says(&mut self, message: Json) {
        self.write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn hears(&mut self) -> Json {
        let mut line = String::new();
        self.read.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn hears_nothing_more(&mut self) {
        let mut rest = String::new();
        self.read.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "");
    }
}

/// A client at a bridge with as many servers, one after the other.
fn scene(servers: usize) -> (End, Vec<End>, tokio::task::JoinHandle<Result<()>>) {
    let (client, stdio) = duplex(1 << 16);
    let (ends, backends): (Vec<End>, VecDeque<BridgeBackend>) = (0..servers)
        .map(|_| {
            let (ours, theirs) = duplex(1 << 16);
            let (read, write) = split(theirs);
            (End::new(ours), BridgeBackend::new(read, write))
        })
        .unzip();
    let mut backends = backends;
    let first = backends.pop_front().unwrap();
    let (read, write) = split(stdio);
    let task = tokio::spawn(bridge_client(read, write, first, async move || {
        backends.pop_front().ok_or_else(|| moonlark_core::Problem::unavailable("no server is left"))
    }));
    (End::new(client), ends, task)
}

fn request(id: u32, method: &str) -> Json {
    json!({"jsonrpc": "2.0", "id": id, "method": method})
}

fn answer(id: u32, result: Json) -> Json {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn notification(method: &str) -> Json {
    json!({"jsonrpc": "2.0", "method": method})
}

#[tokio::test]
async fn messages_go_both_ways_and_a_client_that_leaves_hears_nothing_more() {
    let (mut client, mut servers, task) = scene(1);
    client.says(request(1, "ping")).await;
    assert_eq!(servers[0].hears().await, request(1, "ping"));
    servers[0].says(answer(1, json!({}))).await;
    assert_eq!(client.hears().await, answer(1, json!({})));
    client.says(request(2, "tools/call")).await;
    assert_eq!(servers[0].hears().await, request(2, "tools/call"));
    client.write.shutdown().await.unwrap();
    // The server still has the connection, and an answer: nobody reads it.
    task.await.unwrap().unwrap();
    servers[0].hears_nothing_more().await;
    let late = format!("{}\n", answer(2, json!(1)));
    let _ = servers[0].write.write_all(late.as_bytes()).await;
    client.hears_nothing_more().await;
}

#[tokio::test]
async fn a_script_that_pipes_all_its_requests_in_gets_all_answers() {
    let (mut client, mut servers, task) = scene(1);
    client.says(request(1, "initialize")).await;
    client.says(request(2, "tools/call")).await;
    client.write.shutdown().await.unwrap();
    assert_eq!(servers[0].hears().await, request(1, "initialize"));
    assert_eq!(servers[0].hears().await, request(2, "tools/call"));
    for id in [1, 2] {
        servers[0].says(answer(id, json!(id))).await;
        assert_eq!(client.hears().await, answer(id, json!(id)));
    }
    servers[0].hears_nothing_more().await;
    client.hears_nothing_more().await;
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_session_goes_on_with_the_next_server() {
    let (mut client, mut servers, task) = scene(2);
    let level = json!({"jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": {"level": "info"}});
    let watch = |id: u32, uri: &str| json!({"jsonrpc": "2.0", "id": id, "method": "resources/subscribe", "params": {"uri": uri}});
    let unwatch = json!({"jsonrpc": "2.0", "id": 5, "method": "resources/unsubscribe", "params": {"uri": "a:b"}});
    let capabilities = json!({"capabilities": {"tools": {"listChanged": true}, "prompts": {}}});
    for (asked, answered) in [
        (request(1, "initialize"), Some(answer(1, capabilities.clone()))),
        (notification("notifications/initialized"), None),
        (level.clone(), Some(answer(2, json!({})))),
        (watch(3, "a:a"), Some(answer(3, json!({})))),
        (watch(4, "a:b"), Some(answer(4, json!({})))),
        (unwatch, Some(answer(5, json!({})))),
    ] {
        client.says(asked.clone()).await;
        assert_eq!(servers[0].hears().await, asked);
        if let Some(answered) = answered {
            servers[0].says(answered.clone()).await;
            assert_eq!(client.hears().await, answered);
        }
    }
    // A call in progress may have happened; a list can be asked for again.
    client.says(request(6, "tools/call")).await;
    client.says(request(7, "tools/list")).await;
    servers[0].hears().await;
    servers[0].hears().await;
    drop(servers.remove(0));
    let lost = client.hears().await;
    assert_eq!(lost["id"], 6);
    assert_eq!(
        lost["error"]["message"],
        "the Moonlark server has ended while tools/call was in progress: it may have happened, and was not repeated"
    );
    let next = &mut servers[0];
    for expected in [
        request(1, "initialize"),
        notification("notifications/initialized"),
        level,
        watch(3, "a:a"),
        request(7, "tools/list"),
    ] {
        assert_eq!(next.hears().await, expected);
    }
    assert_eq!(client.hears().await, notification("notifications/tools/list_changed"));
    // The client has had these answers.
    for id in [1, 2, 3] {
        next.says(answer(id, json!({}))).await;
    }
    next.says(answer(7, json!({"tools": []}))).await;
    assert_eq!(client.hears().await, answer(7, json!({"tools": []})));
    client.write.shutdown().await.unwrap();
    next.hears_nothing_more().await;
    drop(servers);
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_question_of_a_server_that_is_gone_is_taken_back() {
    let (mut client, mut servers, task) = scene(2);
    let question = request(0, "elicitation/create");
    servers[0].says(question.clone()).await;
    assert_eq!(client.hears().await, question);
    drop(servers.remove(0));
    let taken_back = client.hears().await;
    assert_eq!(taken_back["method"], "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], 0);
    // The next server numbers its own from the beginning.
    servers[0].says(question.clone()).await;
    let asked = client.hears().await;
    assert_eq!(asked["method"], "elicitation/create");
    assert_ne!(asked["id"], 0);
    client.says(answer(0, json!("late"))).await;
    client.says(json!({"jsonrpc": "2.0", "id": asked["id"], "result": "in time"})).await;
    assert_eq!(servers[0].hears().await, answer(0, json!("in time")));
    client.write.shutdown().await.unwrap();
    servers[0].hears_nothing_more().await;
    drop(servers);
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn when_no_server_is_left_it_says_so() {
    let (mut client, servers, task) = scene(1);
    drop(servers);
    client.hears_nothing_more().await;
    assert_eq!(task.await.unwrap().unwrap_err().message, "no server is left");
}
