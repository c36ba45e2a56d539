//! A request and its answer: every hop is checked, time is bounded by the call.

use std::time::Duration;

use http::{Method, StatusCode};
use moonlark_core::limits::format_seconds;
use moonlark_core::{Problem, ProblemCode, Result};
use moonlark_gateway::Call;
use moonlark_http::{RetryBackoff, is_redirect, location_url, retry_after, send_with_body};
use reqwest::Response;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::http_answer::HttpAnswer;
use super::http_request::{HttpRequestSpec, OutgoingHttpRequest, printable_url};
use super::{http_client, http_errors};

const MAX_HTTP_REDIRECTS: usize = 10;
const MAX_HTTP_RETRIES: u32 = 10;
/// The first pause before trying again; each further one is twice as long.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(250);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);

pub(super) async fn send_request(
    call: Call,
    what: &'static str,
    method: Method,
    ask: HttpRequestSpec,
) -> Result<HttpAnswer> {
    let started = Instant::now();
    let until = script_deadline(started, ask.timeout)?;
    let follow = ask.follow_redirects;
    if ask.retries > MAX_HTTP_RETRIES {
        return Err(Problem::bad_request(format!("retries must be at most {MAX_HTTP_RETRIES}")));
    }
    let retries = ask.retries;
    let request = OutgoingHttpRequest::new(method, ask, call.limits().value)?;
    let target = request.printable_url();
    let backoff = RetryBackoff::new(FIRST_RETRY_PAUSE, MAX_RETRY_PAUSE);
    let mut exchange = HttpExchange { call, what, retries, tried: 0, backoff, until };
    let Some(until) = until else { return exchange.run_to_answer(request, follow).await };
    timeout_at(until, exchange.run_to_answer(request, follow)).await.unwrap_or_else(|_| {
        let spent = format_seconds(until - started);
        Err(Problem::new(ProblemCode::Timeout, format!("no answer from {target} within {spent}")))
    })
}

/// When the script's own patience ends. The call's deadline is the caller's to
/// enforce: it drops the whole exchange.
fn script_deadline(now: Instant, timeout: Option<f64>) -> Result<Option<Instant>> {
    let Some(timeout) = timeout else { return Ok(None) };
    let own = Duration::try_from_secs_f64(timeout).ok().filter(|own| !own.is_zero());
    let Some(own) = own else {
        return Err(Problem::bad_request(format!(
            "timeout must be a number of seconds over 0, got {timeout}"
        )));
    };
    Ok(now.checked_add(own))
}

struct HttpExchange {
    call: Call,
    what: &'static str,
    retries: u32,
    tried: u32,
    backoff: RetryBackoff,
    until: Option<Instant>,
}

impl HttpExchange {
    async fn run_to_answer(
        &mut self,
        mut request: OutgoingHttpRequest,
        follow: bool,
    ) -> Result<HttpAnswer> {
        for _ in 0..=MAX_HTTP_REDIRECTS {
            let response = self.send_with_retries(&request).await?;
            let target = if follow { redirect_target(&request.url, &response)? } else { None };
            match target {
                Some(url) => request = request.into_redirected(response.status(), url),
                None => return HttpAnswer::from_response(&self.call, &request, response).await,
            }
        }
        Err(Problem::unavailable(format!(
            "more than {MAX_HTTP_REDIRECTS} redirects, the last to {}",
            request.printable_url()
        ))
        .with_retryable(false))
    }

    /// Send one hop, again if that is asked for and was not understood as done:
    /// there was no connection, or the server said to come back later.
    async fn send_with_retries(&mut self, request: &OutgoingHttpRequest) -> Result<Response> {
        loop {
            let outcome = self.send_once(request).await;
            let pause = match &outcome {
                Ok(Ok(response)) => busy_retry_after(response)
                    .map(|asked| asked.unwrap_or_else(|| self.backoff.next_pause())),
                Ok(Err(error)) => {
                    http_errors::was_never_sent(error).then(|| self.backoff.next_pause())
                }
                Err(_) => None,
            };
            // Waiting past the end would lose an answer that is there.
            let again = pause.filter(|pause| {
                self.tried < self.retries
                    && Instant::now().checked_add(*pause).is_some_and(|then| {
                        then < self.call.deadline() && self.until.is_none_or(|until| then < until)
                    })
            });
            let Some(pause) = again else {
                return outcome?.map_err(|error| {
                    http_errors::explain_request_error(
                        self.call.grants(),
                        self.what,
                        &request.url,
                        &error,
                    )
                });
            };
            self.tried += 1;
            tokio::time::sleep(pause).await;
        }
    }

    async fn send_once(
        &self,
        request: &OutgoingHttpRequest,
    ) -> Result<Result<Response, reqwest::Error>> {
        let allowed = self.call.grants().check_url(self.what, &request.url)?;
        let client = http_client::client_for_reach(self.call.grants(), self.what, &allowed).await?;
        // Credentials in the address become a header.
        let message = client
            .request(request.method.clone(), allowed.url().clone())
            .headers(request.headers.clone())
            .build();
        let message = match message {
            Ok(message) => message,
            Err(error) => return Ok(Err(error)),
        };
        let started = Instant::now();
        let body = request.body.clone().unwrap_or_default();
        let outcome = send_with_body(&client, message, body).await;
        tracing::debug!(
            target: "http",
            method = %request.method,
            url = %self.call.scope().secrets.redact_text(&request.printable_url()),
            status = outcome.as_ref().ok().map(|response| response.status().as_u16()),
            milliseconds = started.elapsed().as_millis() as u64,
        );
        Ok(outcome)
    }
}

/// Where the answer sends us, if it does.
fn redirect_target(from: &Url, response: &Response) -> Result<Option<Url>> {
    if !is_redirect(response.status()) {
        return Ok(None);
    }
    let Some(location) = location_url(from, response.headers()) else { return Ok(None) };
    let mut url = location.map_err(|_| {
        Problem::unavailable(format!(
            "{} redirects to an address that is not valid",
            printable_url(from)
        ))
        .with_retryable(false)
    })?;
    url.set_fragment(None);
    Ok(Some(url))
}

/// The server asks to try again later, perhaps saying when.
fn busy_retry_after(response: &Response) -> Option<Option<Duration>> {
    let status = response.status();
    if status != StatusCode::TOO_MANY_REQUESTS && status != StatusCode::SERVICE_UNAVAILABLE {
        return None;
    }
    Some(retry_after(response.headers()))
}
