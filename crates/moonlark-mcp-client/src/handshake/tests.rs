//! How connections begin, over pipes and over HTTP, with servers of either era
//! and with some of none.

use std::sync::Arc;
use std::time::Duration;

use moonlark_core::Problem;
use moonlark_core::value::Object;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use super::{McpHandshake, connect_transport};
use crate::connection::{McpPeer, McpRequestOptions, McpTransport, ProtocolEra};
use crate::mcp_testing::{self, Ear, Fake, limits, object, pair, reply, soon, us};
use crate::upstream_target::{McpConnectionLimits, McpTransportConfig, UpstreamTarget};

fn discovery() -> Json {
    json!({
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "instructions": "be kind",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "fake"}},
    })
}

fn introduction(version: &str) -> Json {
    let info = json!({"name": "fake", "version": "1"});
    json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
}

// --- over pipes ---------------------------------------------------------------

/// Open over pipes; every process that is started is handed to `server`.
async fn over_pipes<S>(
    era: Option<ProtocolEra>,
    limits: McpConnectionLimits,
    server: impl Fn(usize, Fake) -> S + Sync,
) -> Result<(McpTransport, McpPeer), Problem>
where
    S: Future<Output = ()> + Send + 'static,
{
    let transport = McpTransportConfig::Stdio {
        command: "fake".into(),
        args: vec!["--token=hunter22".into()],
        env: Default::default(),
        cwd: "/".into(),
    };
    let target = UpstreamTarget { name: "git".into(), transport, limits };
    let us = us();
    let opening = McpHandshake { target: &target, inbox: Ear::new(), us: &us };
    let started = Mutex::new(0);
    let start = || {
        let (stdio, fake) = pair(Ear::new(), limits);
        let mut count = started.lock();
        *count += 1;
        tokio::spawn(server(*count, fake));
        async { Ok(McpTransport::Stdio(stdio)) }
    };
    let opened = tokio::time::timeout(limits.connect, opening.connect_stdio(era, start)).await;
    opened.unwrap_or_else(|_| Err(super::connect_timeout_problem(&target)))
}

fn quick() -> McpConnectionLimits {
    McpConnectionLimits { connect: Duration::from_millis(500), ..limits() }
}

/// Half of it is spent waiting; the other half must be enough on a busy machine.
fn patient() -> McpConnectionLimits {
    McpConnectionLimits { connect: Duration::from_secs(6), ..limits() }
}

/// Answers `initialize`, takes `initialized`, and stays.
async fn legacy(fake: &mut Fake, version: &str) {
    let request = fake.next().await;
    assert_eq!(request["method"], "initialize", "{request}");
    fake.answer(&request, introduction(version)).await;
    assert_eq!(fake.next().await, json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
}

#[tokio::test]
async fn a_modern_server_is_asked_once_and_every_request_says_who_we_are() {
    let notes: Arc<Mutex<Vec<Json>>> = Arc::default();
    let seen = notes.clone();
    let opened = over_pipes(None, limits(), move |_, mut fake| {
        let notes = notes.clone();
        async move {
            for result in [discovery(), json!({"tools": []})] {
                let request = fake.next().await;
                notes.lock().push(request.clone());
                fake.answer(&request, result).await;
            }
        }
    });
    let (carrier, server) = opened.await.unwrap();
    assert_eq!(
        server,
        McpPeer {
            era: ProtocolEra::Modern,
            version: "2026-07-28".into(),
            capabilities: object(json!({"tools": {}})),
            info: object(json!({"name": "fake"})),
            instructions: Some("be kind".into()),
        }
    );
    let own = json!({"io.modelcontextprotocol/clientCapabilities": {"sampling": {}}});
    let about = McpRequestOptions { meta: object(own), ..McpRequestOptions::default() };
    soon(carrier.send_request("tools/list", Object::new(), about)).await.unwrap();
    let seen = seen.lock().clone();
    assert_eq!(
        seen[0],
        json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "moonlark"},
            "io.modelcontextprotocol/clientCapabilities": {"roots": {}},
        }}})
    );
    assert_eq!(
        seen[1],
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "moonlark"},
            "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
        }}})
    );
}

#[tokio::test]
async fn any_refusal_of_the_question_means_a_handshake_on_the_same_connection() {
    for (error, offered) in [
        (json!({"code": -32601, "message": "no such method"}), "2025-11-25"),
        (json!({"code": -32602, "message": "invalid"}), "2025-11-25"),
        (json!({"code": 0}), "2025-11-25"),
        (
            json!({"code": -32022, "message": "x", "data": {"supported": ["2024-11-05", "2025-06-18"]}}),
            "2025-06-18",
        ),
    ] {
        let opened = over_pipes(None, limits(), move |count, mut fake| {
            let error = error.clone();
            async move {
                assert_eq!(count, 1);
                let probe = fake.next().await;
                fake.refuse(&probe, error).await;
                let request = fake.next().await;
                let expected = json!({
                    "protocolVersion": offered,
                    "capabilities": {"roots": {}},
                    "clientInfo": {"name": "moonlark"},
                });
                assert_eq!(request["params"], expected);
                fake.answer(&request, introduction("2024-11-05")).await;
                fake.next().await;
            }
        });
        let (_carrier, server) = opened.await.unwrap();
        assert_eq!((server.era, server.version.as_str()), (ProtocolEra::Legacy, "2024-11-05"));
    }
}

