//! Request bodies that are dropped when nobody waits for the answer any more.
//!
//! A server may answer without having read what it was sent. The connection would keep
//! the rest for as long as the server likes, so a long body is handed over in pieces, and
//! belongs to the exchange instead of the connection.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use reqwest::{Body, Client, Request, Response};

/// A piece is copied, and all that a connection keeps of a body are some of these.
const BODY_PIECE_BYTES: usize = 64 << 10;

/// Send a request with a body. The body lives until the answer has been read or given up.
pub async fn send_with_body(
    client: &Client,
    mut request: Request,
    body: Bytes,
) -> reqwest::Result<Response> {
    if body.len() <= BODY_PIECE_BYTES {
        *request.body_mut() = (!body.is_empty()).then(|| body.into());
        return client.execute(request).await;
    }
    let owner = Arc::new(body);
    let lent = LentBody { owner: Arc::downgrade(&owner), sent: 0, length: owner.len() };
    *request.body_mut() = Some(Body::wrap(lent));
    let mut response = client.execute(request).await?;
    response.extensions_mut().insert(BodyOwner { _bytes: owner });
    Ok(response)
}

/// Goes with a response, and ends with it.
#[derive(Clone)]
struct BodyOwner {
    _bytes: Arc<Bytes>,
}

struct LentBody {
    owner: Weak<Bytes>,
    sent: usize,
    length: usize,
}

impl HttpBody for LentBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        let Some(bytes) = self.owner.upgrade() else {
            return Poll::Ready(Some(Err(std::io::Error::other("nobody waits for the answer"))));
        };
        let end = self.length.min(self.sent + BODY_PIECE_BYTES);
        let piece = Bytes::copy_from_slice(&bytes[self.sent..end]);
        self.sent = end;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent == self.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.length - self.sent) as u64)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const LONG_BODY_BYTES: usize = 8 << 20;

    fn request_to(address: std::net::SocketAddr) -> Request {
        Request::new(http::Method::POST, format!("http://{address}/").parse().unwrap())
    }

    #[tokio::test]
    async fn a_long_body_arrives_whole_and_with_its_length() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let request = request_to(listener.local_addr().unwrap());
        let sent: Bytes = (0..LONG_BODY_BYTES).map(|at| (at / 7) as u8).collect();
        let expected = sent.clone();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut got = Vec::new();
            let head = loop {
                stream.read_buf(&mut got).await.unwrap();
                if let Some(at) = got.windows(4).position(|it| it == b"\r\n\r\n") {
                    break String::from_utf8(got.drain(..at + 4).collect()).unwrap();
                }
            };
            while got.len() < expected.len() {
                stream.read_buf(&mut got).await.unwrap();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            assert!(got == expected, "another body arrived");
            head.to_ascii_lowercase()
        });
        let client = crate::build_http_client(|builder| builder).unwrap();
        let response = send_with_body(&client, request, sent).await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
        let head = server.await.unwrap();
        assert!(head.contains(&format!("content-length: {LONG_BODY_BYTES}\r\n")), "{head}");
    }

    /// Bytes that say whether anybody still has them.
    struct WatchedBytes(Vec<u8>, #[expect(dead_code, reason = "its count is looked at")] Arc<()>);

    impl AsRef<[u8]> for WatchedBytes {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    #[tokio::test]
    async fn a_body_that_the_server_does_not_read_is_let_go_of_with_the_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let request = request_to(listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            // An answer before the request has begun would be an error.
            stream.read_u8().await.unwrap();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(answer).await.unwrap();
            // The rest is not read, and the connection not closed.
            stream
        });
        let alive = Arc::new(());
        let body = WatchedBytes(vec![0; 4 * LONG_BODY_BYTES], alive.clone());
        let client = crate::build_http_client(|builder| builder).unwrap();
        let body = Bytes::from_owner(body);
        let response = send_with_body(&client, request, body).await.unwrap();
        assert_eq!(Arc::strong_count(&alive), 2);
        assert_eq!(response.text().await.unwrap(), "ok");
        assert_eq!(Arc::strong_count(&alive), 1);
        drop(server.await.unwrap());
    }
}
