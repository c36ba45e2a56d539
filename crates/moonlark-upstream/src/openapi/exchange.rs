//! One request and its answer: redirects, retries, time.
//!
//! Credentials go to the API and nowhere else. Where an answer leads to another
//! host, only its address is followed, only when that only reads, and only to
//! public addresses.

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use http::header::{AUTHORIZATION, COOKIE, HeaderMap, LOCATION};
use http::{Method, StatusCode};
use moonlark_core::grant::is_public;
use moonlark_core::tool::Effects;
use moonlark_core::trace::{Fact, What};
use moonlark_core::value::shorten;
use moonlark_core::{Call, Code, Problem, Result};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Response};
use tokio::time::Instant;
use url::{Host, Url};

use super::answer::{Read, read_bytes, retry_after};
use super::request::Request;
use crate::trace_headers;

const MOST_REDIRECTS: usize = 5;
/// Further tries of a call that only reads.
const MOST_RETRIES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// For the operator's own APIs, wherever they are.
pub(crate) static OWN: LazyLock<Result<Client>> = LazyLock::new(|| client(None));
/// For where APIs send us on to.
pub(crate) static ELSEWHERE: LazyLock<Result<Client>> = LazyLock::new(|| client(Some(PublicOnly)));

fn client(resolver: Option<PublicOnly>) -> Result<Client> {
    // Fails only when another part of the process was first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        let builder = Client::builder()
            .user_agent(concat!("moonlark/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true);
        match resolver {
            Some(resolver) => builder.dns_resolver(resolver),
            None => builder,
        }
    };
    builder().build().or_else(|_| builder().tls_certs_only([]).build()).map_err(|error| {
        Problem::unavailable(format!("web requests cannot be made: {}", error.without_url()))
    })
}

#[derive(Debug, Clone, Copy)]
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let all = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = all.filter(|it| is_public(it.ip())).collect();
            match public.is_empty() {
                true => Err("the name leads to no public address".into()),
                false => Ok(Box::new(public.into_iter()) as Addrs),
            }
        })
    }
}

pub(crate) struct Exchange<'a> {
    pub(crate) api: &'a str,
    pub(crate) call: &'a Call,
    pub(crate) method: Method,
    /// The operation's path, with its placeholders.
    pub(crate) template: &'a str,
    pub(crate) effects: Effects,
    /// The document names the address, and nobody vouches for it.
    pub(crate) public_only: bool,
    /// Headers that hold secrets, beside the usual ones.
    pub(crate) secret_headers: &'a HeaderMap,
}

