//! HTTP exchange with an API: redirects, retries, time.
//!
//! Credentials go to the API and nowhere else. Where an answer leads to another
//! host, only its address is followed, only when that only reads, and only to
//! public addresses: nothing of the request goes along but what every request has.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use http::Method;
use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderName, USER_AGENT};
use moonlark_core::grant::is_public_address;
use moonlark_core::tool::CallEffects;
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, ProblemCode, Result};
use moonlark_gateway::trace::{SpanAttribute, SpanKind};
use moonlark_gateway::{Call, CallOutcome};
use moonlark_http::{
    RetryBackoff, add_trace_headers, becomes_get, innermost_error_text, is_redirect, location_url,
    retry_after, send_with_body,
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Response};
use tokio::time::Instant;
use url::{Host, Url};

use crate::api_response::{ApiResponse, read_bytes};
use crate::request_builder::ApiRequest;

const MAX_REDIRECTS: usize = 5;
/// Further tries of a call that only reads.
const MAX_RETRIES: u32 = 3;
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(500);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(60);
/// What another host may be sent of a request. Any other header may be an argument
/// that is a secret.
const HARMLESS_HEADERS: [HeaderName; 3] = [ACCEPT, ACCEPT_ENCODING, USER_AGENT];

/// For the operator's own APIs, wherever they are.
pub(crate) static API_HTTP_CLIENT: LazyLock<Result<Client>> =
    LazyLock::new(|| build_api_http_client(None));
/// For where APIs send us on to.
pub(crate) static PUBLIC_HTTP_CLIENT: LazyLock<Result<Client>> =
    LazyLock::new(|| build_api_http_client(Some(PublicOnlyResolver)));

fn build_api_http_client(resolver: Option<PublicOnlyResolver>) -> Result<Client> {
    moonlark_http::build_http_client(|builder| {
        let builder = builder.tcp_nodelay(true);
        match resolver {
            Some(resolver) => builder.dns_resolver(resolver),
            None => builder,
        }
    })
}

#[derive(Debug, Clone, Copy)]
struct PublicOnlyResolver;

impl Resolve for PublicOnlyResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let all = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = all.filter(|it| is_public_address(it.ip())).collect();
            if public.is_empty() {
                Err("the name leads to no public address".into())
            } else {
                Ok(Box::new(public.into_iter()) as Addrs)
            }
        })
    }
}

pub(crate) struct ApiExchange<'a> {
    pub(crate) api: &'a str,
    pub(crate) call: &'a Call,
    pub(crate) method: Method,
    /// The operation's path, with its placeholders.
    pub(crate) template: &'a str,
    pub(crate) effects: CallEffects,
    /// The document names the address, and nobody vouches for it.
    pub(crate) public_only: bool,
    /// Headers that hold secrets, beside the usual ones.
    pub(crate) secret_headers: &'a HeaderMap,
}

