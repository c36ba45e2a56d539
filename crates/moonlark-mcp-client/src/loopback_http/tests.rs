use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A server that answers `each` requests on a connection, and then closes it.
struct Server {
    url: Url,
    connections: Arc<AtomicUsize>,
    closed: Arc<tokio::sync::Semaphore>,
}

async fn server(each: usize) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp?x=1", listener.local_addr().unwrap()).parse().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let closed = Arc::new(tokio::sync::Semaphore::new(0));
    let (count, over) = (connections.clone(), closed.clone());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let over = over.clone();
            tokio::spawn(async move {
                for _ in 0..each {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        let Ok(byte) = stream.read_u8().await else { break };
                        head.push(byte);
                    }
                    let body = String::from_utf8(head).unwrap();
                    let answer =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
                drop(stream);
                over.add_permits(1);
            });
        }
    });
    Server { url, connections, closed }
}

async fn ask(direct: &LoopbackHttpClient, url: &Url) -> String {
    let answer = direct.send_request(Method::GET, url, HeaderMap::new(), Bytes::new()).await;
    let answer = answer.unwrap_or_else(|_| panic!("no answer"));
    assert_eq!(answer.status(), 200);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

fn direct(url: &str) -> Option<LoopbackHttpClient> {
    LoopbackHttpClient::for_url(&url.parse().unwrap())
}

#[test]
fn only_plain_http_to_this_machine_goes_this_way() {
    // Where everything goes through a proxy, nothing does.
    let here = !is_proxy_configured();
    for (url, expected) in [
        ("http://127.0.0.1:8080/mcp", here),
        ("http://127.1.2.3/", here),
        ("http://[::1]:8080/mcp", here),
        ("http://localhost/mcp", here),
        ("https://127.0.0.1/mcp", false),
        ("http://user:secret@127.0.0.1/mcp", false),
        ("http://10.0.0.1/mcp", false),
        ("http://localhost.example.com/mcp", false),
        ("http://127.0.0.1.example.com/mcp", false),
    ] {
        assert_eq!(direct(url).is_some(), expected, "{url}");
    }
}

#[tokio::test]
async fn one_connection_serves_one_request_after_the_other() {
    let server = server(100).await;
    let Some(direct) = LoopbackHttpClient::for_url(&server.url) else { return };
    for _ in 0..5 {
        let said = ask(&direct, &server.url).await;
        assert!(said.starts_with("GET /mcp?x=1 HTTP/1.1\r\n"), "{said}");
        assert!(said.contains(&format!("host: {}\r\n", server.url.authority())), "{said}");
        assert!(said.contains("user-agent: moonlark/"), "{said}");
    }
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_followed_by_another() {
    let server = server(1).await;
    let Some(direct) = LoopbackHttpClient::for_url(&server.url) else { return };
    for count in 1..=3 {
        ask(&direct, &server.url).await;
        assert_eq!(server.connections.load(Ordering::Relaxed), count);
        server.closed.acquire().await.unwrap().forget();
        // That it is closed is read like anything else that comes.
        while direct.take_idle_connection().is_some_and(|kept| {
            direct.idle.lock().push(kept);
            true
        }) {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_not_read_to_its_end_closes_its_connection() {
    let server = server(100).await;
    let Some(direct) = LoopbackHttpClient::for_url(&server.url) else { return };
    let answer =
        direct.send_request(Method::GET, &server.url, HeaderMap::new(), Bytes::new()).await;
    drop(answer);
    assert!(direct.take_idle_connection().is_none());
    ask(&direct, &server.url).await;
    assert_eq!(server.connections.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn where_nobody_is_nothing_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let Some(direct) = LoopbackHttpClient::for_url(&url) else { return };
    let asked = direct.send_request(Method::GET, &url, HeaderMap::new(), Bytes::new()).await;
    assert!(matches!(asked, Err(LoopbackHttpError::NotConnected(_))));
}
