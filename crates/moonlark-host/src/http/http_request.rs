//! Request building: address, headers and body from arguments, each of them checked.

use std::fmt;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use moonlark_core::limits::format_size;
use moonlark_core::secret::is_secret_name;
use moonlark_core::value::{TextOrBytes, shorten_text};
use moonlark_core::{Problem, Result, Value};
use url::Url;

use crate::args::ScriptTable;
use crate::url::build_query_string;

/// Bytes of an address, and of a query that is added to one.
const MAX_REQUEST_URL_BYTES: usize = 64 << 10;
/// Headers of a request, and bytes of all their names and values: more than servers take.
const MAX_REQUEST_HEADERS: usize = 1000;
const MAX_REQUEST_HEADER_BYTES: usize = 256 << 10;

/// What a script asked for, whichever function it called.
#[derive(Default)]
pub(super) struct HttpRequestSpec {
    pub(super) url: String,
    pub(super) method: Option<String>,
    pub(super) body: Option<TextOrBytes>,
    pub(super) headers: Option<ScriptTable>,
    pub(super) query: Option<ScriptTable>,
    pub(super) json: Option<Value>,
    pub(super) timeout: Option<f64>,
    pub(super) follow_redirects: bool,
    pub(super) retries: u32,
}

impl HttpRequestSpec {
    pub(super) fn parse_method(&self) -> Result<Method> {
        let name = self.method.as_deref().unwrap_or("GET").to_ascii_uppercase();
        // Both are about the connection, not about what is at the address.
        if name == "CONNECT" || name == "TRACE" {
            return Err(Problem::bad_request(format!("the method {name} cannot be sent")));
        }
        Method::from_bytes(name.as_bytes())
            .map_err(|_| Problem::bad_request(format!("{:?} is not a method", shorten_text(&name))))
    }
}

/// One request on its way, from hop to hop.
#[derive(Clone)]
pub(super) struct OutgoingHttpRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<bytes::Bytes>,
}

/// Without the address, the headers and the body, which may have secrets in them.
impl fmt::Debug for OutgoingHttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingHttpRequest").field("method", &self.method).finish_non_exhaustive()
    }
}

impl OutgoingHttpRequest {
    /// `max_json_bytes` is how long JSON for its body may become.
    pub(super) fn new(
        method: Method,
        ask: HttpRequestSpec,
        max_json_bytes: usize,
    ) -> Result<OutgoingHttpRequest> {
        let url = parse_request_url(&ask.url, ask.query)?;
        let mut headers = parse_headers(ask.headers.unwrap_or_default())?;
        let body = match (ask.body, ask.json) {
            (Some(_), Some(_)) => return Err(Problem::bad_request("give body or json, not both")),
            (Some(body), None) => Some(body.0.into()),
            (None, Some(json)) => {
                let kind = HeaderValue::from_static("application/json");
                headers.entry(header::CONTENT_TYPE).or_insert(kind);
                Some(json.encode_json_within("json", max_json_bytes)?.into())
            }
            (None, None) => None,
        };
        Ok(OutgoingHttpRequest { method, url, headers, body })
    }

    /// The request that a redirect with `status` to `url` asks for.
    pub(super) fn into_redirected(mut self, status: StatusCode, url: Url) -> OutgoingHttpRequest {
        if moonlark_http::becomes_get(status, &self.method) {
            self.method = Method::GET;
            self.body = None;
            for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::CONTENT_LANGUAGE] {
                self.headers.remove(name);
            }
        }
        // What proves who we are to one server is not for another.
        if self.url.origin() != url.origin() {
            let names: Vec<HeaderName> =
                self.headers.keys().filter(|name| is_secret_name(name.as_str())).cloned().collect();
            for name in names {
                self.headers.remove(name);
            }
        }
        self.url = url;
        self
    }

    /// The address as messages name it.
    pub(super) fn printable_url(&self) -> String {
        printable_url(&self.url)
    }
}

/// Scheme, host, port and path: a query or a user name may be a secret.
pub(super) fn printable_url(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let host = url.host_str().unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), shorten_text(url.path()))
}

/// The text itself is not repeated in the Problem, for the same reason.
fn parse_request_url(text: &str, query: Option<ScriptTable>) -> Result<Url> {
    if text.len() > MAX_REQUEST_URL_BYTES {
        return Err(url_too_long_problem());
    }
    let mut url = Url::parse(text.trim()).map_err(|error| {
        Problem::bad_request(format!("the url is not an address: {error}"))
            .with_hint("give a whole address, such as https://api.example.com/items")
    })?;
    if let Some(query) = query {
        let added = build_query_string("query", &query.0)?;
        if added.len() > MAX_REQUEST_URL_BYTES {
            return Err(url_too_long_problem());
        }
        let whole = match url.query() {
            Some(given) if !given.is_empty() && !added.is_empty() => format!("{given}&{added}"),
            Some(given) if added.is_empty() => given.to_owned(),
            _ => added,
        };
        url.set_query(Some(whole.as_str()).filter(|whole| !whole.is_empty()));
    }
    url.set_fragment(None);
    Ok(url)
}

