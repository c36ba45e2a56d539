//! Connections over pipes, with servers of every kind at the other end.

use std::sync::Arc;

use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::{
    ExitRequest, OutgoingPipe, RpcSession, StdioTransport, read_messages, spawn_with_end_signal,
    wait_hung_up,
};
use crate::connection::{McpRequestOptions, McpTransport};
use crate::json_rpc::{RequestFailure, RpcError};
use crate::mcp_testing::{Ear, Fake, limits, object, pair, soon};
use crate::upstream_target::McpConnectionLimits;

fn connect() -> (Arc<StdioTransport>, Fake, Arc<Ear>) {
    let inbox = Ear::new();
    let (stdio, fake) = pair(inbox.clone(), limits());
    (Arc::new(stdio), fake, inbox)
}

/// A request in the background.
fn ask(
    stdio: &Arc<StdioTransport>,
    method: &str,
    about: McpRequestOptions,
) -> tokio::task::JoinHandle<Result<Object, RequestFailure>> {
    let (stdio, method) = (stdio.clone(), method.to_owned());
    tokio::spawn(async move { stdio.send_request(&method, Object::new(), about).await })
}

async fn works(stdio: &Arc<StdioTransport>, fake: &mut Fake) {
    let asked = ask(stdio, "still/there", McpRequestOptions::default());
    let request = fake.next().await;
    assert_eq!(request["method"], "still/there", "{request}");
    fake.answer(&request, json!({"yes": true})).await;
    assert_eq!(soon(asked).await.unwrap(), Ok(object(json!({"yes": true}))));
}

