//! One HTTP server of an upstream's, and how to ask it: who we are, redirects,
//! statuses. What is asked is not known here.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use moonlark_core::value::shorten;
use moonlark_core::{Code, Problem};
use reqwest::{Client, Response};
use url::Url;

use super::authorize::Authorize;
use super::direct::{Broken, Direct};
use super::target::SecretText;
use super::wire::{self, Failure};

/// One for the process: connections are shared, and there is one set of
/// certificates.
static CLIENT: LazyLock<Result<Client, Problem>> = LazyLock::new(client);

/// How far a server may send us on.
const MOST_HOPS: usize = 3;
/// How much of a page that is an error is looked at.
const ERROR_PAGE: usize = 64 * 1024;

pub(super) struct Site {
    name: String,
    url: Url,
    headers: HeaderMap,
    auth: Option<Arc<dyn Authorize>>,
    /// If it is on this machine.
    direct: Option<Direct>,
}

/// Why there is no answer to go on with.
#[derive(Debug)]
pub(super) enum Trouble {
    /// A status that is no success, and what came with it.
    Status(StatusCode, Bytes),
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Trouble::Failed(failure)
    }
}

impl Site {
    pub(super) fn new(
        name: &str,
        url: &Url,
        headers: &BTreeMap<String, SecretText>,
        auth: Option<Arc<dyn Authorize>>,
    ) -> Result<Site, Problem> {
        let mut all = HeaderMap::new();
        for (key, value) in headers {
            let unusable = |what: &str| {
                Problem::bad_config(format!("the header {key} of upstream '{name}' {what}"))
                    .hint(format!("correct headers of mcp_servers.{name}"))
            };
            let field = HeaderName::from_bytes(key.as_bytes())
                .map_err(|_| unusable("is not a header's name"))?;
            let mut value = HeaderValue::from_str(value.expose())
                .map_err(|_| unusable("has a value that no header can have"))?;
            value.set_sensitive(true);
            all.insert(field, value);
        }
        let (name, direct) = (name.to_owned(), Direct::to(url));
        Ok(Site { name, url: url.clone(), headers: all, auth, direct })
    }

