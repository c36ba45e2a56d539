//! Against real servers on this machine, kind ones and others.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use moonlark_core::Value;
use moonlark_core::grant::NetworkReach;
use moonlark_core::tool::CallScope;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::http_client::ReachResolver;
use super::http_errors;
use crate::test_calls::{call, limited, problem, scope};

/// A server that gives each request to a function and writes what it returns.
struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn answering(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (seen.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (log, answer) = (log.clone(), answer.clone());
                tokio::spawn(async move {
                    let request = read_request(&mut stream).await;
                    log.lock().unwrap().push(request.clone());
                    let _ = stream.write_all(&answer(&request)).await;
                });
            }
        });
        Server { port, seen }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// A script that may reach this server.
    fn scope(&self) -> CallScope {
        scope(Path::new("."), &[&format!("net:127.0.0.1:{}", self.port)])
    }

    async fn get(&self, path: &str) -> Json {
        let args = json!({"url": self.url(path)});
        call(self.scope(), "http.get", args).await.unwrap().to_json_lossy()
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| {
                rest.split("\r\n").next().and_then(|length| length.parse::<usize>().ok())
            });
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return text,
            Ok(count) => request.extend_from_slice(&chunk[..count]),
        }
    }
}

fn reply(head: &str, body: &[u8]) -> Vec<u8> {
    let mut reply =
        format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())
            .into_bytes();
    reply.extend_from_slice(body);
    reply
}

fn redirect(status: u16, location: &str) -> Vec<u8> {
    reply(&format!("{status} Elsewhere\r\nLocation: {location}"), b"")
}

