//! Both ways of a call in a session, which answer the same, and what happens to a call on the
//! short one.

use axum::body::HttpBody;
use moonlark_core::Tool;
use moonlark_gateway::tool_body::ToolBody;
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_server::session::SessionManager;
use serde_json::{Value as Json, json};
use tokio::sync::{Notify, mpsc};
use tower::ServiceExt;

use super::super::tests::{
    app_until, app_with_tools, in_pieces, initialize, post, post_request, read_on, whole_text,
};
use super::*;
use crate::mcp::session_call_cases::{
    CasePath, OLD_VERSIONS, case_call, case_tool, case_tools, session_call_cases,
};
use crate::router::HttpApp;

/// What a test waits for, and tells, while a call is in progress.
#[derive(Default)]
struct CallStage {
    begun: Notify,
    go: Notify,
}

/// Sends when the call is over: whether it came to its end.
struct CallWatch(mpsc::UnboundedSender<bool>, bool);

impl Drop for CallWatch {
    fn drop(&mut self) {
        let _ = self.0.send(self.1);
    }
}

/// A tool that waits for its cue, and what comes of its calls.
fn staged_tool(stage: &Arc<CallStage>) -> (Arc<Tool>, mpsc::UnboundedReceiver<bool>) {
    let (sender, ends) = mpsc::unbounded_channel();
    let stage = stage.clone();
    let body = ToolBody::from_async_fn(move |_, args| {
        let (stage, mut watch) = (stage.clone(), CallWatch(sender.clone(), false));
        async move {
            stage.begun.notify_one();
            stage.go.notified().await;
            watch.1 = true;
            drop(watch);
            Ok(args)
        }
    });
    (case_tool("wait", body), ends)
}

/// A session of a client that can be asked.
async fn begin_session(app: &HttpApp, version: &str) -> String {
    let mut message = initialize(json!(0));
    message["params"]["protocolVersion"] = version.into();
    message["params"]["capabilities"]["elicitation"] = json!({});
    let (_, session, _) = post(app, None, message.to_string().into()).await;
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(post(app, session.as_deref(), ready.to_string().into()).await.0, 202);
    session.unwrap()
}

/// Both ways of a request: a body of unknown length is never taken the short one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum RequestWay {
    Short,
    Sdk,
}

async fn send(
    app: &HttpApp,
    session: &str,
    version: &str,
    message: &Json,
    way: RequestWay,
) -> Response {
    let text = message.to_string();
    let body = match way {
        RequestWay::Short => Body::from(text),
        RequestWay::Sdk => in_pieces(&text),
    };
    let mut request = post_request(Some(session), body);
    request.headers_mut().insert("mcp-protocol-version", version.parse().unwrap());
    app.clone().oneshot(request).await.unwrap()
}

/// Everything that a client gets, with the same names of streams for all.
async fn received(response: Response) -> (u16, Vec<(String, String)>, String) {
    let head = response.status().as_u16();
    let headers = response.headers().iter();
    let mut headers: Vec<_> = headers
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    headers.sort();
    let lines = whole_text(response.into_body()).await;
    let lines = lines.lines().map(|line| match line.strip_prefix("id: ") {
        Some(id) => format!("id: NAME-{}", id.rsplit_once('-').unwrap().1),
        None => line.to_owned(),
    });
    (head, headers, lines.collect::<Vec<_>>().join("\n"))
}

#[tokio::test]
async fn the_short_way_in_a_session_answers_as_the_sdk_does_for_every_version() {
    for version in OLD_VERSIONS {
        let app = app_with_tools(case_tools());
        let session = begin_session(&app, version).await;
        for (path, message) in session_call_cases() {
            let response = send(&app, &session, version, &message, RequestWay::Short).await;
            let is_whole = response.body().size_hint().exact().is_some();
            match path {
                CasePath::Short => assert!(is_whole, "{version}: {message}"),
                CasePath::ShortAndSlow => {
                    assert_eq!(is_whole, version < "2025-11-25", "{version}: {message}");
                }
                CasePath::Interrupted => assert!(!is_whole, "{version}: {message}"),
                CasePath::Sdk => {}
            }
            let short = received(response).await;
            let by_sdk = send(&app, &session, version, &message, RequestWay::Sdk).await;
            assert_eq!(short, received(by_sdk).await, "{version}: {message}");
        }
    }
}

