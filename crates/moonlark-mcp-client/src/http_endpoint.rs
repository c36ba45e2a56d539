//! The HTTP endpoint of an upstream: authorization, redirects, statuses. What is asked is
//! not known here.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, ProblemCode};
use reqwest::{Client, Response};
use url::Url;

use crate::json_rpc::{self, RequestFailure};
use crate::loopback_http::{LoopbackHttpClient, LoopbackHttpError};
use moonlark_core::secret::SecretText;
use moonlark_http::{
    BodyReadError, RequestAuthorizer, innermost_error_text, join_challenges, location_url,
    read_body_start, retry_after_seconds,
};

/// One for the process: connections are shared, and there is one set of
/// certificates.
static ENDPOINT_HTTP_CLIENT: LazyLock<Result<Client, Problem>> =
    LazyLock::new(build_endpoint_http_client);

/// How far a server may send us on.
const MAX_REDIRECT_HOPS: usize = 3;
/// How much of a page that is an error is looked at.
const MAX_ERROR_PAGE_BYTES: usize = 64 * 1024;

pub(super) struct HttpEndpoint {
    name: String,
    url: Url,
    headers: HeaderMap,
    auth: Option<Arc<dyn RequestAuthorizer>>,
    /// If it is on this machine.
    direct: Option<LoopbackHttpClient>,
}

/// Why there is no answer to go on with.
#[derive(Debug)]
pub(super) enum HttpFailure {
    /// A status that is no success, and what came with it.
    Status(StatusCode, Bytes),
    Failed(RequestFailure),
}

impl From<RequestFailure> for HttpFailure {
    fn from(failure: RequestFailure) -> Self {
        HttpFailure::Failed(failure)
    }
}

impl HttpEndpoint {
    pub(super) fn new(
        name: &str,
        url: &Url,
        headers: &BTreeMap<String, SecretText>,
        auth: Option<Arc<dyn RequestAuthorizer>>,
    ) -> Result<HttpEndpoint, Problem> {
        let mut all = HeaderMap::new();
        for (key, value) in headers {
            let unusable = |what: &str| {
                Problem::bad_config(format!("the header {key} of upstream '{name}' {what}"))
                    .with_hint(format!("correct headers of mcp_servers.{name}"))
            };
            let field = HeaderName::from_bytes(key.as_bytes())
                .map_err(|_| unusable("is not a header's name"))?;
            let mut value = HeaderValue::from_str(value.expose_secret())
                .map_err(|_| unusable("has a value that no header can have"))?;
            value.set_sensitive(true);
            all.insert(field, value);
        }
        let (name, direct) = (name.to_owned(), LoopbackHttpClient::for_url(url));
        Ok(HttpEndpoint { name, url: url.clone(), headers: all, auth, direct })
    }

