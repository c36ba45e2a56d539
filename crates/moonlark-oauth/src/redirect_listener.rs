//! The redirect listener: the port of this machine that a browser comes back to after a
//! login.
//!
//! It takes one answer, the one with the right `state`. Everybody else on this
//! machine, and every page in the browser, can reach it too: they are turned
//! away and waiting goes on.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use moonlark_core::{Problem, ProblemCode, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::oauth_flow::OAuthCallback;

const CALLBACK_PATH: &str = "/callback";
const MAX_CALLBACK_HEAD_BYTES: usize = 16 << 10;
const MAX_CALLBACK_CONNECTIONS: usize = 32;
/// Browsers open connections that they may never use.
const CALLBACK_CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct RedirectListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl RedirectListener {
    pub(super) async fn bind_port(port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        match listener {
            Ok((address, listener)) => Ok(Self { listener, address }),
            Err(error) => Err(Problem::unavailable(format!(
                "cannot listen on 127.0.0.1:{port} for the end of the login: {error}"
            ))
            .with_hint("end what uses that port, or set another redirect_port in the auth table")),
        }
    }

    pub(super) fn redirect_uri(&self) -> String {
        redirect_uri_for_port(self.address.port())
    }

    pub(super) async fn wait_for_callback(
        &self,
        state: &str,
        patience: Duration,
    ) -> Result<OAuthCallback> {
        timeout(patience, self.accept_first_callback(state)).await.unwrap_or_else(|_| {
            let message = format!("nobody logged in within {} seconds", patience.as_secs());
            Err(Problem::new(ProblemCode::Timeout, message))
        })
    }

    async fn accept_first_callback(&self, state: &str) -> Result<OAuthCallback> {
        let (found, mut finds) = mpsc::channel(1);
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                Some(callback) = finds.recv() => {
                    // Let the browser have its page.
                    let _ = timeout(Duration::from_secs(1), open.join_next()).await;
                    return Ok(callback);
                }
                Some(_) = open.join_next() => {}
                stream = self.listener.accept(), if open.len() < MAX_CALLBACK_CONNECTIONS => {
                    // A connection that is gone already is nobody's loss.
                    if let Ok((stream, _)) = stream {
                        let (state, found) = (state.to_owned(), found.clone());
                        open.spawn(timeout(CALLBACK_CONNECTION_TIMEOUT, answer_browser(stream, state, found)));
                    }
                }
            }
        }
    }
}

pub(super) fn redirect_uri_for_port(port: u16) -> String {
    format!("http://127.0.0.1:{port}{CALLBACK_PATH}")
}

/// The port of a redirect address that was made here.
pub(super) fn port_of_redirect_uri(uri: &str) -> Option<u16> {
    uri.strip_prefix("http://127.0.0.1:")?.strip_suffix(CALLBACK_PATH)?.parse().ok()
}

async fn answer_browser(mut stream: TcpStream, state: String, found: mpsc::Sender<OAuthCallback>) {
    let Some(target) = read_request_target(&mut stream).await else {
        return;
    };
    let callback = match target.split_once('?') {
        Some((CALLBACK_PATH, query)) => OAuthCallback::from_query(query),
        _ => return send_page(&mut stream, "404 Not Found", "There is nothing here.").await,
    };
    if callback.state.as_deref() != Some(&state) {
        return send_page(&mut stream, "400 Bad Request", "This is not the login that was begun.")
            .await;
    }
    send_page(&mut stream, "200 OK", "Moonlark has its answer. You can close this window.").await;
    // Full when another connection was first.
    let _ = found.try_send(callback);
}

/// What the first line of a request asks for.
async fn read_request_target(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::with_capacity(1024);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_CALLBACK_HEAD_BYTES || stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    match (words.next()?, words.next()?) {
        ("GET", target) => Some(target.to_owned()),
        _ => None,
    }
}

/// Nothing that came with the request is repeated.
async fn send_page(stream: &mut TcpStream, status: &str, text: &str) {
    let page = format!("<!doctype html><meta charset=utf-8><title>Moonlark</title><p>{text}</p>");
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{page}",
        page.len()
    );
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(port: u16, request: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn only_the_answer_to_the_login_that_was_begun_ends_the_wait() {
        let redirect = RedirectListener::bind_port(0).await.unwrap();
        let port = port_of_redirect_uri(&redirect.redirect_uri()).unwrap();
        // Opened and never used, as browsers do.
        let idle = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let visits = async {
            for (request, expected) in [
                ("GET /favicon.ico HTTP/1.1\r\n\r\n", "HTTP/1.1 404"),
                ("GET /callback?code=x&state=other HTTP/1.1\r\n\r\n", "HTTP/1.1 400"),
                ("GET /callback?code=x HTTP/1.1\r\n\r\n", "HTTP/1.1 400"),
                ("POST /callback?code=x&state=mine HTTP/1.1\r\n\r\n", ""),
                (
                    "GET /callback?code=a%2Bb&state=mine&iss=http%3A%2F%2Fas HTTP/1.1\r\n\r\n",
                    "HTTP/1.1 200",
                ),
            ] {
                let answer = get(port, request).await;
                assert!(answer.starts_with(expected), "{request}: {answer}");
            }
        };
        let (callback, ()) =
            tokio::join!(redirect.wait_for_callback("mine", Duration::from_secs(20)), visits);
        let callback = callback.unwrap();
        assert_eq!(callback.code.as_deref(), Some("a+b"));
        assert_eq!(callback.issuer.as_deref(), Some("http://as"));
        let printed = format!("{callback:?}");
        assert!(!printed.contains("a+b") && !printed.contains("mine"), "{printed}");
        drop(idle);
    }

    #[tokio::test]
    async fn a_login_that_nobody_makes_ends() {
        let redirect = RedirectListener::bind_port(0).await.unwrap();
        let problem =
            redirect.wait_for_callback("mine", Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(problem.code, ProblemCode::Timeout);
    }
}
