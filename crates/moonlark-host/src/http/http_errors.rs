//! Error messages of HTTP requests. Nothing here repeats what the client library says as
//! a whole: that would name the query.

use std::error::Error;
use std::io;

use moonlark_core::grant::GrantSet;
use moonlark_core::{Problem, ProblemCode};
use moonlark_http::innermost_error;
use rustls::CertificateError;
use url::Url;

use super::http_client::is_proxy_configured;
use super::http_request::printable_url;
use crate::dns_lookup::NoAddressError;

/// The server cannot have seen anything of the request.
pub(super) fn was_never_sent(error: &reqwest::Error) -> bool {
    error.is_connect()
        && !matches!(
            find_error_source(error),
            Some(NoAddressError::Denied | NoAddressError::Closed)
        )
}

pub(super) fn explain_request_error(
    grants: &GrantSet,
    what: &str,
    url: &Url,
    error: &reqwest::Error,
) -> Problem {
    let host = url.host_str().unwrap_or_default();
    match find_error_source(error) {
        Some(NoAddressError::Denied) => {
            return grants.network_denied_problem(what, host, url.port());
        }
        Some(NoAddressError::Closed) => return grants.network_closed_problem(what, host),
        Some(NoAddressError::Unknown(_)) => {
            return Problem::unavailable(format!("cannot find the host {host}"));
        }
        None => {}
    }
    if error.is_timeout() {
        return Problem::new(
            ProblemCode::Timeout,
            format!("no answer from {} in time", printable_url(url)),
        );
    }
    let port = url.port_or_known_default().unwrap_or(0);
    if let Some(reason) = find_error_source::<rustls::Error>(error) {
        return Problem::unavailable(format!("no secure connection to {host}:{port}: {reason}"))
            .with_retryable(false)
            .with_optional_hint(is_untrusted_issuer(reason).then(|| {
                "install the certificate's authority on this system, or name its file in SSL_CERT_FILE".to_owned()
            }));
    }
    if error.is_connect() {
        return Problem::unavailable(format!(
            "cannot connect to {host}:{port}: {}",
            root_cause_text(error)
        ))
        .with_optional_hint(is_proxy_configured().then(|| {
            "the environment sets a proxy, such as HTTPS_PROXY: check that it is reachable"
                .to_owned()
        }));
    }
    if error.is_builder() {
        return Problem::bad_request(format!(
            "the request cannot be sent: {}",
            root_cause_text(error)
        ));
    }
    incomplete_answer_problem(url, error)
}

fn is_untrusted_issuer(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
}

/// The connection stood, but what came over it was not an answer, or not a
/// whole one.
pub(super) fn incomplete_answer_problem(url: &Url, error: &reqwest::Error) -> Problem {
    if error.is_timeout() {
        let message = format!("the answer from {} did not end in time", printable_url(url));
        return Problem::new(ProblemCode::Timeout, message);
    }
    Problem::unavailable(format!(
        "no whole answer from {}: {}",
        printable_url(url),
        root_cause_text(error)
    ))
}

/// What the error goes back to.
fn root_cause_text(error: &reqwest::Error) -> String {
    if error.source().is_none() {
        return "the request failed".to_owned();
    }
    let cause = innermost_error(error);
    match cause.downcast_ref::<io::Error>() {
        // Without the number that the system adds.
        Some(error) if error.raw_os_error().is_some() => error.kind().to_string(),
        _ => cause.to_string(),
    }
}

/// The error of type `T` that `error` goes back to. An error inside an
/// [`io::Error`] is not one of its sources, so it is looked for there as well.
fn find_error_source<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
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