#[tokio::test]
async fn only_requests_of_an_open_session_with_plain_headers_go_the_short_way() {
    let app = app_with_tools(case_tools());
    let session = begin_session(&app, "2025-06-18").await;
    let message = case_call(2, "same");
    let short_of = |session: &str, name: &'static str, value: &str| {
        let mut request = post_request(Some(session), Body::from(message.to_string()));
        request.headers_mut().append(name, value.parse().unwrap());
        request
    };
    let is_whole = async |request: Request| {
        let response = app.clone().oneshot(request).await.unwrap();
        response.status() == StatusCode::OK && response.body().size_hint().exact().is_some()
    };
    assert!(is_whole(short_of(&session, "x-any", "1")).await);
    for (name, value) in [
        ("mcp-protocol-version", "2030-01-01"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-session-id", "other"),
        ("accept", "*/*"),
        ("content-type", "text/plain"),
    ] {
        assert!(!is_whole(short_of(&session, name, value)).await, "{name}: {value}");
    }
    let unknown = begin_session(&app_with_tools(case_tools()), "2025-06-18").await;
    assert!(!is_whole(short_of(&unknown, "x-any", "1")).await, "another process's");
}

/// The events of a stream as they come.
fn events(response: Response) -> impl Stream<Item = String> + Unpin {
    Box::pin(response.into_body().into_data_stream().map(|it| {
        let event = String::from_utf8(it.unwrap().to_vec()).unwrap();
        assert!(event.ends_with("\n\n"), "{event}");
        event
    }))
}

fn data(event: &str) -> Json {
    let line = event.lines().find_map(|line| line.strip_prefix("data: {")).unwrap();
    serde_json::from_str(&format!("{{{line}")).unwrap()
}

#[tokio::test]
async fn a_question_and_the_answer_to_the_call_come_on_one_stream_both_ways() {
    for version in OLD_VERSIONS {
        let app = app_with_tools(case_tools());
        let session = begin_session(&app, version).await;
        for way in [RequestWay::Short, RequestWay::Sdk] {
            let response = send(&app, &session, version, &case_call(5, "ask"), way).await;
            let mut events = events(response);
            if version >= "2025-11-25" {
                let first = events.next().await.unwrap();
                assert!(first.starts_with("data: \nid: "), "{first}");
            }
            let question = events.next().await.unwrap();
            assert_eq!(question.contains("\nid: "), version >= "2025-11-25", "{question}");
            let question = data(&question);
            assert_eq!(question["method"], "elicitation/create", "{version} {way:?}");
            let answer = json!({"action": "accept", "content": {"way": 1}});
            let answered =
                json!({"jsonrpc": "2.0", "id": question["id"], "result": answer.clone()});
            assert_eq!(post(&app, Some(&session), answered.to_string().into()).await.0, 202);
            let ended = data(&events.next().await.unwrap());
            assert_eq!(ended["result"]["structuredContent"], answer, "{version} {way:?}");
            assert_eq!((&ended["id"], events.next().await), (&json!(5), None));
        }
    }
}