fn lost(outcome: Result<Object, RequestFailure>) -> Problem {
    match outcome {
        Err(RequestFailure::Lost(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

impl StdioTransport {
    /// Over any two pipes.
    pub(crate) fn over_pipes(
        conversation: Arc<RpcSession>,
        from: impl AsyncRead + Send + Unpin + 'static,
        to: impl AsyncWrite + Send + Unpin + 'static,
    ) -> StdioTransport {
        let outgoing = OutgoingPipe::new(to);
        let reading = read_messages(Arc::clone(&conversation), Arc::clone(&outgoing), from);
        let writing = Arc::clone(&outgoing).write_pending();
        let farewell = ExitRequest::default();
        let gone = spawn_with_end_signal({
            let (conversation, outgoing) = (Arc::clone(&conversation), Arc::clone(&outgoing));
            let farewell = farewell.clone();
            async move {
                tokio::select! {
                    () = wait_hung_up(reading, writing) => {}
                    _ = farewell.wait_step_timeout() => {}
                    _ = conversation.wait_closed() => {}
                }
                outgoing.close_pipe();
                let name = conversation.name();
                conversation.close_with(Problem::unavailable(format!(
                    "upstream '{name}' closed the connection"
                )));
            }
        });
        StdioTransport { conversation, outgoing, farewell, gone }
    }
}

#[tokio::test]
async fn requests_do_not_wait_for_each_other() {
    let (stdio, mut fake, _) = connect();
    let asked: Vec<_> =
        (0..50).map(|n| ask(&stdio, &format!("m{n}"), McpRequestOptions::default())).collect();
    let mut requests = Vec::new();
    for _ in 0..50 {
        requests.push(fake.next().await);
    }
    assert_eq!(stdio.rpc_session().in_flight_count(), 50);
    for request in requests.iter().rev() {
        fake.answer(request, json!({"method": request["method"]})).await;
    }
    for (n, answer) in asked.into_iter().enumerate() {
        let expected = object(json!({"method": format!("m{n}")}));
        assert_eq!(soon(answer).await.unwrap(), Ok(expected));
    }
    assert_eq!(stdio.rpc_session().in_flight_count(), 0);
}

#[tokio::test]
async fn an_error_is_the_servers_answer() {
    let (stdio, mut fake, _) = connect();
    let asked = ask(&stdio, "a", McpRequestOptions::default());
    let request = fake.next().await;
    fake.refuse(&request, json!({"code": -5, "message": "no", "data": [1]})).await;
    let data = Some(vec![1].into_iter().map(i64::from).collect::<Vec<_>>().into());
    let rpc = RpcError { code: -5, message: "no".into(), data };
    assert_eq!(soon(asked).await.unwrap(), Err(RequestFailure::Refused(rpc)));
}

#[tokio::test]
async fn garbage_is_not_answered_and_ends_nothing() {
    let (stdio, mut fake, inbox) = connect();
    let asked = ask(&stdio, "a", McpRequestOptions::default());
    let request = fake.next().await;
    for garbage in [
        "Server listening on stdio",
        "",
        "\u{1b}[32mok\u{1b}[0m",
        r#"{"level":"info","message":"started"}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"what","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":1"#,
        r#"{"jsonrpc":"2.0","method":"x","params":7}"#,
        "[",
        "[]",
        "null",
        r#"[1,{"jsonrpc":"2.0","id":98,"result":{}}]"#,
    ] {
        fake.say(garbage).await;
    }
    soon(fake.to.write_all(b"\xff\xfe\n")).await.unwrap();
    fake.answer(&request, json!({"n": 1})).await;
    // Twice, and once more in a batch with something else.
    fake.answer(&request, json!({"n": 2})).await;
    fake.say(r#"[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","method":"hello"}]"#).await;
    assert_eq!(soon(asked).await.unwrap(), Ok(object(json!({"n": 1}))));
    inbox.until(1).await;
    assert_eq!(inbox.heard(), ["- hello {}"]);
    // The next thing the server reads is the next request.
    works(&stdio, &mut fake).await;
}

#[tokio::test]
async fn an_answer_over_the_limit_fails_its_request_only() {
    let (stdio, mut fake, _) = connect();
    let (large, other) = (ask(&stdio, "large", McpRequestOptions::default()), fake.next().await);
    let text = "x".repeat(300_000);
    fake.answer(&other, json!({"text": text})).await;
    let problem = lost(soon(large).await.unwrap());
    assert_eq!(problem.code, ProblemCode::Limit);
    assert_eq!(problem.message, "upstream 'git' answered with more than 100000 bytes");
    works(&stdio, &mut fake).await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_fails_its_request_only() {
    let (stdio, mut fake, _) = connect();
    let (asked, request) = (ask(&stdio, "deep", McpRequestOptions::default()), fake.next().await);
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let id = &request["id"];
    fake.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"a":{deep}}}}}"#)).await;
    assert_eq!(lost(soon(asked).await.unwrap()).code, ProblemCode::Limit);
    works(&stdio, &mut fake).await;
}

#[tokio::test]
async fn the_end_of_the_stream_is_the_end_of_the_connection() {
    let (stdio, mut fake, inbox) = connect();
    let asked = ask(&stdio, "a", McpRequestOptions::default());
    fake.next().await;
    // A last message without the end of its line, and then the end.
    let last = br#"{"jsonrpc":"2.0","method":"bye"}"#;
    soon(fake.to.write_all(last)).await.unwrap();
    drop(fake);
    let message = "upstream 'git' closed the connection";
    assert_eq!(lost(soon(asked).await.unwrap()).message, message);
    assert_eq!(inbox.heard(), ["- bye {}"]);
    assert_eq!(soon(stdio.rpc_session().wait_closed()).await.message, message);
    assert!(!stdio.rpc_session().is_open());
    let refused = soon(stdio.send_request("b", Object::new(), McpRequestOptions::default())).await;
    assert!(matches!(refused, Err(RequestFailure::NotSent(_))), "{refused:?}");
    let refused = soon(stdio.send_notification("b")).await;
    assert!(matches!(refused, Err(RequestFailure::NotSent(_))), "{refused:?}");
}

#[tokio::test]
async fn half_a_message_at_the_end_is_none() {
    let (stdio, mut fake, _) = connect();
    let (asked, request) = (ask(&stdio, "a", McpRequestOptions::default()), fake.next().await);
    let half = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"#, request["id"]);
    soon(fake.to.write_all(half.as_bytes())).await.unwrap();
    drop(fake);
    lost(soon(asked).await.unwrap());
}

#[tokio::test]
async fn what_the_pipe_never_took_was_not_sent() {
    let (stdio, fake, _) = connect();
    // More than the pipe takes: the rest waits, and the next one behind it.
    let params = object(json!({"text": "x".repeat(90_000)}));
    let large = {
        let stdio = stdio.clone();
        tokio::spawn(async move {
            stdio.send_request("large", params, McpRequestOptions::default()).await
        })
    };
    while stdio.rpc_session().in_flight_count() < 1 {
        tokio::task::yield_now().await;
    }
    let small = ask(&stdio, "small", McpRequestOptions::default());
    while stdio.rpc_session().in_flight_count() < 2 {
        tokio::task::yield_now().await;
    }
    drop(fake);
    for asked in [large, small] {
        let outcome = soon(asked).await.unwrap();
        assert!(matches!(outcome, Err(RequestFailure::NotSent(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_is_called_off_and_its_late_answer_is_nothing() {
    let (stdio, mut fake, _) = connect();
    let (asked, request) = (ask(&stdio, "slow", McpRequestOptions::default()), fake.next().await);
    asked.abort();
    let cancelled = fake.next().await;
    assert_eq!(
        cancelled,
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request["id"]}})
    );
    assert_eq!(stdio.rpc_session().in_flight_count(), 0);
    fake.answer(&request, json!({})).await;
    works(&stdio, &mut fake).await;
}

#[tokio::test]
async fn progress_reaches_the_listener_of_its_request() {
    let (stdio, mut fake, inbox) = connect();
    let (one, two) = (Ear::new(), Ear::new());
    let first = ask(&stdio, "a", one.about(1));
    let a = fake.next().await;
    assert_eq!(a["params"]["_meta"]["progressToken"], a["id"]);
    let second = ask(&stdio, "b", two.about(2));
    let b = fake.next().await;
    for (request, n) in [(&b, 1), (&a, 2), (&b, 3)] {
        let params = json!({"progressToken": request["id"], "progress": n});
        let progress =
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        fake.say(&progress.to_string()).await;
    }
    // Whose is this? Nobody's in particular, as there are two owners.
    fake.say(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#).await;
    fake.say(r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create"}"#).await;
    let refusal = fake.next().await;
    assert_eq!(
        refusal,
        json!({"jsonrpc": "2.0", "id": "q", "error": {"code": -32603, "message": "cannot tell which call this belongs to"}})
    );
    fake.answer(&a, json!({})).await;
    fake.answer(&b, json!({})).await;
    soon(first).await.unwrap().unwrap();
    soon(second).await.unwrap().unwrap();
    assert_eq!(one.heard(), [r#"- notifications/progress {"progressToken":1,"progress":2}"#]);
    assert_eq!(two.count(), 2);
    assert_eq!(inbox.heard(), ["- notifications/message {}"]);
}

#[tokio::test]
async fn what_a_server_asks_is_put_to_the_only_one_it_can_be_for() {
    let (stdio, mut fake, inbox) = connect();
    // Nobody is there: it is ours to answer.
    fake.say(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#).await;
    assert_eq!(
        fake.next().await,
        json!({"jsonrpc": "2.0", "id": 1, "result": {"to": "roots/list"}})
    );
    assert_eq!(inbox.heard(), ["? roots/list {}"]);
    let ear = Ear::new();
    let (asked, request) = (ask(&stdio, "a", ear.about(1)), fake.next().await);
    fake.say(r#"{"jsonrpc":"2.0","id":"x","method":"sampling/createMessage","params":{"a":1}}"#)
        .await;
    assert_eq!(fake.next().await["result"]["to"], "sampling/createMessage");
    fake.say(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#).await;
    fake.say(r#"{"jsonrpc":"2.0","id":"y","method":"x","params":[1]}"#).await;
    assert_eq!(fake.next().await["error"]["code"], -32602);
    fake.say(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#).await;
    assert_eq!(fake.next().await, json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
    fake.answer(&request, json!({})).await;
    soon(asked).await.unwrap().unwrap();
    assert_eq!(ear.heard(), [r#"? sampling/createMessage {"a":1}"#]);
    assert_eq!(inbox.heard(), ["- notifications/tools/list_changed {}"]);
}

#[tokio::test]
async fn a_server_that_asks_without_end_is_told_that_it_is_too_much() {
    let inbox = Ear::silent();
    let (stdio, mut fake) = pair(inbox.clone(), limits());
    let stdio = Arc::new(stdio);
    for id in 0..200 {
        fake.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#)).await;
    }
    let refusal = fake.next().await;
    assert_eq!(refusal["error"]["message"], "too many requests at once");
    inbox.until(64).await;
    assert_eq!(inbox.count(), 64);
    // One is called off, and there is room for another.
    fake.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#)
        .await;
    drop(stdio);
}

#[tokio::test]
async fn a_server_may_call_off_what_it_asked() {
    let inbox = Ear::silent();
    let (stdio, mut fake) = pair(inbox.clone(), limits());
    let stdio = Arc::new(stdio);
    for round in 0..200 {
        let id = format!("\"r{round}\"");
        fake.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#)).await;
        let params = format!(r#"{{"requestId":{id}}}"#);
        let method = "notifications/cancelled";
        fake.say(&format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)).await;
    }
    // None of them is left in the way of the next.
    works(&stdio, &mut fake).await;
    assert!(inbox.count() <= 200);
}

#[tokio::test]
async fn a_server_that_gives_up_a_request_fails_it() {
    let (stdio, mut fake, _) = connect();
    let (asked, request) =
        (ask(&stdio, "subscriptions/listen", McpRequestOptions::default()), fake.next().await);
    let params = json!({"requestId": request["id"], "reason": "shutting down"});
    let method = "notifications/cancelled";
    fake.say(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await;
    let problem = lost(soon(asked).await.unwrap());
    assert_eq!(problem.message, "upstream 'git' ended the request by itself: shutting down");
}

#[tokio::test]
async fn a_flood_of_notifications_is_handed_on_as_it_comes() {
    struct Count(std::sync::atomic::AtomicUsize);
    impl crate::connection::ConnectionInbox for Count {
        fn secrets(&self) -> moonlark_core::secret::Secrets {
            Default::default()
        }
    }
    impl crate::connection::RequestListener for Count {
        fn on_notification(&self, _: &str, _: Object) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        fn on_request(
            &self,
            _: &str,
            _: Object,
        ) -> futures::future::BoxFuture<'_, Result<Object, RpcError>> {
            Box::pin(async { Ok(Object::new()) })
        }
    }
    let count = Arc::new(Count(Default::default()));
    let (ours, theirs) = tokio::io::duplex(1 << 20);
    let (from, to) = tokio::io::split(ours);
    let conversation = RpcSession::new("git", limits(), count.clone());
    let stdio = Arc::new(StdioTransport::over_pipes(conversation, from, to));
    let (from, mut to) = tokio::io::split(theirs);
    let mut fake = tokio::io::BufReader::new(from);
    let asked = ask(&stdio, "a", McpRequestOptions::default());
    let mut line = String::new();
    soon(tokio::io::AsyncBufReadExt::read_line(&mut fake, &mut line)).await.unwrap();
    let part =
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{\"n\":1}}\n".repeat(1000);
    for _ in 0..100 {
        soon(to.write_all(part.as_bytes())).await.unwrap();
    }
    soon(to.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n")).await.unwrap();
    soon(asked).await.unwrap().unwrap();
    // Nothing waits anywhere: all that came before the answer was handed on.
    assert_eq!(count.0.load(std::sync::atomic::Ordering::Relaxed), 100_000);
}

#[tokio::test]
async fn dropping_the_connection_ends_it() {
    let (stdio, mut fake) = pair(Ear::new(), limits());
    let carrier = McpTransport::Stdio(stdio);
    let conversation = carrier.rpc_session().clone();
    drop(carrier);
    assert_eq!(fake.next().await, json!(null));
    assert_eq!(
        soon(conversation.wait_closed()).await.message,
        "the connection to upstream 'git' was dropped"
    );
}

#[tokio::test]
async fn closing_it_tells_those_who_wait() {
    let (stdio, mut fake, _) = connect();
    let asked = ask(&stdio, "a", McpRequestOptions::default());
    fake.next().await;
    soon(stdio.close_connection(crate::ClosePace::Gentle)).await;
    lost(soon(asked).await.unwrap());
    assert_eq!(fake.next().await, json!(null));
}

#[tokio::test]
async fn a_limit_is_exactly_that() {
    let inbox = Ear::new();
    let line = r#"{"jsonrpc":"2.0","method":"fits"}"#;
    let (stdio, mut fake) =
        pair(inbox.clone(), McpConnectionLimits { message: line.len(), ..limits() });
    fake.say(&format!("{line} ")).await;
    fake.say(line).await;
    inbox.until(1).await;
    assert_eq!(inbox.heard().len(), 1);
    drop(stdio);
}