#[tokio::test]
async fn an_answer_has_status_headers_body_and_json() {
    let server = Server::answering(|request| {
        let head = "404 Gone\r\nContent-Type: application/problem+json\r\nX-A: 1\r\nx-a: 2";
        match request {
            _ if request.starts_with("GET /json ") => reply(head, br#"{"a": [1, null]}"#),
            _ if request.starts_with("GET /bad ") => reply(head, b"{nope"),
            _ if request.starts_with("GET /deep ") => reply(head, "[".repeat(10_000).as_bytes()),
            _ => reply("200 OK\r\nContent-Type: text/plain", b"\xff\x00"),
        }
    })
    .await;
    assert_eq!(
        server.get("/json").await,
        json!({
            "status": 404, "ok": false,
            "headers": {
                "content-type": "application/problem+json", "x-a": "1, 2",
                "content-length": "16", "connection": "close",
            },
            "body": r#"{"a": [1, null]}"#,
            "json": {"a": [1, null]},
            "url": server.url("/json"),
        })
    );
    assert_eq!(server.get("/bad").await["json"], Json::Null);
    assert_eq!(server.get("/bad").await["body"], "{nope");
    assert_eq!(server.get("/deep").await["json"], Json::Null);
    let args = json!({"url": server.url("/bytes")});
    let answer = call(server.scope(), "http.get", args).await.unwrap();
    assert_eq!(answer.get("body"), Some(&Value::Bytes(vec![0xff, 0])));
    assert_eq!(answer.get("ok"), Some(&Value::Bool(true)));
}

#[tokio::test]
async fn a_request_is_sent_as_it_was_asked_for() {
    let server = Server::answering(|_| reply("200 OK", b"")).await;
    let url = server.url("/p?a=1");
    for (function, args) in [
        ("http.post", json!({"url": url, "body": "text", "headers": {"X-Own": "ä", "X-N": 5}})),
        ("http.put", json!({"url": url, "json": {"b": 1}, "query": {"c": ["x y", true]}})),
        ("http.delete", json!({"url": url})),
        ("http.request", json!({"opts": {"url": url, "method": "report", "body": "r"}})),
        ("http.head", json!({"url": url.replace("http://", "http://me:pw@")})),
    ] {
        let answer = call(server.scope(), function, args).await.unwrap().to_json_lossy();
        assert!(!answer["url"].as_str().unwrap().contains("pw"));
    }
    let agent = concat!("moonlark/", env!("CARGO_PKG_VERSION"));
    let seen: Vec<String> = server
        .seen()
        .iter()
        .map(|request| {
            // The order of headers is the client's business.
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            let mut lines: Vec<&str> = head.split("\r\n").collect();
            assert!(lines.contains(&format!("user-agent: {agent}").as_str()), "{request}");
            lines[1..].sort_unstable();
            lines.retain(|line| {
                !["accept", "host", "user-agent"].iter().any(|name| line.starts_with(name))
            });
            format!("{} | {body}", lines.join(" | "))
        })
        .collect();
    assert_eq!(
        seen,
        [
            "POST /p?a=1 HTTP/1.1 | content-length: 4 | x-n: 5 | x-own: ä | text",
            "PUT /p?a=1&c=x%20y&c=true HTTP/1.1 | content-length: 7 | content-type: application/json | {\"b\":1}",
            "DELETE /p?a=1 HTTP/1.1 | ",
            "REPORT /p?a=1 HTTP/1.1 | content-length: 1 | r",
            "HEAD /p?a=1 HTTP/1.1 | authorization: Basic bWU6cHc= | ",
        ]
    );
}

#[tokio::test]
async fn a_redirect_to_another_server_carries_no_credentials() {
    let other = Server::answering(|_| reply("200 OK", b"there")).await;
    let target = other.url("/b");
    let first = Server::answering(move |request| {
        if request.starts_with("POST /a ") {
            redirect(302, "/same")
        } else {
            redirect(307, &target)
        }
    })
    .await;
    let grants = [format!("net:127.0.0.1:{}", first.port), format!("net:127.0.0.1:{}", other.port)];
    let scope = scope(Path::new("."), &[&grants[0], &grants[1]]);
    let headers = json!({"Authorization": "Bearer t", "Cookie": "c=1", "X-Own": "kept"});
    let args = json!({"url": first.url("/a"), "body": "data", "headers": headers});
    let answer = call(scope, "http.post", args).await.unwrap().to_json_lossy();
    assert_eq!((&answer["body"], &answer["url"]), (&json!("there"), &json!(other.url("/b"))));
    let same = first.seen()[1].clone();
    assert!(same.starts_with("GET /same ") && same.contains("Bearer t") && same.contains("c=1"));
    let seen = other.seen()[0].to_ascii_lowercase();
    assert!(seen.starts_with("get /b ") && seen.contains("x-own: kept"), "{seen}");
    assert!(!seen.contains("authorization") && !seen.contains("cookie"), "{seen}");
}

#[tokio::test]
async fn every_hop_needs_a_grant_of_its_own() {
    let hidden = Server::answering(|_| reply("200 OK", b"secret")).await;
    let target = hidden.url("/?q=1");
    let server = Server::answering(move |request| {
        let path = request.split(' ').nth(1).unwrap_or_default();
        match path {
            "/private" => redirect(302, &target),
            "/metadata" => redirect(302, "http://169.254.169.254/latest"),
            "/file" => redirect(302, "file:///etc/passwd"),
            "/broken" => redirect(302, "http://[/"),
            "/none" => reply("302 Found", b"here"),
            _ => redirect(302, &format!("{path}x")),
        }
    })
    .await;
    let get = async |path: &str| {
        problem(server.scope(), "http.get", json!({"url": server.url(path)})).await
    };
    let port = hidden.port;
    assert_eq!(
        get("/private").await,
        format!(
            "error[denied]: http.get may not reach 127.0.0.1:{port}\nhint: add \"net:127.0.0.1:{port}\" to allow for tools.script.test in moonlark.toml"
        )
    );
    assert!(hidden.seen().is_empty());
    assert!(
        get("/metadata").await.starts_with("error[denied]: http.get may not reach 169.254.169.254")
    );
    assert!(get("/file").await.starts_with("error[bad_request]: http.get takes http and https"));
    assert!(get("/broken").await.contains("redirects to an address that is not valid"));
    let text = get("/x").await;
    assert!(text.starts_with(
        "error[unavailable]: http.get: more than 10 redirects, the last to http://127"
    ));
    assert_eq!(server.get("/none").await["body"], "here");
    let args = json!({"url": server.url("/private"), "follow_redirects": false});
    let answer = call(server.scope(), "http.get", args).await.unwrap().to_json_lossy();
    assert_eq!(answer["status"], 302);
}

#[tokio::test]
async fn a_body_is_read_up_to_the_limit() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&vec![0; 20_000_000]).unwrap();
    let bomb = packed.finish().unwrap();
    assert!(bomb.len() < 50_000);
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(b"[1]").unwrap();
    let small = packed.finish().unwrap();
    let server =
        Server::answering(move |request| match request.split(' ').nth(1).unwrap_or_default() {
            "/length" => b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nx".to_vec(),
            "/chunked" => {
                let mut reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
                for _ in 0..200 {
                    reply.extend(format!("3e8\r\n{}\r\n", "x".repeat(1000)).as_bytes());
                }
                reply
            }
            "/bomb" => reply("200 OK\r\nContent-Encoding: gzip", &bomb),
            "/exact" => reply("200 OK", &[b'x'; 100_000]),
            _ => {
                reply("200 OK\r\nContent-Encoding: gzip\r\nContent-Type: application/json", &small)
            }
        })
        .await;
    let small = || limited(server.scope(), |limits| limits.http_body = 100_000);
    for path in ["/length", "/chunked", "/bomb"] {
        let url = server.url(path);
        assert_eq!(
            problem(small(), "http.get", json!({"url": url})).await,
            format!(
                "error[limit]: http.get: the answer from {url} is larger than 100000 bytes\nhint: ask for less at a time, or raise limits.http_body"
            )
        );
    }
    let exact = call(small(), "http.get", json!({"url": server.url("/exact")})).await.unwrap();
    assert_eq!(exact.get("body").and_then(Value::as_str).map(str::len), Some(100_000));
    assert_eq!(server.get("/gzip").await["json"], json!([1]));
    let head = json!({"url": server.url("/length")});
    assert_eq!(call(small(), "http.head", head).await.unwrap().get("body"), Some(&Value::from("")));
}

