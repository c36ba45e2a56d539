//! `http`: requests to web servers.
//!
//! Here stand the functions and their documentation. [`http_request`] turns
//! arguments into a request, [`http_exchange`] sends it (redirects, retries, time),
//! [`http_client`] decides which addresses may be reached, [`http_answer`] reads what
//! comes back, [`http_errors`] says what went wrong.

mod http_answer;
mod http_client;
mod http_errors;
mod http_exchange;
mod http_request;
#[cfg(test)]
mod tests;

use http::Method;
use moonlark_core::value::TextOrBytes;
use moonlark_core::{Module, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::ScriptTable;
use http_answer::HttpAnswer;
use http_exchange::send_request;
use http_request::HttpRequestSpec;

pub(crate) fn module() -> Module {
    let elsewhere = || json!({"url": "ftp://example.com/"});
    let nowhere = || json!({"url": "example.com"});
    let answer = |status: u16, body: &str, json: serde_json::Value, url: &str| {
        let headers = json!({"content-type": "application/json"});
        json!({"status": status, "ok": true, "headers": headers, "body": body, "json": json, "url": url})
    };
    Module::new(
        "http",
        "Make web requests. An answer with any status is a result; an error is raised only where \
         there is no answer.",
    )
    .async_function("get", "Fetch an address.", |call, args: Plain| {
        send_request(call, "http.get", Method::GET, args.into())
    })
    .needs("net")
    .mocked_example(
        json!({
            "url": "https://api.example.com/issues",
            "headers": {"authorization": "Bearer …"},
            "query": {"state": "open", "page": 2},
        }),
        answer(
            200,
            "[{\"id\":7}]",
            json!([{"id": 7}]),
            "https://api.example.com/issues?state=open&page=2",
        ),
    )
    .fails(elsewhere(), "http and https")
    .fails(nowhere(), "not an address")
    .fails(json!({"url": "http://127.0.0.1:1/"}), "may not reach 127.0.0.1:1")
    .fails(json!({"url": "https://example.com", "timeout": 0}), "timeout")
    .async_function("post", "Send a POST request.", |call, args: WithBody| {
        send_request(call, "http.post", Method::POST, args.into())
    })
    .positional_params(&["body"])
    .needs("net")
    .with_side_effects()
    .mocked_example(
        json!({"url": "https://api.example.com/issues", "json": {"title": "It is broken"}}),
        answer(201, "{\"id\":8}", json!({"id": 8}), "https://api.example.com/issues"),
    )
    .fails(elsewhere(), "http and https")
    .fails(json!({"url": "https://example.com", "body": "a", "json": 1}), "body or json")
    .async_function("put", "Send a PUT request.", |call, args: WithBody| {
        send_request(call, "http.put", Method::PUT, args.into())
    })
    .positional_params(&["body"])
    .needs("net")
    .with_idempotent_effects()
    .mocked_example(
        json!({
            "url": "https://api.example.com/notes/1",
            "body": "as it is",
            "headers": {"content-type": "text/plain"},
        }),
        answer(200, "{}", json!({}), "https://api.example.com/notes/1"),
    )
    .fails(elsewhere(), "http and https")
    .async_function("patch", "Send a PATCH request.", |call, args: WithBody| {
        send_request(call, "http.patch", Method::PATCH, args.into())
    })
    .positional_params(&["body"])
    .needs("net")
    .with_side_effects()
    .mocked_example(
        json!({"url": "https://api.example.com/issues/8", "json": {"state": "closed"}}),
        answer(200, "{\"id\":8}", json!({"id": 8}), "https://api.example.com/issues/8"),
    )
    .fails(elsewhere(), "http and https")
    .async_function("delete", "Send a DELETE request.", |call, args: Plain| {
        send_request(call, "http.delete", Method::DELETE, args.into())
    })
    .needs("net")
    .with_idempotent_effects()
    .mocked_example(
        json!({"url": "https://api.example.com/issues/8", "timeout": 5}),
        answer(200, "{}", json!({}), "https://api.example.com/issues/8"),
    )
    .fails(elsewhere(), "http and https")
    .async_function("head", "Fetch the headers of an address, without the body.", |call, args: Plain| {
        send_request(call, "http.head", Method::HEAD, args.into())
    })
    .needs("net")
    .mocked_example(
        json!({"url": "https://example.com/file.zip", "follow_redirects": false}),
        answer(200, "", json!(null), "https://example.com/file.zip"),
    )
    .fails(elsewhere(), "http and https")
    .async_function("request", "Send a request with any method.", request)
    .needs("net")
    .with_side_effects()
    .mocked_example(
        json!({"opts": {"url": "https://api.example.com/issues", "method": "OPTIONS", "retries": 2}}),
        answer(204, "", json!(null), "https://api.example.com/issues"),
    )
    .fails(json!({"opts": {"url": "ftp://example.com/"}}), "http and https")
    .fails(json!({"opts": {"url": "https://example.com", "method": "CONNECT"}}), "CONNECT")
}

/// An argument struct with its own fields and those that every request has.
macro_rules! arguments {
    ($name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }) => {
        #[derive(Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(inline)]
        struct $name {
            $($(#[$doc])* $field: $type,)*
            /// Headers to send, by name.
            #[schemars(with = "Option<std::collections::BTreeMap<String, String>>")]
            headers: Option<ScriptTable>,
            /// Added to the address's query; a list repeats its key.
            query: Option<ScriptTable>,
            /// A value to send as JSON, instead of a body.
            json: Option<Value>,
            /// Seconds until it is given up, redirects and retries included;
            /// the call's own deadline holds anyway.
            timeout: Option<f64>,
            /// Go where a redirect leads, up to ten times.
            #[serde(default = "default_follow_redirects")]
            follow_redirects: bool,
            /// How often to try again when there is no connection or the server
            /// asks for it (status 429 or 503).
            #[serde(default)]
            retries: u32,
        }

        // One of the structs has every field.
        #[allow(clippy::needless_update)]
        impl From<$name> for HttpRequestSpec {
            fn from(args: $name) -> HttpRequestSpec {
                HttpRequestSpec {
                    $($field: args.$field,)*
                    headers: args.headers,
                    query: args.query,
                    json: args.json,
                    timeout: args.timeout,
                    follow_redirects: args.follow_redirects,
                    retries: args.retries,
                    ..HttpRequestSpec::default()
                }
            }
        }
    };
}

arguments!(Plain {
    /// The address, beginning with http:// or https://.
    url: String,
});

arguments!(WithBody {
    /// The address, beginning with http:// or https://.
    url: String,
    /// What to send, as it is.
    body: Option<TextOrBytes>,
});

arguments!(Options {
    /// The address, beginning with http:// or https://.
    url: String,
    /// The method; GET when not given.
    method: Option<String>,
    /// What to send, as it is.
    body: Option<TextOrBytes>,
});

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HttpRequestArgs {
    /// The address, the method, the body and the options of the other functions.
    opts: Options,
}

fn default_follow_redirects() -> bool {
    true
}

async fn request(call: Call, args: HttpRequestArgs) -> Result<HttpAnswer> {
    let ask = HttpRequestSpec::from(args.opts);
    let method = ask.parse_method()?;
    send_request(call, "http.request", method, ask).await
}
