//! Streamable HTTP after the opening, with servers of both eras.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use super::StreamableHttpTransport;
use crate::connection::{McpRequestOptions, ProtocolEra};
use crate::http_endpoint::HttpEndpoint;
use crate::json_rpc::RequestFailure;
use crate::mcp_testing::{Asked, Ear, Server, event, events, limits, object, reply, soon, stream};
use crate::rpc_session::RpcSession;
use moonlark_core::secret::SecretText;
use moonlark_http::RequestAuthorizer;

struct Scene {
    server: Server,
    http: Arc<StreamableHttpTransport>,
    inbox: Arc<Ear>,
}

/// A server, and a connection to it that is past its opening.
async fn scene<F, R>(era: ProtocolEra, auth: Option<Arc<dyn RequestAuthorizer>>, answer: F) -> Scene
where
    F: Fn(Asked) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = axum::response::Response> + Send,
{
    let server = Server::start(answer).await;
    let inbox = Ear::new();
    let own = [("x-key".to_owned(), SecretText::new("k"))].into();
    let site = HttpEndpoint::new("web", &server.url, &own, auth).unwrap();
    let http =
        StreamableHttpTransport::new(RpcSession::new("web", limits(), inbox.clone()), site, era);
    match era {
        ProtocolEra::Modern => http.set_protocol_version("2026-07-28"),
        ProtocolEra::Legacy => {
            http.set_protocol_version("2025-11-25");
            http.session.set("s1".parse().unwrap()).unwrap();
        }
    }
    Scene { server, http, inbox }
}

impl Scene {
    async fn ask(&self, method: &str, params: Json) -> Result<Object, RequestFailure> {
        soon(self.http.send_request(method, object(params), McpRequestOptions::default())).await
    }

    fn ask_later(
        &self,
        about: McpRequestOptions,
    ) -> tokio::task::JoinHandle<Result<Object, RequestFailure>> {
        let http = self.http.clone();
        tokio::spawn(async move { http.send_request("tools/call", Object::new(), about).await })
    }
}