/// A server that answers anything with `first` and then nothing, but stays.
async fn silent_after(first: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(first).await;
            open.push(stream);
        }
    });
    port
}

#[tokio::test]
async fn a_server_that_keeps_us_waiting_is_left() {
    let started = Instant::now();
    for first in [&b""[..], b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"] {
        let port = silent_after(first).await;
        let scope = || scope(Path::new("."), &["net:127.0.0.1"]);
        let url = format!("http://127.0.0.1:{port}/a?token=x");
        let text = problem(scope(), "http.get", json!({"url": url, "timeout": 0.25})).await;
        assert_eq!(
            text,
            format!(
                "error[timeout]: http.get: no answer from http://127.0.0.1:{port}/a within 0.25 seconds"
            )
        );
        let short = limited(scope(), |limits| limits.timeout = Duration::from_millis(250));
        let text = problem(short, "http.get", json!({"url": url, "timeout": 60})).await;
        assert!(text.starts_with("error[timeout]"), "{text}");
    }
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn what_goes_wrong_is_named_without_secrets() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let short =
        Server::answering(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_vec()).await;
    let noise = Server::answering(|_| b"what is this\r\n\r\n".to_vec()).await;
    let closed = Server::answering(|_| Vec::new()).await;
    let at = |port: u16| format!("127.0.0.1:{port}");
    for (url, expected) in [
        (at(gone), format!("cannot connect to 127.0.0.1:{gone}: connection refused")),
        (at(short.port), format!("no whole answer from http://127.0.0.1:{}/a: ", short.port)),
        (at(noise.port), format!("no whole answer from http://127.0.0.1:{}/a: ", noise.port)),
        (at(closed.port), format!("no whole answer from http://127.0.0.1:{}/a: ", closed.port)),
        ("nowhere.invalid".to_owned(), "cannot find the host nowhere.invalid".to_owned()),
    ] {
        let args = json!({"url": format!("http://user:pass@{url}/a?token=hidden")});
        let text = problem(scope(Path::new("."), &["net:127.0.0.1"]), "http.get", args).await;
        assert!(text.starts_with(&format!("error[unavailable]: http.get: {expected}")), "{text}");
        assert!(!text.contains("hidden") && !text.contains("pass"), "{text}");
    }
    let port = silent_after(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let args = json!({"url": format!("https://127.0.0.1:{port}/")});
    let text = problem(scope(Path::new("."), &["net:127.0.0.1"]), "http.get", args).await;
    let expected =
        format!("error[unavailable]: http.get: no secure connection to 127.0.0.1:{port}: ");
    assert!(text.starts_with(&expected), "{text}");
}

#[tokio::test]
async fn a_busy_server_is_asked_again_only_when_asked_for() {
    let tries = Arc::new(Mutex::new(0));
    let server = Server::answering(move |request| {
        let mut tries = tries.lock().unwrap();
        *tries += 1;
        match request {
            _ if request.starts_with("GET /later ") => {
                reply("429 Slow\r\nRetry-After: 3600", b"later")
            }
            _ if *tries % 3 == 0 => reply("200 OK", b"done"),
            _ => reply("503 Busy\r\nRetry-After: 0", b"busy"),
        }
    })
    .await;
    let get = async |path: &str, retries: u32| {
        let args = json!({"url": server.url(path), "retries": retries});
        let answer = call(server.scope(), "http.get", args).await.unwrap().to_json_lossy();
        (answer["body"].as_str().unwrap().to_owned(), server.seen().len())
    };
    assert_eq!(get("/", 5).await, ("done".to_owned(), 3));
    assert_eq!(get("/", 0).await, ("busy".to_owned(), 4));
    // An hour is longer than the call has: the answer is given as it is.
    assert_eq!(get("/later", 5).await, ("later".to_owned(), 5));
    let text =
        problem(server.scope(), "http.get", json!({"url": server.url("/"), "retries": 11})).await;
    assert_eq!(text, "error[bad_request]: http.get: retries must be at most 10");
}

#[tokio::test]
async fn what_may_have_happened_is_not_sent_again() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let server =
        Server::answering(move |_| redirect(303, &format!("http://127.0.0.1:{gone}/"))).await;
    let args = json!({"url": server.url("/order"), "body": "1", "retries": 2});
    let text = problem(scope(Path::new("."), &["net:127.0.0.1"]), "http.post", args).await;
    assert!(text.contains("cannot connect to"), "{text}");
    assert_eq!(server.seen().len(), 1);

    let closed = Server::answering(|_| Vec::new()).await;
    let args = json!({"url": closed.url("/order"), "body": "1", "retries": 2});
    assert!(problem(closed.scope(), "http.post", args).await.contains("no whole answer"));
    assert_eq!(closed.seen().len(), 1);
}