impl ApiExchange<'_> {
    /// Send it, again if the API says that it is busy and nothing can happen
    /// twice.
    pub(crate) async fn send_with_retries(&self, request: &ApiRequest) -> Result<ApiResponse> {
        let (mut tries, mut broken) = (0, false);
        let mut backoff = RetryBackoff::new(FIRST_RETRY_PAUSE, MAX_RETRY_PAUSE);
        loop {
            let read = match self.send_following_redirects(request).await {
                // Once more, where nothing can happen twice.
                Err(problem)
                    if self.is_repeatable() && !broken && is_transport_problem(&problem) =>
                {
                    broken = true;
                    continue;
                }
                read => read?,
            };
            let busy = matches!(read.status.as_u16(), 429 | 503);
            if !busy || !self.effects.read_only || tries >= MAX_RETRIES {
                return Ok(read);
            }
            let asked = retry_after(&read.headers);
            let pause = asked.unwrap_or_else(|| backoff.next_pause());
            // Waiting past the end would lose an answer that is there.
            let resumes_at = Instant::now().checked_add(pause);
            if resumes_at.is_none_or(|at| at >= self.call.deadline()) {
                return Ok(read);
            }
            tries += 1;
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether a call that was made twice did the same as one.
    fn is_repeatable(&self) -> bool {
        self.effects.read_only || self.effects.idempotent
    }

    async fn send_following_redirects(&self, request: &ApiRequest) -> Result<ApiResponse> {
        let (mut url, mut method) = (request.url.clone(), self.method.clone());
        let (mut body, mut at_home) = (request.body.clone(), true);
        if self.public_only && !is_public_target(&url) {
            return Err(self.not_public_problem(&url));
        }
        for _ in 0..=MAX_REDIRECTS {
            let client =
                if at_home && !self.public_only { &API_HTTP_CLIENT } else { &PUBLIC_HTTP_CLIENT };
            let client = client.as_ref().map_err(Clone::clone)?;
            let mut message = reqwest::Request::new(method.clone(), url.clone());
            let mut spanning = self.call.start_span(|| self.describe_span(&method, &url));
            *message.headers_mut() = if at_home {
                let mut headers = request.headers.clone();
                if let Some(trace) = spanning.trace() {
                    add_trace_headers(&mut headers, &trace.to_traceparent(), trace.tracestate());
                }
                headers
            } else {
                harmless_headers(&request.headers, self.secret_headers)
            };
            let sent = body.clone().filter(|_| at_home).unwrap_or_default();
            let mut response = match send_with_body(client, message, sent).await {
                Ok(response) => response,
                Err(error) => {
                    let problem = self.unreachable_problem(&url, error);
                    spanning.end_with(problem.code.into());
                    return Err(problem);
                }
            };
            let status = response.status();
            spanning.set_attribute(
                "http.response.status_code",
                SpanAttribute::Number(status.as_u16().into()),
            );
            let failed = status.is_client_error() || status.is_server_error();
            let outcome = if failed { ProblemCode::ToolError.into() } else { CallOutcome::Ok };
            let target = match self.redirect_target(&url, &response) {
                Ok(target) => target,
                Err(problem) => {
                    spanning.end_with(problem.code.into());
                    return Err(problem);
                }
            };
            let Some(target) = target else {
                let headers = std::mem::take(response.headers_mut());
                let bytes = read_bytes(response, self.call.limits().http_body).await;
                spanning.end_with(bytes.as_ref().map_or_else(|it| it.code.into(), |_| outcome));
                let bytes = bytes?;
                return Ok(ApiResponse { status, headers, bytes });
            };
            spanning.end_with(outcome);
            let reads = matches!(method, Method::GET | Method::HEAD);
            // A host that we were sent to does not choose what we ask at home with a key.
            at_home = at_home && target.origin() == request.url.origin();
            if !at_home && (!reads || !is_public_target(&target)) {
                return Err(self.foreign_redirect_problem(&target));
            }
            if !reads && becomes_get(response.status(), &method) {
                (method, body) = (Method::GET, None);
            }
            url = target;
        }
        Err(Problem::unavailable(format!("API '{}': too many redirects", self.api))
            .with_retryable(false))
    }

    /// The request as traces have it: nothing of what it is asked with.
    fn describe_span(&self, method: &Method, url: &Url) -> SpanKind {
        let text = |text: &str| SpanAttribute::Text(text.to_owned());
        let mut facts = vec![
            ("http.request.method", text(method.as_str())),
            ("url.template", text(self.template)),
            ("moonlark.source", text(self.api)),
        ];
        facts.extend(url.host_str().map(|host| ("server.address", text(host))));
        let port = url.port_or_known_default();
        facts.extend(port.map(|port| ("server.port", SpanAttribute::Number(port.into()))));
        SpanKind::Request { name: format!("{method} {}", self.template), facts }
    }

    fn redirect_target(&self, from: &Url, response: &Response) -> Result<Option<Url>> {
        if !is_redirect(response.status()) {
            return Ok(None);
        }
        let Some(target) = location_url(from, response.headers()) else { return Ok(None) };
        let target = target.ok().filter(|it| matches!(it.scheme(), "http" | "https"));
        // From a safe connection to one that everybody reads.
        let target = target.filter(|it| from.scheme() == "http" || it.scheme() == "https");
        target.map(Some).ok_or_else(|| {
            let message = format!("API '{}': redirect to a URL that is not followed", self.api);
            Problem::unavailable(message).with_retryable(false)
        })
    }

    fn foreign_redirect_problem(&self, target: &Url) -> Problem {
        let origin = target.origin().ascii_serialization();
        Problem::unavailable(format!(
            "API '{}' redirects to {}, another origin: not followed",
            self.api,
            shorten_text(&origin)
        ))
        .with_hint(format!("if it moved there, set base_url of apis.{}", self.api))
        .with_retryable(false)
    }

    fn not_public_problem(&self, url: &Url) -> Problem {
        let there = url.origin().ascii_serialization();
        Problem::denied(format!(
            "the document of API '{}' names {there}, which is no public address",
            self.api
        ))
        .with_hint(format!(
            "if that is right, set base_url of apis.{}, or add auth_hosts = [\"{there}\"]",
            self.api
        ))
    }

    fn unreachable_problem(&self, url: &Url, error: reqwest::Error) -> Problem {
        let never_sent = error.is_connect() || error.is_builder();
        let why = innermost_error_text(&error.without_url());
        let (at, why) = (url.origin().ascii_serialization(), shorten_text(&why));
        if never_sent || self.is_repeatable() {
            Problem::unavailable(format!("API '{}' cannot be reached at {at}: {why}", self.api))
                .with_hint(format!(
                    "see base_url of apis.{}, and whether it is reachable from here",
                    self.api
                ))
        } else {
            Problem::unavailable(format!(
                "API '{}' at {at} broke off: {why}; the call may have happened",
                self.api
            ))
            .with_retryable(false)
        }
    }
}

/// The headers of a request that another host may be sent.
fn harmless_headers(headers: &HeaderMap, secret: &HeaderMap) -> HeaderMap {
    let kept = HARMLESS_HEADERS.into_iter().filter(|name| !secret.contains_key(name));
    let values = kept.filter_map(|name| headers.get(&name).map(|value| (name, value.clone())));
    values.filter(|(_, value)| !value.is_sensitive()).collect()
}

/// Whether the connection failed, and not the API.
fn is_transport_problem(problem: &Problem) -> bool {
    problem.code == ProblemCode::Unavailable && problem.is_retryable()
}

/// An address by number needs no resolver, so it is judged here.
pub(crate) fn is_public_target(target: &Url) -> bool {
    match target.host() {
        Some(Host::Ipv4(ip)) => is_public_address(ip.into()),
        Some(Host::Ipv6(ip)) => is_public_address(ip.into()),
        Some(Host::Domain(_)) => true,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;

    use super::*;

    #[test]
    fn another_host_is_sent_no_header_but_harmless_ones() {
        let mut headers = HeaderMap::new();
        for name in [
            "accept",
            "user-agent",
            "authorization",
            "cookie",
            "x-api-key",
            "content-type",
            "x-note",
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("v"));
        }
        let kept = |headers: &HeaderMap, secret: &HeaderMap| -> Vec<String> {
            harmless_headers(headers, secret).keys().map(ToString::to_string).collect()
        };
        assert_eq!(kept(&headers, &HeaderMap::new()), ["accept", "user-agent"]);
        // The operator may keep a secret in one of these.
        let secret = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static("v"))]);
        assert_eq!(kept(&headers, &secret), ["accept"]);
        headers.get_mut(ACCEPT).unwrap().set_sensitive(true);
        assert_eq!(kept(&headers, &secret), [""; 0]);
    }
}