fn lost(outcome: Result<Object, RequestFailure>) -> Problem {
    match outcome {
        Err(RequestFailure::Lost(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_modern_request_says_in_its_headers_what_it_is_about() {
    let scene =
        scene(ProtocolEra::Modern, None, |asked: Asked| async move { asked.result(json!({})) })
            .await;
    scene.ask("tools/call", json!({"name": "größe"})).await.unwrap();
    scene.ask("resources/read", json!({"uri": "file:///a b"})).await.unwrap();
    scene.ask("tasks/get", json!({"taskId": "t1"})).await.unwrap();
    scene.ask("tools/list", json!({})).await.unwrap();
    let headers = vec![("Mcp-Param-Region".to_owned(), "eu".to_owned())];
    let about = McpRequestOptions { headers, ..McpRequestOptions::default() };
    soon(scene.http.send_request("prompts/get", object(json!({"name": "p"})), about))
        .await
        .unwrap();
    let seen: Vec<String> = scene
        .server
        .asked()
        .iter()
        .map(|asked| {
            assert_eq!(asked.header("mcp-protocol-version"), "2026-07-28");
            assert_eq!(asked.header("accept"), "application/json, text/event-stream");
            assert_eq!(asked.header("x-key"), "k");
            let region = asked.header("mcp-param-region");
            format!("{} {} {region}", asked.header("mcp-method"), asked.header("mcp-name"))
        })
        .collect();
    assert_eq!(
        seen,
        [
            "tools/call =?base64?Z3LDtsOfZQ==?= ",
            "resources/read file:///a b ",
            "tasks/get t1 ",
            "tools/list  ",
            "prompts/get p eu"
        ]
    );
}

#[tokio::test]
async fn what_comes_on_a_requests_stream_is_for_its_listener() {
    let scene = scene(ProtocolEra::Legacy, None, |asked: Asked| async move {
        if asked.body["method"] != "tools/call" {
            return reply(202, &[], &Json::Null);
        }
        let id = &asked.body["id"];
        events(&[
            ": hello\n\n",
            &event(
                &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": 1}}),
            ),
            "event: message\ndata: what is this?\n\n",
            &event(
                &json!({"jsonrpc": "2.0", "id": format!("q{id}"), "method": "elicitation/create"}),
            ),
            &event(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})),
            &event(&json!({"jsonrpc": "2.0", "id": 12345, "result": {}})),
            &event(&json!({"jsonrpc": "2.0", "id": id, "result": {"done": true}})),
        ])
    })
    .await;
    let (ear, other) = (Ear::new(), Ear::new());
    let result = soon(scene.http.send_request("tools/call", Object::new(), ear.about(1))).await;
    assert_eq!(result, Ok(object(json!({"done": true}))));
    // Two at once: still, each stream is its own.
    let (one, two) = (scene.ask_later(ear.about(1)), scene.ask_later(other.about(2)));
    soon(one).await.unwrap().unwrap();
    soon(two).await.unwrap().unwrap();
    ear.until(4).await;
    other.until(2).await;
    let mut heard = other.heard();
    heard.sort();
    assert_eq!(heard, [r#"- notifications/message {"n":1}"#, "? elicitation/create {}"]);
    assert_eq!(scene.inbox.count(), 3);
    let answer = scene.server.until(|asked| asked.body["result"].is_object()).await;
    let expected = json!({"jsonrpc": "2.0", "id": "q1", "result": {"to": "elicitation/create"}});
    assert_eq!(answer.body, expected);
    assert_eq!(answer.header("mcp-session-id"), "s1");
    assert_eq!(scene.http.rpc_session().in_flight_count(), 0);
}

#[tokio::test]
async fn a_standing_request_hears_all_that_is_for_it() {
    let (sender, receiver) = mpsc::channel(8);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let scene = scene(ProtocolEra::Modern, None, move |_| {
        let events = receiver.lock().take().unwrap();
        async move { stream(events) }
    })
    .await;
    let ear = Ear::new();
    let http = scene.http.clone();
    let about = ear.about(0);
    let listening = tokio::spawn(async move {
        http.send_request("subscriptions/listen", Object::new(), about).await
    });
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    sender.send(event(&changed)).await.unwrap();
    ear.until(1).await;
    assert_eq!(ear.heard(), ["- notifications/tools/list_changed {}"]);
    assert_eq!(scene.http.rpc_session().in_flight_count(), 1);
    // Nobody listens any more: the server notices by the connection.
    listening.abort();
    soon(sender.closed()).await;
    assert_eq!(scene.http.rpc_session().in_flight_count(), 0);
    assert_eq!(scene.server.lines(), ["POST subscriptions/listen"]);
}

#[tokio::test]
async fn a_legacy_request_that_is_dropped_is_called_off() {
    let scene = scene(ProtocolEra::Legacy, None, |asked: Asked| async move {
        match asked.body["method"].as_str() {
            Some("tools/call") => std::future::pending().await,
            _ => reply(202, &[], &Json::Null),
        }
    })
    .await;
    let asked = scene.ask_later(McpRequestOptions::default());
    scene.server.until(|asked| asked.body["method"] == "tools/call").await;
    asked.abort();
    let told = scene.server.until(|asked| asked.body["method"] == "notifications/cancelled").await;
    assert_eq!(told.body["params"], json!({"requestId": 1}));
}

#[tokio::test]
async fn a_stream_without_ids_that_breaks_off_is_lost_at_once() {
    for era in [ProtocolEra::Modern, ProtocolEra::Legacy] {
        let scene = scene(era, None, |_| async {
            events(&[&event(&json!({"jsonrpc": "2.0", "method": "notifications/x"}))])
        })
        .await;
        let problem = lost(scene.ask("tools/call", json!({})).await);
        assert_eq!(problem.message, "upstream 'web' ended its stream without an answer");
        assert_eq!(scene.server.lines(), ["POST tools/call"]);
    }
}

#[tokio::test]
async fn a_legacy_stream_with_ids_is_taken_up_where_it_broke_off() {
    let gets = Arc::new(AtomicUsize::new(0));
    let scene = scene(ProtocolEra::Legacy, None, move |asked: Asked| {
        let count = gets.clone();
        async move {
            if asked.method == "POST" {
                return events(&["id: e1\nretry: 10\ndata: \n\n"]);
            }
            match count.fetch_add(1, Ordering::Relaxed) {
                0 => reply(503, &[], &Json::Null),
                1 => events(&["id: e2\ndata: \n\n"]),
                _ => events(&[&event(&json!({"jsonrpc": "2.0", "id": 1, "result": {"ok": 1}}))]),
            }
        }
    })
    .await;
    let start = Instant::now();
    assert_eq!(scene.ask("tools/call", json!({})).await, Ok(object(json!({"ok": 1}))));
    assert!(start.elapsed() >= Duration::from_millis(30), "{:?}", start.elapsed());
    let seen: Vec<_> = scene
        .server
        .asked()
        .iter()
        .map(|asked| format!("{} {}", asked.line(), asked.header("last-event-id")))
        .collect();
    assert_eq!(seen, ["POST tools/call ", "GET  e1", "GET  e1", "GET  e2"]);
}

#[tokio::test]
async fn a_stream_that_never_goes_on_is_given_up() {
    let scene =
        scene(ProtocolEra::Legacy, None, |_| async { events(&["id: e1\nretry: 1\ndata: \n\n"]) })
            .await;
    lost(scene.ask("tools/call", json!({})).await);
    assert_eq!(scene.server.lines().len(), 11);
}

#[tokio::test]
async fn an_answer_on_the_servers_own_stream_counts_too() {
    let (sender, receiver) = mpsc::channel(8);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let scene = scene(ProtocolEra::Legacy, None, move |asked: Asked| {
        let receiver = receiver.clone();
        async move {
            match asked.method.as_str() {
                "GET" => stream(receiver.lock().take().unwrap()),
                _ => std::future::pending().await,
            }
        }
    })
    .await;
    soon(scene.http.open_listening_stream()).await;
    let ear = Ear::new();
    let asked = scene.ask_later(ear.about(1));
    scene.server.until(|asked| asked.body["method"] == "tools/call").await;
    sender
        .send(event(&json!({"jsonrpc": "2.0", "method": "notifications/message"})))
        .await
        .unwrap();
    sender.send(event(&json!({"jsonrpc": "2.0", "id": 1, "result": {}}))).await.unwrap();
    assert_eq!(soon(asked).await.unwrap(), Ok(Object::new()));
    assert_eq!(ear.heard(), ["- notifications/message {}"]);
    // It ends with the connection.
    soon(scene.http.close_connection(crate::ClosePace::Gentle)).await;
    soon(sender.closed()).await;
}

#[tokio::test]
async fn a_session_that_the_server_forgot_ends_the_connection() {
    let gone = json!({"code": -32001, "message": "Session not found"});
    let bad = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
    for (status, error) in [(404, gone), (400, bad)] {
        let scene = scene(ProtocolEra::Legacy, None, move |_| {
            let body = json!({"jsonrpc": "2.0", "id": null, "error": error});
            async move { reply(status, &[], &body) }
        })
        .await;
        let outcome = scene.ask("tools/call", json!({})).await;
        assert!(matches!(outcome, Err(RequestFailure::NotSent(_))), "{outcome:?}");
        let why = soon(scene.http.rpc_session().wait_closed()).await;
        assert_eq!(why.message, "upstream 'web' ended the session");
    }
}

#[tokio::test]
async fn an_error_in_a_refused_request_is_the_servers_answer() {
    for (era, status) in [
        (ProtocolEra::Modern, 400),
        (ProtocolEra::Modern, 404),
        (ProtocolEra::Legacy, 404),
        (ProtocolEra::Legacy, 500),
    ] {
        let scene = scene(era, None, move |asked: Asked| async move {
            asked.error(status, json!({"code": -32020, "message": "mismatch"}))
        })
        .await;
        match scene.ask("tools/call", json!({})).await {
            Err(RequestFailure::Refused(rpc)) => assert_eq!(rpc.code, -32020),
            other => panic!("{other:?}"),
        }
        assert!(scene.http.rpc_session().is_open());
    }
}

#[tokio::test]
async fn statuses_tell_whether_it_may_have_happened() {
    let at = |status: u16| async move {
        let headers: &[(&str, &str)] = &[("retry-after", "3")];
        let scene = scene(ProtocolEra::Modern, None, move |_| async move {
            reply(status, if status == 502 { &[] } else { headers }, &json!("oops"))
        })
        .await;
        scene.ask("tools/call", json!({})).await
    };
    match at(429).await {
        Err(RequestFailure::NotSent(problem)) => {
            assert_eq!((problem.code, problem.retry_after), (ProblemCode::RateLimited, Some(3)));
        }
        other => panic!("{other:?}"),
    }
    match at(503).await {
        Err(RequestFailure::NotSent(problem)) => assert_eq!(problem.retry_after, Some(3)),
        other => panic!("{other:?}"),
    }
    for status in [400, 404, 500, 502] {
        let problem = lost(at(status).await);
        assert!(problem.message.ends_with(": \"oops\""), "{problem}");
        assert_eq!(problem.is_retryable(), status >= 500);
    }
    for status in [202, 204] {
        lost(at(status).await);
    }
}

#[tokio::test]
async fn answers_over_the_limit_fail_their_request_only() {
    let scene = scene(ProtocolEra::Modern, None, |asked: Asked| async move {
        let text = "x".repeat(200_000);
        match asked.body["method"].as_str() {
            Some("json") => asked.result(json!({"text": text})),
            Some("events") => {
                let id = &asked.body["id"];
                events(&[&event(&json!({"result": {"text": text}, "id": id, "jsonrpc": "2.0"}))])
            }
            _ => asked.result(json!({})),
        }
    })
    .await;
    for method in ["json", "events"] {
        let problem = lost(scene.ask(method, json!({})).await);
        assert_eq!(problem.message, "upstream 'web' answered with more than 100000 bytes");
    }
    scene.ask("small", json!({})).await.unwrap();
}

#[tokio::test]
async fn only_the_same_server_may_send_us_on() {
    let scene = scene(ProtocolEra::Modern, None, |asked: Asked| async move {
        match (asked.path.as_str(), asked.body["method"].as_str()) {
            ("/mcp", Some("near")) => reply(307, &[("location", "/v2/mcp")], &Json::Null),
            ("/mcp", Some("far")) => {
                reply(308, &[("location", "http://evil.example/steal?x=1")], &Json::Null)
            }
            (_, Some("loop")) => reply(307, &[("location", "/mcp")], &Json::Null),
            ("/mcp", Some("other")) => reply(302, &[("location", "/v2/mcp")], &Json::Null),
            (path, _) => asked.result(json!({"path": path})),
        }
    })
    .await;
    assert_eq!(scene.ask("near", json!({})).await, Ok(object(json!({"path": "/v2/mcp"}))));
    match scene.ask("far", json!({})).await {
        Err(RequestFailure::NotSent(problem)) => assert_eq!(
            problem.message,
            "upstream 'web' redirects to http://evil.example, another origin: not followed"
        ),
        other => panic!("{other:?}"),
    }
    let before = scene.server.lines().len();
    assert!(matches!(scene.ask("loop", json!({})).await, Err(RequestFailure::NotSent(_))));
    assert_eq!(scene.server.lines().len() - before, 4);
    lost(scene.ask("other", json!({})).await);
}

/// Tokens `t0`, `t1`, …: a new one after every challenge, up to `most`.
struct Tokens {
    current: AtomicUsize,
    most: usize,
    challenges: Mutex<Vec<String>>,
}

impl RequestAuthorizer for Tokens {
    fn authorization_header(&self) -> BoxFuture<'_, Result<Option<SecretText>, Problem>> {
        let token = format!("Bearer t{}", self.current.load(Ordering::Relaxed));
        Box::pin(async { Ok(Some(SecretText::new(token))) })
    }
    fn handle_challenge(
        &self,
        status: u16,
        www_authenticate: Option<String>,
    ) -> BoxFuture<'_, Result<bool, Problem>> {
        self.challenges.lock().push(format!("{status} {}", www_authenticate.unwrap_or_default()));
        let next = self.current.fetch_add(1, Ordering::Relaxed) + 1;
        Box::pin(async move { Ok(next <= self.most) })
    }
}

#[tokio::test]
async fn a_challenge_is_met_once_and_then_it_is_a_problem() {
    let ask = |good: &'static str, most| async move {
        let tokens =
            Arc::new(Tokens { current: AtomicUsize::new(0), most, challenges: Mutex::default() });
        let scene =
            scene(ProtocolEra::Modern, Some(tokens.clone()), move |asked: Asked| async move {
                if asked.header("authorization") == good {
                    asked.result(json!({}))
                } else {
                    reply(401, &[("www-authenticate", "Bearer x=1")], &Json::Null)
                }
            })
            .await;
        let outcome = scene.ask("tools/list", json!({})).await;
        let challenges = tokens.challenges.lock().clone();
        (outcome, challenges, scene.server.lines().len())
    };
    assert_eq!(ask("Bearer t0", 9).await, (Ok(Object::new()), vec![], 1));
    let challenges = vec!["401 Bearer x=1".to_owned()];
    assert_eq!(ask("Bearer t1", 9).await, (Ok(Object::new()), challenges.clone(), 2));
    for (most, requests) in [(0, 1), (9, 2)] {
        let (outcome, seen, count) = ask("Bearer t9", most).await;
        assert_eq!((&seen, count), (&challenges, requests));
        match outcome {
            Err(RequestFailure::Unauthorized(problem)) => {
                assert_eq!(
                    problem.hint.as_deref(),
                    Some("renew its token, or run: moonlark login web")
                );
            }
            other => panic!("{other:?}"),
        }
    }
}