    /// The same server, asked at another address of its own.
    pub(super) fn at(self, url: Url) -> Site {
        Site { direct: Direct::to(&url), url, ..self }
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Ask, and return with the head of a successful answer.
    pub(super) async fn ask(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Trouble> {
        let (mut url, mut hops, mut challenged) = (self.url.clone(), 0, false);
        loop {
            let headers = self.dress(headers.clone()).await?;
            let response = self.send(method.clone(), &url, headers, body.clone()).await?;
            let status = response.status();
            if status.is_success() {
                return Ok(response);
            }
            match status {
                StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
                    url = self.redirected(&url, &response, &mut hops)?;
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    if challenged || !self.challenged(&response).await? {
                        return Err(Failure::Unauthorized(self.unauthorized(status)).into());
                    }
                    challenged = true;
                }
                StatusCode::TOO_MANY_REQUESTS => {
                    return Err(Failure::NotSent(self.busy(Code::RateLimited, &response)).into());
                }
                StatusCode::SERVICE_UNAVAILABLE if response.headers().contains_key(RETRY_AFTER) => {
                    return Err(Failure::NotSent(self.busy(Code::Unavailable, &response)).into());
                }
                _ => {
                    let page = start_of(response, ERROR_PAGE).await;
                    return Err(Trouble::Status(status, page));
                }
            }
        }
    }

    async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Failure> {
        // Redirects lead to no other server.
        if let Some(direct) = &self.direct {
            let answer = direct.ask(method, url, headers, body).await;
            return answer.map(Response::from).map_err(|broken| match broken {
                Broken::NotConnected(error) => self.unreachable(&reason(&error)),
                Broken::Lost(error) => Failure::Lost(self.broken_off(&reason(&error))),
            });
        }
        let client = CLIENT.as_ref().map_err(|problem| Failure::NotSent(problem.clone()))?;
        let mut request = reqwest::Request::new(method, url.clone());
        *request.headers_mut() = headers;
        if !body.is_empty() {
            *request.body_mut() = Some(body.into());
        }
        client.execute(request).await.map_err(|error| {
            let connecting = error.is_connect() || error.is_builder();
            let why = reason(&error.without_url());
            match connecting {
                true => self.unreachable(&why),
                false => Failure::Lost(self.broken_off(&why)),
            }
        })
    }

    /// All of a body, if it is not too long.
    pub(super) async fn read(&self, mut response: Response, most: usize) -> Result<Bytes, Failure> {
        // The usual answer is one piece, and taken as it is.
        let (mut first, mut whole) = (Bytes::new(), Vec::new());
        let lost =
            |error: reqwest::Error| Failure::Lost(self.broken_off(&reason(&error.without_url())));
        while let Some(chunk) = response.chunk().await.map_err(lost)? {
            if first.len().max(whole.len()) + chunk.len() > most {
                return Err(Failure::Lost(wire::too_long(&self.name, most)));
            }
            if first.is_empty() {
                first = chunk;
                continue;
            }
            if whole.is_empty() {
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(if whole.is_empty() { first } else { whole.into() })
    }

    /// What a status means for whoever asked, when nothing else explains it.
    pub(super) fn refused(&self, status: StatusCode, page: &[u8]) -> Problem {
        let (name, origin) = (&self.name, origin(&self.url));
        let hint = match status.is_server_error() {
            true => format!("see the log of {origin}"),
            false => format!("see whether url and transport of mcp_servers.{name} are right"),
        };
        let text = String::from_utf8_lossy(page);
        let said = match text.trim() {
            "" => String::new(),
            text => format!(": {}", shorten(text)),
        };
        Problem::unavailable(format!("upstream '{name}' answered with HTTP {status}{said}"))
            .retryable_if(status.is_server_error())
            .hint(hint)
    }

    /// With what goes with everything; what a request says itself stands.
    async fn dress(&self, mut headers: HeaderMap) -> Result<HeaderMap, Failure> {
        for (name, value) in &self.headers {
            headers.entry(name).or_insert_with(|| value.clone());
        }
        let Some(auth) = &self.auth else { return Ok(headers) };
        if let Some(token) = auth.header().await.map_err(Failure::Unauthorized)? {
            let mut value = HeaderValue::from_str(token.expose()).map_err(|_| {
                let name = &self.name;
                let message = format!("the token for upstream '{name}' does not fit a header");
                Failure::Unauthorized(Problem::bad_config(message))
            })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    fn redirected(&self, from: &Url, answer: &Response, hops: &mut usize) -> Result<Url, Failure> {
        *hops += 1;
        let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let to = location.and_then(|location| from.join(location).ok());
        match to {
            Some(to) if to.origin() == self.url.origin() && *hops <= MOST_HOPS => Ok(to),
            Some(to) => {
                let (name, to) = (&self.name, origin(&to));
                let message =
                    format!("upstream '{name}' sends us on to {to}, which is not followed");
                Err(Failure::NotSent(
                    Problem::unavailable(message)
                        .retryable_if(false)
                        .hint(format!("if it moved there, set url of mcp_servers.{name}")),
                ))
            }
            None => {
                let message = format!("upstream '{}' sends us on, but not where to", self.name);
                Err(Failure::NotSent(Problem::unavailable(message).retryable_if(false)))
            }
        }
    }

    /// Whether it is worth one more try.
    async fn challenged(&self, response: &Response) -> Result<bool, Failure> {
        let Some(auth) = &self.auth else { return Ok(false) };
        let challenges = response.headers().get_all(WWW_AUTHENTICATE).iter();
        let challenges: Vec<&str> = challenges.filter_map(|value| value.to_str().ok()).collect();
        let challenge = (!challenges.is_empty()).then(|| challenges.join(", "));
        let status = response.status().as_u16();
        auth.challenged(status, challenge).await.map_err(Failure::Unauthorized)
    }

    fn unauthorized(&self, status: StatusCode) -> Problem {
        let name = &self.name;
        let (what, hint) = match (status, &self.auth) {
            (StatusCode::FORBIDDEN, _) => (
                "does not allow this (HTTP 403)",
                format!("see what the account or token of mcp_servers.{name} may do"),
            ),
            (_, Some(_)) => (
                "does not accept who we say we are (HTTP 401)",
                format!("renew its token, or run: moonlark login {name}"),
            ),
            (_, None) => (
                "wants to know who we are (HTTP 401)",
                format!("set auth or headers of mcp_servers.{name}"),
            ),
        };
        Problem::new(Code::Forbidden, format!("upstream '{name}' {what}"))
            .hint(hint)
            .retryable_if(false)
    }

    fn busy(&self, code: Code, response: &Response) -> Problem {
        let status = response.status();
        let mut problem =
            Problem::new(code, format!("upstream '{}' answered with HTTP {status}", self.name));
        let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        // The other form, a date, is rare, and clocks differ.
        problem.retry_after = after.and_then(|seconds| seconds.trim().parse().ok());
        match problem.retry_after {
            Some(seconds) => problem.hint(format!("try again in {seconds} seconds")),
            None => problem.hint("try again later"),
        }
    }

    fn unreachable(&self, why: &str) -> Failure {
        let (name, origin) = (&self.name, origin(&self.url));
        Failure::NotSent(
            Problem::unavailable(format!("upstream '{name}' cannot be reached at {origin}: {why}"))
                .hint("see whether the server is running, and reachable from here"),
        )
    }

    fn broken_off(&self, why: &str) -> Problem {
        let name = &self.name;
        Problem::unavailable(format!("upstream '{name}' broke the connection off: {why}"))
    }
}

fn client() -> Result<Client, Problem> {
    // Fails only when another part of the process was first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        Client::builder()
            .user_agent(concat!("moonlark/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            // A stream may say nothing for hours; this is how its end is noticed.
            .tcp_keepalive(Duration::from_secs(30))
            // An event must not wait in a compressor until there are more.
            .no_gzip()
    };
    // Without any root certificate on the system there is no trusted https, but
    // http must go on working.
    builder().build().or_else(|_| builder().tls_certs_only([]).build()).map_err(|error| {
        Problem::unavailable(format!("web requests cannot be made: {}", error.without_url()))
    })
}

/// The kind of content, without its parameters.
pub(super) fn content_type(response: &Response) -> &str {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().split(';').next().unwrap_or_default().trim()
}

/// An address without what may be secret in it.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The innermost of an error's reasons: the outer ones only say "request".
fn reason(error: &dyn Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

async fn start_of(mut response: Response, most: usize) -> Bytes {
    let mut start = Vec::new();
    while start.len() < most
        && let Ok(Some(chunk)) = response.chunk().await
    {
        start.extend_from_slice(&chunk[..chunk.len().min(most - start.len())]);
    }
    start.into()
}