#[tokio::test]
async fn what_a_call_logs_comes_on_the_sessions_own_stream_both_ways() {
    let app = app_with_tools(case_tools());
    let session = begin_session(&app, "2025-06-18").await;
    let listening = Request::get("/mcp")
        .header("host", "localhost")
        .header("accept", "text/event-stream")
        .header("mcp-session-id", &session)
        .body(Body::empty())
        .unwrap();
    let mut own = events(app.clone().oneshot(listening).await.unwrap());
    let mut logged = Vec::new();
    for way in [RequestWay::Short, RequestWay::Sdk] {
        received(send(&app, &session, "2025-06-18", &case_call(5, "log"), way).await).await;
        logged.push(own.next().await.unwrap());
    }
    assert!(logged[0].contains("\"data\":\"much\""), "{logged:?}");
    assert_eq!(data(&logged[0]), data(&logged[1]));
    // And what is less severe than the session wants is not said.
    let level = json!({"jsonrpc": "2.0", "id": 9, "method": "logging/setLevel",
        "params": {"level": "error"}});
    assert_eq!(post(&app, Some(&session), level.to_string().into()).await.0, 200);
    received(send(&app, &session, "2025-06-18", &case_call(5, "log"), RequestWay::Short).await)
        .await;
    assert!(futures::poll!(own.next()).is_pending());
}

#[tokio::test]
async fn a_call_that_is_cancelled_ends_without_an_answer_and_its_id_is_free_again() {
    for version in OLD_VERSIONS {
        let stage = Arc::new(CallStage::default());
        let (tool, mut ends) = staged_tool(&stage);
        let app = app_with_tools(vec![tool]);
        let session = begin_session(&app, version).await;
        let other = begin_session(&app, version).await;
        let cancel = |id: u64| {
            let params = json!({"requestId": id, "reason": "enough"});
            let message =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
            Body::from(message.to_string())
        };
        let waiting = case_call(7, "wait");
        let ended = tokio::join!(
            async {
                received(send(&app, &session, version, &waiting, RequestWay::Short).await).await
            },
            async {
                stage.begun.notified().await;
                // Neither another session's nor another id's.
                post(&app, Some(&other), cancel(7)).await;
                post(&app, Some(&session), cancel(8)).await;
                assert!(ends.try_recv().is_err());
                assert_eq!(post(&app, Some(&session), cancel(7)).await.0, 202);
            }
        )
        .0;
        assert_eq!(ended.0, 200);
        assert!(!ended.2.contains("jsonrpc"), "{}", ended.2);
        assert_eq!(ends.recv().await, Some(false), "{version}");
        stage.go.notify_one();
        let again =
            received(send(&app, &session, version, &waiting, RequestWay::Short).await).await;
        assert!(again.2.contains("\"id\":7,\"result\""), "{}", again.2);
    }
}