impl Exchange<'_> {
    /// Send it, again if the API says that it is busy and nothing can happen
    /// twice.
    pub(crate) async fn run(&self, request: &Request) -> Result<Read> {
        let (mut tries, mut broken) = (0, false);
        loop {
            let read = match self.follow(request).await {
                // Once more, where nothing can happen twice.
                Err(problem) if self.repeatable() && !broken && is_transport(&problem) => {
                    broken = true;
                    continue;
                }
                read => read?,
            };
            let busy = matches!(read.status.as_u16(), 429 | 503);
            if !busy || !self.effects.read_only || tries >= MOST_RETRIES {
                return Ok(read);
            }
            let asked = retry_after(&read.headers).map(|it| Duration::from_secs(it.into()));
            let pause = asked.unwrap_or(FIRST_PAUSE * 2_u32.pow(tries));
            // Waiting past the end would lose an answer that is there.
            if Instant::now() + pause >= self.call.deadline() {
                return Ok(read);
            }
            tries += 1;
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether a call that was made twice did the same as one.
    fn repeatable(&self) -> bool {
        self.effects.read_only || self.effects.idempotent
    }

    async fn follow(&self, request: &Request) -> Result<Read> {
        let (mut url, mut method) = (request.url.clone(), self.method.clone());
        let (mut body, mut at_home) = (request.body.clone(), true);
        if self.public_only && !may_go(&url) {
            return Err(self.not_public(&url));
        }
        for _ in 0..=MOST_REDIRECTS {
            let client = if at_home && !self.public_only { &OWN } else { &ELSEWHERE };
            let client = client.as_ref().map_err(Clone::clone)?;
            let mut builder = client.request(method.clone(), url.clone());
            let mut spanning = self.call.spanning(|| self.told(&method, &url));
            builder = builder.headers(match at_home {
                true => {
                    let mut headers = request.headers.clone();
                    trace_headers::add(&mut headers, spanning.trace());
                    headers
                }
                false => self.harmless(&request.headers),
            });
            if let Some(body) = &body {
                builder = builder.body(body.clone());
            }
            let mut response = match builder.send().await {
                Ok(response) => response,
                Err(error) => {
                    let problem = self.unreachable(&url, error);
                    spanning.end(problem.code.as_str());
                    return Err(problem);
                }
            };
            let status = response.status();
            spanning.note("http.response.status_code", Fact::Number(status.as_u16().into()));
            let failed = status.is_client_error() || status.is_server_error();
            let outcome = if failed { Code::ToolError.as_str() } else { "ok" };
            let target = match self.redirect(&url, &response) {
                Ok(target) => target,
                Err(problem) => {
                    spanning.end(problem.code.as_str());
                    return Err(problem);
                }
            };
            let Some(target) = target else {
                let headers = std::mem::take(response.headers_mut());
                let bytes = read_bytes(response, self.call.limits().http_body).await;
                spanning.end(bytes.as_ref().map_or_else(|it| it.code.as_str(), |_| outcome));
                let bytes = bytes?;
                return Ok(Read { status, headers, bytes });
            };
            spanning.end(outcome);
            let reads = matches!(method, Method::GET | Method::HEAD);
            let becomes_get = response.status() == StatusCode::SEE_OTHER
                || (matches!(response.status().as_u16(), 301 | 302) && method == Method::POST);
            at_home = target.origin() == request.url.origin();
            if !at_home && (!reads || !may_go(&target)) {
                return Err(self.sent_away(&target));
            }
            if becomes_get && !reads {
                (method, body) = (Method::GET, None);
            }
            url = target;
        }
        Err(Problem::unavailable(format!("API '{}' sends us in circles", self.api))
            .retryable_if(false))
    }

    /// The request as traces have it: nothing of what it is asked with.
    fn told(&self, method: &Method, url: &Url) -> What {
        let text = |text: &str| Fact::Text(text.to_owned());
        let mut facts = vec![
            ("http.request.method", text(method.as_str())),
            ("url.template", text(self.template)),
            ("moonlark.source", text(self.api)),
        ];
        facts.extend(url.host_str().map(|host| ("server.address", text(host))));
        let port = url.port_or_known_default();
        facts.extend(port.map(|port| ("server.port", Fact::Number(port.into()))));
        What::Request { name: format!("{method} {}", self.template), facts }
    }

    /// What may be told to strangers.
    fn harmless(&self, headers: &HeaderMap) -> HeaderMap {
        let mut kept = headers.clone();
        for name in [AUTHORIZATION, COOKIE].iter().chain(self.secret_headers.keys()) {
            kept.remove(name);
        }
        let secret: Vec<_> =
            kept.iter().filter(|(_, it)| it.is_sensitive()).map(|(name, _)| name.clone()).collect();
        secret.iter().for_each(|name| drop(kept.remove(name)));
        kept
    }

    fn redirect(&self, from: &Url, response: &Response) -> Result<Option<Url>> {
        if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
        let target =
            std::str::from_utf8(location.as_bytes()).ok().and_then(|it| from.join(it).ok());
        let target = target.filter(|it| matches!(it.scheme(), "http" | "https"));
        // From a safe connection to one that everybody reads.
        let target = target.filter(|it| from.scheme() == "http" || it.scheme() == "https");
        target.map(Some).ok_or_else(|| {
            let message = format!("API '{}' redirects to where we do not follow", self.api);
            Problem::unavailable(message).retryable_if(false)
        })
    }

    fn sent_away(&self, target: &Url) -> Problem {
        let host = target.host_str().unwrap_or_default();
        Problem::unavailable(format!(
            "API '{}' sends us on to {}, which is not followed",
            self.api,
            shorten(host)
        ))
        .hint(format!("if it moved there, set base_url of apis.{}", self.api))
        .retryable_if(false)
    }

    fn not_public(&self, url: &Url) -> Problem {
        let there = url.origin().ascii_serialization();
        Problem::denied(format!(
            "the document of API '{}' names {there}, which is no public address",
            self.api
        ))
        .hint(format!(
            "if that is right, set base_url of apis.{}, or add auth_hosts = [\"{there}\"]",
            self.api
        ))
    }

    fn unreachable(&self, url: &Url, error: reqwest::Error) -> Problem {
        let never_sent = error.is_connect() || error.is_builder();
        let error = error.without_url();
        let mut inner: &dyn std::error::Error = &error;
        while let Some(source) = inner.source() {
            inner = source;
        }
        let (at, why) =
            (url.origin().ascii_serialization(), shorten(&inner.to_string()).into_owned());
        match never_sent || self.repeatable() {
            true => {
                Problem::unavailable(format!("API '{}' cannot be reached at {at}: {why}", self.api))
                    .hint(format!(
                        "see base_url of apis.{}, and whether it is reachable from here",
                        self.api
                    ))
            }
            false => Problem::unavailable(format!(
                "API '{}' at {at} broke off: {why}; the call may have happened",
                self.api
            ))
            .retryable_if(false),
        }
    }
}

/// Whether the connection failed, and not the API.
fn is_transport(problem: &Problem) -> bool {
    problem.code == Code::Unavailable && problem.retryable()
}

/// An address by number needs no resolver, so it is judged here.
pub(crate) fn may_go(target: &Url) -> bool {
    match target.host() {
        Some(Host::Ipv4(ip)) => is_public(ip.into()),
        Some(Host::Ipv6(ip)) => is_public(ip.into()),
        Some(Host::Domain(_)) => true,
        None => false,
    }
}