#[tokio::test]
async fn a_result_for_everything_is_no_discovery() {
    let opened = over_pipes(None, limits(), |_, mut fake| async move {
        let probe = fake.next().await;
        fake.answer(&probe, json!({})).await;
        legacy(&mut fake, "2025-03-26").await;
    });
    assert_eq!(opened.await.unwrap().1.version, "2025-03-26");
}

#[tokio::test]
async fn a_server_that_is_silent_or_dies_at_the_question_gets_a_fresh_process() {
    for dies in [false, true] {
        let opened = over_pipes(None, patient(), move |count, mut fake| async move {
            if count == 1 {
                fake.next().await;
                if dies {
                    return;
                }
                // Ended by us, without a word to it.
                assert_eq!(fake.next().await, Json::Null);
                return;
            }
            legacy(&mut fake, "2025-11-25").await;
        });
        assert_eq!(opened.await.unwrap().1.era, ProtocolEra::Legacy);
    }
}

#[tokio::test]
async fn what_was_learned_before_saves_the_question() {
    let opened = over_pipes(Some(ProtocolEra::Legacy), limits(), |_, mut fake| async move {
        legacy(&mut fake, "2025-06-18").await;
    });
    assert_eq!(opened.await.unwrap().1.version, "2025-06-18");
}

#[tokio::test]
async fn a_late_answer_to_the_question_is_nothing() {
    let opened = over_pipes(None, limits(), |_, mut fake| async move {
        let probe = fake.next().await;
        fake.refuse(&probe, json!({"code": -32601, "message": "x"})).await;
        fake.answer(&probe, discovery()).await;
        legacy(&mut fake, "2025-11-25").await;
    });
    assert_eq!(opened.await.unwrap().1.era, ProtocolEra::Legacy);
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_in_time() {
    let silent = |_, mut fake: Fake| async move { while !fake.next().await.is_null() {} };
    let problem = over_pipes(None, quick(), silent).await.err().unwrap();
    assert_eq!(
        problem.to_string(),
        "error[timeout]: upstream 'git' did not answer initialize within 0.5 seconds\nhint: run its command by hand to see what it waits for: fake …"
    );
}

#[tokio::test]
async fn versions_of_the_future_and_refusals_are_named() {
    let answer = |version: &'static str| {
        over_pipes(Some(ProtocolEra::Legacy), limits(), move |_, mut fake| async move {
            let request = fake.next().await;
            fake.answer(&request, introduction(version)).await;
            fake.next().await;
        })
    };
    for version in ["2030-01-01", "2024-10-07", "1.0", ""] {
        let problem = answer(version).await.err().unwrap();
        let message =
            format!("upstream 'git' speaks version {version} of MCP, which Moonlark does not");
        assert_eq!(problem.message, message);
    }
    let refused = over_pipes(Some(ProtocolEra::Legacy), limits(), |_, mut fake| async move {
        let request = fake.next().await;
        fake.refuse(&request, json!({"code": -32000, "message": "no licence"})).await;
        fake.next().await;
    });
    let problem = refused.await.err().unwrap();
    assert_eq!(problem.message, "upstream 'git' refused initialize: no licence (-32000)");
}

#[tokio::test]
async fn a_server_that_refuses_a_version_is_offered_one_of_its_own() {
    let opened = over_pipes(Some(ProtocolEra::Legacy), limits(), |_, mut fake| async move {
        let request = fake.next().await;
        let data = json!({"supported": ["2024-11-05"]});
        fake.refuse(&request, json!({"code": -32602, "message": "version", "data": data})).await;
        let request = fake.next().await;
        assert_eq!(request["params"]["protocolVersion"], "2024-11-05");
        fake.answer(&request, introduction("2024-11-05")).await;
        fake.next().await;
    });
    assert_eq!(opened.await.unwrap().1.version, "2024-11-05");
}

// --- over HTTP ----------------------------------------------------------------

async fn over_http(
    server: &mcp_testing::Server,
    limits: McpConnectionLimits,
) -> super::HandshakeResult {
    let transport =
        McpTransportConfig::Http { url: server.url.clone(), headers: Default::default() };
    let target = UpstreamTarget { name: "web".into(), transport, limits };
    soon(connect_transport(&target, None, None, Ear::new(), &us())).await
}

#[tokio::test]
async fn a_modern_server_is_opened_by_one_post() {
    let server = mcp_testing::Server::start(|asked| async move { asked.result(discovery()) }).await;
    let (_carrier, found) = over_http(&server, limits()).await.unwrap();
    assert_eq!(found.era, ProtocolEra::Modern);
    assert_eq!(server.lines(), ["POST server/discover"]);
    let asked = server.asked().remove(0);
    assert_eq!(asked.header("mcp-protocol-version"), "2026-07-28");
    assert_eq!(asked.header("mcp-method"), "server/discover");
    assert_eq!(asked.header("accept"), "application/json, text/event-stream");
    assert_eq!(asked.header("content-type"), "application/json");
    assert_eq!(asked.header("mcp-session-id"), "");
}

