//! Host and origin checks: who may talk to the server at all.
//!
//! A page on the web can make a browser send requests to this machine. It
//! cannot forge these headers, nor the one by which browsers say where a request
//! comes from that has no Origin.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use moonlark_core::Problem;

use crate::http_status;

const FETCH_SITE_HEADER: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Beside what every page may read of an answer.
const EXPOSED_HEADERS: &str = "mcp-session-id, mcp-protocol-version, retry-after, www-authenticate";

#[derive(Debug, Clone, Default)]
pub(crate) struct OriginPolicy {
    /// Host names, beside those of this machine.
    pub(crate) hosts: Vec<String>,
    /// Browser origins, beside the server's own.
    pub(crate) origins: Vec<String>,
}

pub(crate) async fn check_origin(
    access: &OriginPolicy,
    request: Request,
    next: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let origin = match access.check_headers(request.headers(), request.uri()) {
        Ok(Some(origin)) => origin,
        Ok(None) => return next(request).await,
        Err(problem) => return http_status::problem_response(&problem),
    };
    let asks = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks {
        // Without a token: browsers send none before they have asked.
        preflight_response(request.headers())
    } else {
        next(request).await
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers
        .insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    response
}

/// To a browser that asks whether a page of an allowed origin may send a request.
fn preflight_response(asked: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    if let Some(wanted) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    response
}

impl OriginPolicy {
    /// Lets the request pass, with its origin if that is another one that may call.
    fn check_headers(
        &self,
        headers: &HeaderMap,
        uri: &Uri,
    ) -> Result<Option<HeaderValue>, Problem> {
        let hosts = headers.get_all(header::HOST).iter();
        let mut hosts: Vec<&str> = hosts.map(|host| host.to_str().unwrap_or_default()).collect();
        // A request may name it in its first line as well, or only there.
        hosts.extend(uri.authority().map(|authority| authority.as_str()));
        let Some(host) = hosts.first() else {
            return Err(Problem::bad_request("the request has no Host header"));
        };
        if hosts.iter().any(|other| !other.eq_ignore_ascii_case(host)) {
            return Err(Problem::bad_request("the request is for two hosts"));
        }
        let Some(name) = host_name(host) else {
            return Err(Problem::bad_request("the Host header names no host"));
        };
        if !is_loopback_host(name)
            && !self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
        {
            return Err(Problem::forbidden(format!("the Host {name} is not served here"))
                .with_hint(format!("add {name:?} to server.allowed_hosts if it is yours")));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let (first, second) = (origins.next(), origins.next());
        let Some(origin) = first else { return check_fetch_site(headers) };
        let text = origin.to_str().unwrap_or_default();
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        if second.is_none() && rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host)) {
            return Ok(None);
        }
        let allowed = self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(text));
        if second.is_none() && allowed {
            return Ok(Some(origin.clone()));
        }
        Err(Problem::forbidden(format!("pages of {text} may not call this server"))
            .with_hint(format!("add {text:?} to server.allowed_origins if it is yours")))
    }
}

/// A browser leaves the Origin out where a page cannot read the answer: images,
/// links, forms that get. The request would be made all the same.
fn check_fetch_site(headers: &HeaderMap) -> Result<Option<HeaderValue>, Problem> {
    let elsewhere = |site: &HeaderValue| !matches!(site.as_bytes(), b"same-origin" | b"none");
    if headers.get_all(FETCH_SITE_HEADER).iter().any(elsewhere) {
        Err(Problem::forbidden("a page of another site may not call this server")
            .with_hint("open the address itself, not by a link"))
    } else {
        Ok(None)
    }
}

/// The host without its port; none if it is no host.
fn host_name(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = port.len() <= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_port && (port.is_empty() || port.starts_with(':'))).then_some(name)
}

fn is_loopback_host(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(headers: &[(&'static str, &str)], uri: &'static str) -> String {
        let access = OriginPolicy {
            hosts: vec!["tools.example.com".into()],
            origins: vec!["https://app.example.com".into()],
        };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        match access.check_headers(&map, &Uri::from_static(uri)) {
            Ok(None) => "ok".into(),
            Ok(Some(origin)) => format!("ok for {}", origin.to_str().unwrap()),
            Err(problem) => problem.message,
        }
    }

    #[test]
    fn only_this_machine_and_named_hosts_pass() {
        for (host, expected) in [
            ("127.0.0.1:7331", "ok"),
            ("localhost", "ok"),
            ("LOCALHOST:1", "ok"),
            ("[::1]:7331", "ok"),
            ("tools.example.com:80", "ok"),
            ("evil.example:7331", "the Host evil.example is not served here"),
            ("127.0.0.1.evil.example", "the Host 127.0.0.1.evil.example is not served here"),
            ("0.0.0.0:7331", "the Host 0.0.0.0 is not served here"),
            ("127.1", "the Host 127.1 is not served here"),
            ("2130706433", "the Host 2130706433 is not served here"),
            ("[::ffff:127.0.0.1]", "the Host ::ffff:127.0.0.1 is not served here"),
            ("localhost.", "the Host localhost. is not served here"),
            ("[::1].evil.example", "the Host header names no host"),
            ("[::1", "the Host header names no host"),
            ("localhost:80.evil.example", "the Host header names no host"),
            ("localhost:7331@evil.example", "the Host header names no host"),
            ("", "the Host  is not served here"),
        ] {
            assert_eq!(judge(&[("host", host)], "/tools/list"), expected, "{host:?}");
        }
        assert_eq!(judge(&[], "/tools/list"), "the request has no Host header");
        assert_eq!(judge(&[], "http://localhost/tools/list"), "ok");
        assert_eq!(
            judge(&[("host", "localhost")], "http://evil.example/tools/list"),
            "the request is for two hosts"
        );
        assert_eq!(
            judge(&[("host", "localhost"), ("host", "evil.example")], "/"),
            "the request is for two hosts"
        );
    }

    #[test]
    fn only_pages_of_its_own_and_of_named_origins_pass() {
        for (header, value, expected) in [
            ("origin", "http://127.0.0.1:7331", "ok"),
            ("origin", "https://127.0.0.1:7331", "ok"),
            ("origin", "https://app.example.com", "ok for https://app.example.com"),
            (
                "origin",
                "http://localhost:3000",
                "pages of http://localhost:3000 may not call this server",
            ),
            ("origin", "null", "pages of null may not call this server"),
            ("origin", "", "pages of  may not call this server"),
            (
                "origin",
                "https://evil.example",
                "pages of https://evil.example may not call this server",
            ),
            ("sec-fetch-site", "none", "ok"),
            ("sec-fetch-site", "same-origin", "ok"),
            ("sec-fetch-site", "same-site", "a page of another site may not call this server"),
            ("sec-fetch-site", "cross-site", "a page of another site may not call this server"),
            ("sec-fetch-site", "", "a page of another site may not call this server"),
        ] {
            let headers = [("host", "127.0.0.1:7331"), (header, value)];
            assert_eq!(judge(&headers, "/tools/list"), expected, "{header}: {value}");
        }
        let two = [
            ("host", "localhost"),
            ("origin", "http://localhost"),
            ("origin", "https://evil.example"),
        ];
        assert_eq!(judge(&two, "/"), "pages of http://localhost may not call this server");
    }
}
