//! Redirects: the target of one, and the method, headers and body that go there. Whether
//! to follow is for whoever asked to decide.

use http::header::LOCATION;
use http::{HeaderMap, Method, StatusCode};
use url::{ParseError, Url};

/// Whether the status sends us to the address in `Location`.
pub fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The address in `Location`, if there is one.
pub fn location_url(from: &Url, headers: &HeaderMap) -> Option<Result<Url, ParseError>> {
    let location = headers.get(LOCATION)?;
    Some(from.join(&String::from_utf8_lossy(location.as_bytes())))
}

/// Whether a request that is redirected goes on as a GET without a body.
pub fn becomes_get(status: StatusCode, method: &Method) -> bool {
    match status {
        StatusCode::SEE_OTHER => method != Method::HEAD,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => method == Method::POST,
        _ => false,
    }
}
