//! Why there is no answer, in the reader's terms. Nothing here repeats what the
//! client library says as a whole: that would name the query.

use std::error::Error;
use std::io;

use moonlark_core::grant::Grants;
use moonlark_core::{Code, Problem};
use rustls::CertificateError;
use url::Url;

use super::client::proxied;
use super::request::place;
use crate::names::NoAddress;

/// The server cannot have seen anything of the request.
pub(super) fn never_sent(error: &reqwest::Error) -> bool {
    error.is_connect() && !matches!(find(error), Some(NoAddress::Denied | NoAddress::Closed))
}

pub(super) fn explain(grants: &Grants, what: &str, url: &Url, error: &reqwest::Error) -> Problem {
    let host = url.host_str().unwrap_or_default();
    match find(error) {
        Some(NoAddress::Denied) => return grants.net_denied(what, host, url.port()),
        Some(NoAddress::Closed) => return grants.net_closed(what, host),
        Some(NoAddress::Unknown(_)) => {
            return Problem::unavailable(format!("cannot find the host {host}"));
        }
        None => {}
    }
    if error.is_timeout() {
        return Problem::new(Code::Timeout, format!("no answer from {} in time", place(url)));
    }
    let port = url.port_or_known_default().unwrap_or(0);
    if let Some(reason) = find::<rustls::Error>(error) {
        return Problem::unavailable(format!("no secure connection to {host}:{port}: {reason}"))
            .retryable_if(false)
            .maybe_hint(untrusted(reason).then(|| {
                "install the certificate's authority on this system, or name its file in SSL_CERT_FILE".to_owned()
            }));
    }
    if error.is_connect() {
        return Problem::unavailable(format!("cannot connect to {host}:{port}: {}", cause(error)))
            .maybe_hint(proxied().then(|| {
                "the environment sets a proxy, such as HTTPS_PROXY: check that it is reachable"
                    .to_owned()
            }));
    }
    if error.is_builder() {
        return Problem::bad_request(format!("the request cannot be sent: {}", cause(error)));
    }
    broken_off(url, error)
}

fn untrusted(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
}

/// The connection stood, but what came over it was not an answer, or not a
/// whole one.
pub(super) fn broken_off(url: &Url, error: &reqwest::Error) -> Problem {
    if error.is_timeout() {
        let message = format!("the answer from {} did not end in time", place(url));
        return Problem::new(Code::Timeout, message);
    }
    Problem::unavailable(format!("no whole answer from {}: {}", place(url), cause(error)))
}

/// What the error goes back to.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = match error.source() {
        Some(source) => source,
        None => return "the request failed".to_owned(),
    };
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    match cause.downcast_ref::<io::Error>() {
        // Without the number that the system adds.
        Some(error) if error.raw_os_error().is_some() => error.kind().to_string(),
        _ => cause.to_string(),
    }
}

/// The error of type `T` that `error` goes back to. An error inside an
/// [`io::Error`] is not one of its sources, so it is looked for there as well.
fn find<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}