#[tokio::test]
async fn a_call_goes_on_when_its_client_is_gone_and_ends_with_its_session() {
    for version in OLD_VERSIONS {
        let stage = Arc::new(CallStage::default());
        let (tool, mut ends) = staged_tool(&stage);
        let app = app_with_tools(vec![tool]);
        let session = begin_session(&app, version).await;
        let begin = async |id: u64| {
            let message = case_call(id, "wait");
            let asking = async {
                received(send(&app, &session, version, &message, RequestWay::Short).await).await
            };
            // Whoever reads is dropped when the call is in progress.
            tokio::select! {
                _ = asking => unreachable!("the tool waits"),
                () = stage.begun.notified() => {}
            }
        };
        begin(7).await;
        stage.go.notify_one();
        assert_eq!(ends.recv().await, Some(true), "{version}");
        begin(8).await;
        let end = Request::delete("/mcp")
            .header("host", "localhost")
            .header("mcp-session-id", &session)
            .body(Body::empty())
            .unwrap();
        assert_eq!(app.clone().oneshot(end).await.unwrap().status(), StatusCode::NO_CONTENT);
        assert_eq!(ends.recv().await, Some(false), "{version}");
        let late = send(&app, &session, version, &case_call(9, "wait"), RequestWay::Short).await;
        assert_eq!(late.status(), StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn a_request_whose_id_is_in_progress_is_refused_both_ways() {
    let stage = Arc::new(CallStage::default());
    let (tool, _ends) = staged_tool(&stage);
    let app = app_with_tools(vec![tool]);
    let session = begin_session(&app, "2025-06-18").await;
    let message = case_call(7, "wait");
    for way in [RequestWay::Short, RequestWay::Sdk] {
        let first =
            async { received(send(&app, &session, "2025-06-18", &message, way).await).await };
        let (first, ()) = tokio::join!(first, async {
            stage.begun.notified().await;
            for second in [RequestWay::Short, RequestWay::Sdk] {
                let refused = send(&app, &session, "2025-06-18", &message, second).await;
                let refused = received(refused).await.2;
                assert!(refused.contains("with the same id is still in progress"), "{refused}");
            }
            stage.go.notify_one();
        });
        assert!(first.2.contains("\"id\":7,\"result\""), "{}", first.2);
    }
}

#[tokio::test]
async fn whoever_has_read_an_answer_may_use_its_id_again_at_once() {
    for version in OLD_VERSIONS {
        let app = app_with_tools(case_tools());
        let session = begin_session(&app, version).await;
        for way in [RequestWay::Short, RequestWay::Sdk].repeat(10) {
            let response = send(&app, &session, version, &case_call(3, "later"), way).await;
            let mut events = events(response);
            while !events.next().await.unwrap().contains("structuredContent") {}
        }
    }
}

#[tokio::test]
async fn an_answer_that_was_whole_can_be_read_again_from_2025_11_25_on() {
    let app = app_with_tools(case_tools());
    let session = begin_session(&app, "2025-11-25").await;
    for way in [RequestWay::Short, RequestWay::Sdk] {
        let response = send(&app, &session, "2025-11-25", &case_call(3, "same"), way).await;
        let text = whole_text(response.into_body()).await;
        let (priming, answer) = text.split_once("\n\n").unwrap();
        let first = priming.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
        let (status, again) = read_on(&app, &session, first).await;
        assert_eq!((status, whole_text(again).await.as_str()), (200, answer), "{way:?}");
    }
}

#[tokio::test]
async fn the_sdk_can_be_told_that_a_session_is_in_use_for_as_long_as_it_is_open() {
    let stop = CancellationToken::new();
    let sessions = McpSessions::new(crate::SessionVault::in_memory(), stop);
    let (id, mut transport) = sessions.create_session().await.unwrap();
    let answer = json!({"jsonrpc": "2.0", "id": "first", "result": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "serverInfo": {"name": "a", "version": "1"},
    }});
    let answering = async {
        transport.receive().await.unwrap();
        transport.send(serde_json::from_value(answer).unwrap()).await.unwrap();
    };
    let begin = serde_json::from_value(initialize(json!(0))).unwrap();
    let (begun, ()) = tokio::join!(sessions.initialize_session(&id, begin), answering);
    begun.unwrap();
    assert!(sessions.tell_sdk_of_use(&id).await);
    sessions.close_session(&id).await.unwrap();
    assert!(!sessions.tell_sdk_of_use(&id).await);
}

#[tokio::test]
async fn a_server_that_stops_answers_calls_in_progress_and_ends_the_streams_that_only_listen() {
    for version in OLD_VERSIONS {
        for way in [RequestWay::Short, RequestWay::Sdk] {
            let (stage, stop) = (Arc::new(CallStage::default()), CancellationToken::new());
            let (tool, _ends) = staged_tool(&stage);
            let app = app_until(vec![tool], stop.clone());
            let session = begin_session(&app, version).await;
            let listening = Request::get("/mcp")
                .header("host", "localhost")
                .header("accept", "text/event-stream")
                .header("mcp-session-id", &session)
                .body(Body::empty())
                .unwrap();
            let listening = app.clone().oneshot(listening).await.unwrap();
            assert_eq!(listening.status(), StatusCode::OK, "{version}");
            let message = case_call(7, "wait");
            let answering = async {
                let response = send(&app, &session, version, &message, way).await;
                whole_text(response.into_body()).await
            };
            let stopping = async {
                stage.begun.notified().await;
                stop.cancel();
                whole_text(listening.into_body()).await;
                stage.go.notify_one();
            };
            let (answer, ()) = tokio::join!(answering, stopping);
            assert!(answer.contains("\"result\""), "{version} {way:?}: {answer}");
        }
    }
}