#[tokio::test]
async fn whatever_else_is_answered_is_followed_by_a_handshake() {
    type Refusal = fn(&mcp_testing::Asked) -> axum::response::Response;
    let refusals: [Refusal; 9] = [
        |_| reply(400, &[], &Json::Null),
        |_| reply(404, &[], &json!({"detail": "Not Found"})),
        |_| reply(405, &[], &Json::Null),
        |_| reply(406, &[], &json!("no")),
        |_| reply(500, &[], &Json::Null),
        |_| reply(200, &[], &Json::Null),
        |asked| asked.error(200, json!({"code": -32601, "message": "x"})),
        |asked| asked.error(400, json!({"code": -32000, "message": "Server not initialized"})),
        |_| {
            let error = json!({"code": -32600, "message": "Missing session ID"});
            reply(400, &[], &json!({"jsonrpc": "2.0", "id": "server-error", "error": error}))
        },
    ];
    for (index, refusal) in refusals.into_iter().enumerate() {
        let server = mcp_testing::Server::start(move |asked: mcp_testing::Asked| async move {
            match asked.line().as_str() {
                "POST server/discover" => refusal(&asked),
                "POST initialize" => {
                    let mut response = asked.result(introduction("2025-06-18"));
                    response.headers_mut().insert("mcp-session-id", "s1".parse().unwrap());
                    response
                }
                "POST notifications/initialized" => reply(202, &[], &Json::Null),
                "DELETE " => reply(200, &[], &Json::Null),
                _ => reply(405, &[], &Json::Null),
            }
        })
        .await;
        let (carrier, found) = over_http(&server, limits()).await.unwrap();
        assert_eq!(
            (found.era, found.version.as_str()),
            (ProtocolEra::Legacy, "2025-06-18"),
            "{index}"
        );
        let expected =
            ["POST server/discover", "POST initialize", "POST notifications/initialized", "GET "];
        assert_eq!(server.lines(), expected, "{index}");
        let asked = server.asked();
        assert_eq!(asked[1].header("mcp-session-id"), "");
        assert_eq!(asked[1].header("mcp-method"), "");
        for later in &asked[2..] {
            assert_eq!(later.header("mcp-session-id"), "s1");
            assert_eq!(later.header("mcp-protocol-version"), "2025-06-18");
        }
        soon(carrier.close_connection(crate::ClosePace::Gentle)).await;
        let last = server.asked().pop().unwrap();
        assert_eq!((last.method.as_str(), last.header("mcp-session-id")), ("DELETE", "s1"));
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_the_question_is_not_waited_for_long() {
    let server = mcp_testing::Server::start(|asked: mcp_testing::Asked| async move {
        match asked.line().as_str() {
            "POST server/discover" => std::future::pending().await,
            "POST initialize" => asked.result(introduction("2025-11-25")),
            "POST notifications/initialized" => reply(202, &[], &Json::Null),
            _ => reply(405, &[], &Json::Null),
        }
    })
    .await;
    assert_eq!(over_http(&server, patient()).await.unwrap().1.era, ProtocolEra::Legacy);
}

#[tokio::test]
async fn who_is_busy_or_wants_a_name_is_not_asked_again() {
    for (status, message, hint) in [
        (
            401,
            "upstream 'web' requires authentication (HTTP 401)",
            "set auth or headers of mcp_servers.web",
        ),
        (429, "upstream 'web' answered with HTTP 429 Too Many Requests", "try again in 7 seconds"),
    ] {
        let server = mcp_testing::Server::start(move |_| async move {
            reply(status, &[("retry-after", "7")], &Json::Null)
        })
        .await;
        let problem = over_http(&server, limits()).await.err().unwrap();
        assert_eq!((problem.message.as_str(), problem.hint.as_deref()), (message, Some(hint)));
        assert_eq!(server.lines().len(), 1);
    }
}

#[tokio::test]
async fn nobody_there_is_said_so() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let url = format!("http://user:hunter22@{address}/mcp?key=hunter22").parse().unwrap();
    let transport = McpTransportConfig::Http { url, headers: Default::default() };
    let target = UpstreamTarget { name: "web".into(), transport, limits: limits() };
    let problem =
        soon(connect_transport(&target, None, None, Ear::new(), &us())).await.err().unwrap();
    let start = format!("upstream 'web' cannot be reached at http://{address}: ");
    assert!(problem.message.starts_with(&start), "{problem}");
    assert!(!problem.to_string().contains("hunter22"), "{problem}");
    assert!(problem.is_retryable());
}

#[tokio::test]
async fn a_page_that_is_no_mcp_server_is_named_as_such() {
    let server = mcp_testing::Server::start(|_| async {
        let page = axum::response::Response::builder().header("content-type", "text/html");
        page.body("<h1>hello</h1>".into()).unwrap()
    })
    .await;
    let problem = over_http(&server, limits()).await.err().unwrap();
    assert_eq!(
        problem.message,
        "upstream 'web' answered with text/html where JSON or events belong"
    );
}