fn url_too_long_problem() -> Problem {
    Problem::limit_exceeded(format!(
        "the url is longer than {}",
        format_size(MAX_REQUEST_URL_BYTES)
    ))
    .with_hint("send what is long as the body of the request")
}

/// Headers that say how a message is carried. They follow from the request; a
/// script that sets them could make one request look like two.
const FORBIDDEN_REQUEST_HEADERS: [HeaderName; 7] = [
    header::HOST,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
];

fn parse_headers(table: ScriptTable) -> Result<HeaderMap> {
    let mut map = HeaderMap::new();
    let mut bytes = 0;
    for (key, value) in table.0 {
        let name = HeaderName::from_bytes(key.as_bytes()).map_err(|_| {
            Problem::bad_request(format!("{:?} is not a header name", shorten_text(&key)))
        })?;
        if FORBIDDEN_REQUEST_HEADERS.contains(&name) {
            return Err(Problem::bad_request(format!("the header {name} cannot be set"))
                .with_hint("it follows from the address and the body"));
        }
        // Scripts often set it; the true one is sent in any case.
        if name == header::CONTENT_LENGTH {
            continue;
        }
        let values = match value {
            Value::Array(values) => values,
            single => vec![single],
        };
        for value in values {
            let Some(value) = parse_header_value(&name, value)? else { continue };
            bytes += name.as_str().len() + value.len();
            if map.len() >= MAX_REQUEST_HEADERS || bytes > MAX_REQUEST_HEADER_BYTES {
                return Err(too_many_headers_problem());
            }
            map.append(&name, value);
        }
    }
    Ok(map)
}

fn too_many_headers_problem() -> Problem {
    Problem::limit_exceeded(format!(
        "a request may have {MAX_REQUEST_HEADERS} headers, and {} of them",
        format_size(MAX_REQUEST_HEADER_BYTES)
    ))
    .with_hint("send what is long as the body of the request")
}

