//! HTTP responses, read up to the limit.

use std::collections::BTreeMap;

use http::{HeaderMap, Method, header};
use moonlark_core::limits::format_size;
use moonlark_core::value::{Object, TextOrBytes};
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::Call;
use moonlark_http::BodyReadError;
use reqwest::Response;
use schemars::JsonSchema;
use url::Url;

use super::http_errors;
use super::http_request::{OutgoingHttpRequest, printable_url};
use crate::json::decode_json_within;

/// A server's answer.
#[derive(JsonSchema)]
#[schemars(inline)]
pub(super) struct HttpAnswer {
    /// The status code.
    status: u16,
    /// Whether the status is one of success, 200 to 299.
    ok: bool,
    /// The headers by their name in lower case; repeated ones are joined by ", ".
    #[schemars(with = "BTreeMap<String, String>")]
    headers: Object,
    /// The body.
    body: TextOrBytes,
    /// The body's value if it is JSON and says so.
    json: Value,
    /// The address that answered, after all redirects.
    url: String,
}

impl From<HttpAnswer> for Value {
    fn from(answer: HttpAnswer) -> Self {
        Value::from_fields([
            ("status", answer.status.into()),
            ("ok", answer.ok.into()),
            ("headers", answer.headers.into()),
            ("body", answer.body.into()),
            ("json", answer.json),
            ("url", answer.url.into()),
        ])
    }
}

impl HttpAnswer {
    pub(super) async fn from_response(
        call: &Call,
        request: &OutgoingHttpRequest,
        response: Response,
    ) -> Result<HttpAnswer> {
        let status = response.status();
        let headers = join_headers(response.headers());
        let is_json = is_json_content(response.headers());
        // Nothing follows, even where the headers describe what would.
        let body = match request.method {
            Method::HEAD => Vec::new(),
            _ => read_body(&request.url, response, call.limits().http_body).await?,
        };
        // A body that is not what it says is still there as text.
        let json = if is_json {
            decode_json_within(&body, call.limits().value).unwrap_or_default()
        } else {
            Value::Null
        };
        Ok(HttpAnswer {
            status: status.as_u16(),
            ok: status.is_success(),
            headers,
            body: TextOrBytes(body),
            json,
            url: without_credentials(request.url.clone()),
        })
    }
}

async fn read_body(url: &Url, response: Response, most: usize) -> Result<Vec<u8>> {
    let read = moonlark_http::read_body(response, most).await.map_err(|error| match error {
        BodyReadError::TooLong => Problem::limit_exceeded(format!(
            "the answer from {} is larger than {}",
            printable_url(url),
            format_size(most)
        ))
        .with_hint("ask for less at a time, or raise limits.http_body"),
        BodyReadError::Broken(error) => http_errors::incomplete_answer_problem(url, &error),
    });
    read.map(Vec::from)
}

fn join_headers(headers: &HeaderMap) -> Object {
    let value = |name| {
        let all: Vec<&[u8]> = headers.get_all(name).iter().map(|value| value.as_bytes()).collect();
        Value::text_or_bytes(all.join(&b", "[..]))
    };
    headers.keys().map(|name| (name.as_str().to_owned(), value(name))).collect()
}

fn is_json_content(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default();
    let kind = kind.trim().to_ascii_lowercase();
    kind == "application/json" || kind == "text/json" || kind.ends_with("+json")
}

fn without_credentials(mut url: Url) -> String {
    // Neither can fail where there is a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_what_the_content_type_says() {
        for (kind, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/problem+json", true),
            ("text/html", false),
            ("application/jsonlines", false),
            ("", false),
        ] {
            let headers = [(header::CONTENT_TYPE, kind.parse().unwrap())].into_iter().collect();
            assert_eq!(is_json_content(&headers), expected, "{kind}");
        }
    }
}