/// `localhost` is denied by its name already, so the client is asked directly.
#[tokio::test]
async fn a_name_that_leads_to_this_machine_is_denied_after_dns() {
    let server = Server::answering(|_| reply("200 OK", b"secret")).await;
    let get = async |reach: NetworkReach| {
        let resolver = || ReachResolver(reach.clone());
        let client = moonlark_http::build_http_client(|it| it.dns_resolver(resolver())).unwrap();
        let url = format!("http://localhost:{}/", server.port);
        client.get(url).send().await
    };
    let any = server.scope().grants.check_url("http.get", &"http://a.example/".parse().unwrap());
    let public = any.unwrap().reach().clone();
    let error = get(public).await.unwrap_err();
    let url = format!("http://localhost:{}/", server.port).parse().unwrap();
    let problem =
        http_errors::explain_request_error(&server.scope().grants, "http.get", &url, &error);
    assert_eq!(problem.message, format!("http.get may not reach localhost:{}", server.port));
    assert!(!http_errors::was_never_sent(&error));
    assert!(server.seen().is_empty());
    assert_eq!(get(NetworkReach::anywhere()).await.unwrap().text().await.unwrap(), "secret");

    let name = format!("net:localhost:{}", server.port);
    let args = json!({"url": format!("http://localhost:{}/", server.port)});
    assert!(call(scope(Path::new("."), &[&name]), "http.get", args.clone()).await.is_ok());
    let text = crate::test_calls::problem(scope(Path::new("."), &[]), "http.get", args).await;
    assert!(text.starts_with("error[denied]: http.get may not reach localhost:"), "{text}");
}
