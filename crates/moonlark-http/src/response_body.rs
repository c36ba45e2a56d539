//! Bounded reading of response bodies.

use bytes::Bytes;
use http::header::WWW_AUTHENTICATE;
use reqwest::Response;

/// Why a body was not read.
#[derive(Debug)]
pub enum BodyReadError {
    /// It is longer than allowed.
    TooLong,
    /// It broke off.
    Broken(reqwest::Error),
}

/// The whole body, if it is not longer than `max_bytes`. The length is counted after
/// unpacking, since a small body may unpack to any size.
pub async fn read_body(mut response: Response, max_bytes: usize) -> Result<Bytes, BodyReadError> {
    let expected = response.content_length().unwrap_or(0);
    if expected > max_bytes as u64 {
        return Err(BodyReadError::TooLong);
    }
    // The usual answer is one piece, and taken as it is.
    let (mut first, mut whole) = (Bytes::new(), Vec::new());
    while let Some(chunk) = response.chunk().await.map_err(BodyReadError::Broken)? {
        if first.len().max(whole.len()) + chunk.len() > max_bytes {
            return Err(BodyReadError::TooLong);
        }
        if first.is_empty() {
            first = chunk;
            continue;
        }
        if whole.is_empty() {
            whole.reserve_exact((expected as usize).max(first.len() + chunk.len()));
            whole.extend_from_slice(&first);
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(if whole.is_empty() { first } else { whole.into() })
}

/// The first `max_bytes` of a body, or what of it arrived.
pub async fn read_body_start(mut response: Response, max_bytes: usize) -> Bytes {
    let mut start = Vec::new();
    while start.len() < max_bytes
        && let Ok(Some(chunk)) = response.chunk().await
    {
        start.extend_from_slice(&chunk[..chunk.len().min(max_bytes - start.len())]);
    }
    start.into()
}

/// All challenges of a response that asks for credentials.
pub fn join_challenges(response: &Response) -> Option<String> {
    let all = response.headers().get_all(WWW_AUTHENTICATE).iter();
    let all: Vec<&str> = all.filter_map(|value| value.to_str().ok()).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(body: &'static str) -> Response {
        http::Response::new(body).into()
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_bound_and_not_beyond() {
        assert_eq!(read_body(response("12345"), 5).await.unwrap(), "12345");
        assert_eq!(read_body(response(""), 0).await.unwrap(), "");
        assert!(matches!(read_body(response("12345"), 4).await, Err(BodyReadError::TooLong)));
        assert_eq!(read_body_start(response("12345"), 4).await, "1234");
    }
}