    /// The same server, asked at another address of its own.
    pub(super) fn with_url(self, url: Url) -> HttpEndpoint {
        HttpEndpoint { direct: LoopbackHttpClient::for_url(&url), url, ..self }
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Ask, and return with the head of a successful answer.
    pub(super) async fn send_request(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, HttpFailure> {
        let (mut url, mut hops, mut challenged) = (self.url.clone(), 0, false);
        loop {
            let headers = self.add_auth_headers(headers.clone()).await?;
            let response = self.send_once(method.clone(), &url, headers, body.clone()).await?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            match status {
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                    url = self.redirect_target(&url, &response, &mut hops)?;
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    if challenged || !self.answer_challenge(&response).await? {
                        let problem = self.unauthorized_problem(status);
                        return Err(RequestFailure::Unauthorized(problem).into());
                    }
                    challenged = true;
                }
                StatusCode::TOO_MANY_REQUESTS => return Err(self.busy_failure(&response)),
                StatusCode::SERVICE_UNAVAILABLE if response.headers().contains_key(RETRY_AFTER) => {
                    return Err(self.busy_failure(&response));
                }
                _ => {
                    let page = read_body_start(response, MAX_ERROR_PAGE_BYTES).await;
                    return Err(HttpFailure::Status(status, page));
                }
            }
        }
    }

    async fn send_once(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, RequestFailure> {
        // Redirects lead to no other server.
        let (connecting, why) = if let Some(direct) = &self.direct {
            match direct.send_request(method, url, headers, body).await {
                Ok(answer) => return Ok(answer.into()),
                Err(LoopbackHttpError::NotConnected(error)) => (true, innermost_error_text(&error)),
                Err(LoopbackHttpError::Lost(error)) => (false, innermost_error_text(&error)),
            }
        } else {
            let client = ENDPOINT_HTTP_CLIENT.as_ref();
            let client = client.map_err(|problem| RequestFailure::NotSent(problem.clone()))?;
            let mut request = reqwest::Request::new(method, url.clone());
            *request.headers_mut() = headers;
            match moonlark_http::send_with_body(client, request, body).await {
                Ok(response) => return Ok(response),
                Err(error) => {
                    let connecting = error.is_connect() || error.is_builder();
                    (connecting, innermost_error_text(&error.without_url()))
                }
            }
        };
        if !connecting {
            return Err(RequestFailure::Lost(self.broken_off_problem(&why)));
        }
        let (name, origin) = (&self.name, url_origin(&self.url));
        Err(RequestFailure::NotSent(
            Problem::unavailable(format!("upstream '{name}' cannot be reached at {origin}: {why}"))
                .with_hint("see whether the server is running, and reachable from here"),
        ))
    }

    /// All of a body, if it is not too long.
    pub(super) async fn read_body(
        &self,
        response: Response,
        most: usize,
    ) -> Result<Bytes, RequestFailure> {
        moonlark_http::read_body(response, most).await.map_err(|error| {
            RequestFailure::Lost(match error {
                BodyReadError::TooLong => json_rpc::answer_too_long_problem(&self.name, most),
                BodyReadError::Broken(error) => {
                    self.broken_off_problem(&innermost_error_text(&error.without_url()))
                }
            })
        })
    }

    /// What a status means for whoever asked, when nothing else explains it.
    pub(super) fn status_problem(&self, status: StatusCode, page: &[u8]) -> Problem {
        let (name, origin) = (&self.name, url_origin(&self.url));
        let hint = if status.is_server_error() {
            format!("see the log of {origin}")
        } else {
            format!("see whether url and transport of mcp_servers.{name} are right")
        };
        let text = String::from_utf8_lossy(page);
        let said = match text.trim() {
            "" => String::new(),
            text => format!(": {}", shorten_text(text)),
        };
        Problem::unavailable(format!("upstream '{name}' answered with HTTP {status}{said}"))
            .with_retryable(status.is_server_error())
            .with_hint(hint)
    }

    /// With what goes with everything; what a request says itself stands.
    async fn add_auth_headers(&self, mut headers: HeaderMap) -> Result<HeaderMap, RequestFailure> {
        for (name, value) in &self.headers {
            headers.entry(name).or_insert_with(|| value.clone());
        }
        let Some(auth) = &self.auth else { return Ok(headers) };
        if let Some(token) =
            auth.authorization_header().await.map_err(RequestFailure::Unauthorized)?
        {
            let mut value = HeaderValue::from_str(token.expose_secret()).map_err(|_| {
                let name = &self.name;
                let message = format!("the token for upstream '{name}' does not fit a header");
                RequestFailure::Unauthorized(Problem::bad_config(message))
            })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    fn redirect_target(
        &self,
        from: &Url,
        answer: &Response,
        hops: &mut usize,
    ) -> Result<Url, RequestFailure> {
        *hops += 1;
        let to = location_url(from, answer.headers()).and_then(|location| location.ok());
        let name = &self.name;
        let problem = match to {
            Some(to) if to.origin() == self.url.origin() && *hops <= MAX_REDIRECT_HOPS => {
                return Ok(to);
            }
            Some(to) if to.origin() == self.url.origin() => {
                Problem::unavailable(format!("upstream '{name}': too many redirects"))
                    .with_hint(format!("check url of mcp_servers.{name}"))
            }
            Some(to) => {
                let to = url_origin(&to);
                let message =
                    format!("upstream '{name}' redirects to {to}, another origin: not followed");
                Problem::unavailable(message)
                    .with_hint(format!("if it moved there, set url of mcp_servers.{name}"))
            }
            None => Problem::unavailable(format!(
                "upstream '{name}' redirects without a valid Location"
            )),
        };
        Err(RequestFailure::NotSent(problem.with_retryable(false)))
    }

    /// Whether it is worth one more try.
    async fn answer_challenge(&self, response: &Response) -> Result<bool, RequestFailure> {
        let Some(auth) = &self.auth else { return Ok(false) };
        let challenge = join_challenges(response);
        let status = response.status().as_u16();
        auth.handle_challenge(status, challenge).await.map_err(RequestFailure::Unauthorized)
    }

    fn unauthorized_problem(&self, status: StatusCode) -> Problem {
        let name = &self.name;
        let (what, hint) = match (status, &self.auth) {
            (StatusCode::FORBIDDEN, _) => (
                "does not allow this (HTTP 403)",
                format!("see what the account or token of mcp_servers.{name} may do"),
            ),
            (_, Some(_)) => (
                "rejected our credentials (HTTP 401)",
                format!("renew its token, or run: moonlark login {name}"),
            ),
            (_, None) => (
                "requires authentication (HTTP 401)",
                format!("set auth or headers of mcp_servers.{name}"),
            ),
        };
        Problem::new(ProblemCode::Forbidden, format!("upstream '{name}' {what}"))
            .with_hint(hint)
            .with_retryable(false)
    }

    fn busy_failure(&self, response: &Response) -> HttpFailure {
        let status = response.status();
        let code = match status {
            StatusCode::TOO_MANY_REQUESTS => ProblemCode::RateLimited,
            _ => ProblemCode::Unavailable,
        };
        let mut problem =
            Problem::new(code, format!("upstream '{}' answered with HTTP {status}", self.name));
        problem.retry_after = retry_after_seconds(response.headers());
        let hint = match problem.retry_after {
            Some(seconds) => format!("try again in {seconds} seconds"),
            None => "try again later".to_owned(),
        };
        RequestFailure::NotSent(problem.with_hint(hint)).into()
    }

    fn broken_off_problem(&self, why: &str) -> Problem {
        let name = &self.name;
        Problem::unavailable(format!("upstream '{name}' broke the connection off: {why}"))
    }
}

fn build_endpoint_http_client() -> Result<Client, Problem> {
    moonlark_http::build_http_client(|builder| {
        builder
            .tcp_nodelay(true)
            // A stream may say nothing for hours; this is how its end is noticed.
            .tcp_keepalive(Duration::from_secs(30))
            // An event must not wait in a compressor until there are more.
            .no_gzip()
    })
}

/// The kind of content, without its parameters.
pub(super) fn content_type(response: &Response) -> &str {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

/// An address without what may be secret in it.
pub(super) fn url_origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}
