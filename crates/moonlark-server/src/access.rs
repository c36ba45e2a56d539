//! Who may talk to the server at all: the Host and Origin of a request.
//!
//! A page on the web can make a browser send requests to this machine. It
//! cannot forge these two headers.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, Uri, header};
use moonlark_core::{Code, Problem};
use std::sync::Arc;

use crate::status;

#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    /// Host names, beside those of this machine.
    pub(crate) hosts: Vec<String>,
    /// Browser origins, beside the server's own.
    pub(crate) origins: Vec<String>,
}

pub(crate) async fn check(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Response {
    match access.judge(request.headers(), request.uri()) {
        Ok(()) => next.run(request).await,
        Err(problem) => status::problem(&problem),
    }
}

impl Access {
    fn judge(&self, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
        let host = match headers.get(header::HOST) {
            Some(host) => host.to_str().ok(),
            None => uri.authority().map(|authority| authority.as_str()),
        };
        let Some(host) = host else {
            return Err(Problem::bad_request("the request has no Host header"));
        };
        let name = host_name(host);
        if !is_this_machine(name)
            && !self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
        {
            return Err(forbidden(format!("the Host {name} is not served here"))
                .hint(format!("add {name:?} to server.allowed_hosts if it is yours")));
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default();
        let own =
            origin.strip_prefix("http://").is_some_and(|rest| rest.eq_ignore_ascii_case(host));
        if own || self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)) {
            return Ok(());
        }
        Err(forbidden(format!("pages of {origin} may not call this server"))
            .hint(format!("add {origin:?} to server.allowed_origins if it is yours")))
    }
}

fn forbidden(message: String) -> Problem {
    Problem::new(Code::Forbidden, message)
}

/// The host without its port.
fn host_name(host: &str) -> &str {
    if let Some(end) = host.find(']') {
        return host.get(1..end).unwrap_or(host);
    }
    host.split(':').next().unwrap_or(host)
}

fn is_this_machine(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(host: Option<&str>, origin: Option<&str>) -> String {
        let access = Access {
            hosts: vec!["tools.example.com".into()],
            origins: vec!["https://app.example.com".into()],
        };
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(header::HOST, host.parse().unwrap());
        }
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        match access.judge(&headers, &Uri::from_static("/tools/list")) {
            Ok(()) => "ok".into(),
            Err(problem) => problem.message,
        }
    }

    #[test]
    fn only_this_machine_and_named_hosts_and_origins_pass() {
        for (host, origin, expected) in [
            (Some("127.0.0.1:7331"), None, "ok"),
            (Some("localhost"), None, "ok"),
            (Some("[::1]:7331"), None, "ok"),
            (Some("tools.example.com:80"), None, "ok"),
            (Some("evil.example:7331"), None, "the Host evil.example is not served here"),
            (
                Some("127.0.0.1.evil.example"),
                None,
                "the Host 127.0.0.1.evil.example is not served here",
            ),
            (None, None, "the request has no Host header"),
            (Some("127.0.0.1:7331"), Some("http://127.0.0.1:7331"), "ok"),
            (Some("127.0.0.1:7331"), Some("https://app.example.com"), "ok"),
            (
                Some("127.0.0.1:7331"),
                Some("http://localhost:3000"),
                "pages of http://localhost:3000 may not call this server",
            ),
            (Some("127.0.0.1:7331"), Some("null"), "pages of null may not call this server"),
            (
                Some("127.0.0.1:7331"),
                Some("https://evil.example"),
                "pages of https://evil.example may not call this server",
            ),
        ] {
            assert_eq!(judge(host, origin), expected, "{host:?} {origin:?}");
        }
    }
}