fn parse_header_value(name: &HeaderName, value: Value) -> Result<Option<HeaderValue>> {
    let bytes = match value {
        Value::Null => return Ok(None),
        Value::Str(text) => text.into_bytes(),
        Value::Bytes(bytes) => bytes,
        Value::Bool(flag) => flag.to_string().into_bytes(),
        Value::Int(int) => int.to_string().into_bytes(),
        Value::Float(float) => float.to_string().into_bytes(),
        other => {
            let kind = other.kind();
            return Err(Problem::bad_request(format!(
                "the header {name} must be text, got {kind}"
            )));
        }
    };
    let mut value = HeaderValue::from_maybe_shared(bytes::Bytes::from(bytes)).map_err(|_| {
        Problem::bad_request(format!(
            "the header {name} contains a line break or control character"
        ))
    })?;
    // Kept out of debug output, and out of HTTP/2's compression tables.
    value.set_sensitive(*name == header::AUTHORIZATION || *name == header::COOKIE);
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use moonlark_core::value::Object;

    use super::*;

    fn request(method: Method) -> OutgoingHttpRequest {
        let headers = [
            ("authorization", "a"),
            ("cookie", "b"),
            ("proxy-authorization", "c"),
            ("content-type", "d"),
            ("x-own", "e"),
            ("x-api-key", "f"),
            ("private-token", "g"),
        ];
        OutgoingHttpRequest {
            method,
            url: "https://one.example/a".parse().unwrap(),
            headers: headers
                .into_iter()
                .map(|(name, value)| {
                    (HeaderName::from_static(name), HeaderValue::from_static(value))
                })
                .collect(),
            body: Some("body".into()),
        }
    }

    /// `METHOD body? header-values` after a redirect.
    fn after(method: Method, status: u16, to: &str) -> String {
        let status = StatusCode::from_u16(status).unwrap();
        let next = request(method).into_redirected(status, to.parse().unwrap());
        let mut values: Vec<&str> =
            next.headers.values().map(|value| value.to_str().unwrap()).collect();
        values.sort_unstable();
        let body = if next.body.is_some() { "body" } else { "-" };
        format!("{} {body} {}", next.method, values.concat())
    }

    #[test]
    fn a_redirect_keeps_or_drops_what_it_should() {
        let same = "https://one.example/b";
        for (method, status, to, expected) in [
            (Method::POST, 301, same, "GET - abcefg"),
            (Method::POST, 302, same, "GET - abcefg"),
            (Method::PUT, 302, same, "PUT body abcdefg"),
            (Method::PUT, 303, same, "GET - abcefg"),
            (Method::HEAD, 303, same, "HEAD body abcdefg"),
            (Method::POST, 307, same, "POST body abcdefg"),
            (Method::POST, 308, same, "POST body abcdefg"),
            (Method::POST, 307, "http://one.example/b", "POST body de"),
            (Method::POST, 307, "https://one.example:444/b", "POST body de"),
            (Method::POST, 307, "https://two.example/b", "POST body de"),
            (Method::POST, 307, "https://one.example:443/b", "POST body abcdefg"),
        ] {
            assert_eq!(after(method.clone(), status, to), expected, "{method} {status} {to}");
        }
    }

    #[test]
    fn messages_name_neither_query_nor_user() {
        let url = "https://user:pass@api.example.com:8443/a?token=x#y".parse().unwrap();
        assert_eq!(printable_url(&url), "https://api.example.com:8443/a");
    }

    #[test]
    fn a_query_is_added_to_the_one_that_is_there() {
        let add = |url: &str, query: &str| {
            let query = Value::parse_json(query.as_bytes()).unwrap();
            let Value::Object(query) = query else { panic!("not an object") };
            parse_request_url(url, Some(ScriptTable(query))).unwrap().to_string()
        };
        assert_eq!(add("http://a/?x=1", r#"{"y": [1, "ä b"]}"#), "http://a/?x=1&y=1&y=%C3%A4%20b");
        assert_eq!(add("http://a/#f", r#"{"y": true}"#), "http://a/?y=true");
        assert_eq!(add("http://a/?x=1", "{}"), "http://a/?x=1");
    }

    #[test]
    fn a_request_is_printed_without_its_secrets() {
        let headers = Object::from_iter([("x-api-key".to_owned(), "hunter22".into())]);
        let ask = HttpRequestSpec {
            url: "https://example.com/?key=hunter22".to_owned(),
            headers: Some(ScriptTable(headers)),
            ..HttpRequestSpec::default()
        };
        let request = OutgoingHttpRequest::new(Method::GET, ask, 100).unwrap();
        let printed = format!("{request:?}");
        assert!(printed.contains("GET") && !printed.contains("hunter22"), "{printed}");
    }

    #[test]
    fn addresses_and_headers_have_bounds() {
        let problem = |ask: HttpRequestSpec| {
            OutgoingHttpRequest::new(Method::GET, ask, 100).unwrap_err().message
        };
        let long = format!("https://example.com/{}", "x".repeat(MAX_REQUEST_URL_BYTES));
        assert_eq!(
            problem(HttpRequestSpec { url: long, ..HttpRequestSpec::default() }),
            "the url is longer than 64 KB"
        );
        let url = || "https://example.com".to_owned();
        let query = ScriptTable(Object::from_iter([(
            "q".to_owned(),
            "x".repeat(MAX_REQUEST_URL_BYTES).into(),
        )]));
        let ask = HttpRequestSpec { url: url(), query: Some(query), ..HttpRequestSpec::default() };
        assert_eq!(problem(ask), "the url is longer than 64 KB");
        let escaped = HttpRequestSpec {
            url: url(),
            json: Some("\0".repeat(20).into()),
            ..HttpRequestSpec::default()
        };
        assert_eq!(problem(escaped), "json as JSON is larger than 100 bytes");
        let too_many = "a request may have 1000 headers, and 256 KB of them";
        // The library's own table of headers ends at 32,768 with a panic.
        let names = (0..40_000).map(|n| (format!("x-{n}"), Value::from("v")));
        let same = Value::Array(vec!["v".into(); 40_000]);
        let long = Value::from("v".repeat(MAX_REQUEST_HEADER_BYTES));
        for headers in [
            Object::from_iter(names),
            Object::from_iter([("x".to_owned(), same)]),
            Object::from_iter([("x".to_owned(), long)]),
        ] {
            let ask = HttpRequestSpec {
                url: url(),
                headers: Some(ScriptTable(headers)),
                ..HttpRequestSpec::default()
            };
            assert_eq!(problem(ask), too_many);
        }
    }

    #[test]
    fn headers_cannot_forge_a_message() {
        let check = |name: &str, value: &str| {
            let table = ScriptTable([(name.to_owned(), Value::from(value))].into_iter().collect());
            parse_headers(table).map(|map| map.len()).map_err(|problem| problem.message)
        };
        assert_eq!(check("X-Own", "a"), Ok(1));
        assert_eq!(check("Content-Length", "5"), Ok(0));
        for (name, value) in [
            ("a b", "x"),
            ("", "x"),
            ("x", "a\r\nb: c"),
            ("Host", "b"),
            ("transfer-encoding", "chunked"),
        ] {
            assert!(check(name, value).is_err(), "{name}");
        }
    }
}
