//! Timeout of request bodies, which have to keep coming.
//!
//! Two limits, as servers that have met slow clients have them. Between two pieces there
//! may be a pause, but a bounded one: who stops is gone. And all together it must come at
//! a least rate, or a letter a minute would hold a request for as long as the client
//! likes. A limit on the whole time alone would cut off large bodies on slow lines; a
//! rate alone would let somebody who began quickly stop for hours.
//!
//! The time runs only while somebody waits for the body and nothing is there. Where it
//! comes with its head, no timer is ever set.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use moonlark_core::{Problem, ProblemCode};
use tokio::time::{Instant, Sleep, sleep_until};
use tower::ServiceExt;

use crate::http_status;
use crate::router::HttpApp;

/// How a body has to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct BodyProgressLimit {
    /// The longest pause, and what the whole may take without regard to its size.
    pub(super) pause: Duration,
    /// Bytes in each second beyond that.
    pub(super) rate: u32,
}

/// What a modem carries.
const MIN_BODY_BYTES_PER_SECOND: u32 = 4 * 1024;
const MAX_BODY_PAUSE: Duration = Duration::from_secs(30);

impl Default for BodyProgressLimit {
    fn default() -> Self {
        Self { pause: MAX_BODY_PAUSE, rate: MIN_BODY_BYTES_PER_SECOND }
    }
}

impl BodyProgressLimit {
    /// Until when the next piece has to be there, of a body that was first waited for at
    /// `since` and of which this much has come.
    fn next_deadline(self, since: Instant, now: Instant, received: u64) -> Instant {
        let earned = Duration::from_secs(received / u64::from(self.rate.max(1)));
        (now + self.pause).min(since + self.pause + earned)
    }
}

/// The answer; or, if the body did not come in time, that.
pub(super) async fn answer_request(
    app: HttpApp,
    request: Request<Incoming>,
    pace: BodyProgressLimit,
) -> Response {
    if request.body().is_end_stream() {
        return call_app(app, request.map(Body::new)).await;
    }
    let late = Arc::new(AtomicBool::new(false));
    let request = request.map(|body| Body::new(TimedBody::new(body, pace, late.clone())));
    let response = call_app(app, request).await;
    // Whoever read it was told that it broke off, and says so in many ways.
    if late.load(Ordering::Relaxed) {
        http_status::problem_response(
            &Problem::new(ProblemCode::Timeout, "the request body did not arrive in time")
                .with_hint("nothing was called: send the request again, without long pauses"),
        )
    } else {
        response
    }
}

async fn call_app(app: HttpApp, request: Request<Body>) -> Response {
    match app.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// A body that ends with an error when it does not come as it has to.
struct TimedBody<B> {
    inner: B,
    pace: BodyProgressLimit,
    late: Arc<AtomicBool>,
    received: u64,
    /// When it was first waited for.
    since: Option<Instant>,
    /// Nothing was there, when it was asked for last.
    asked: bool,
    timer: Option<Pin<Box<Sleep>>>,
    /// The timer is for the pause that is now.
    armed: bool,
}

impl<B> TimedBody<B> {
    fn new(inner: B, pace: BodyProgressLimit, late: Arc<AtomicBool>) -> Self {
        let (received, since, asked) = (0, None, false);
        Self { inner, pace, late, received, since, asked, timer: None, armed: false }
    }

    /// Whether the time is up.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.armed {
            let now = Instant::now();
            let since = *self.since.get_or_insert(now);
            let deadline = self.pace.next_deadline(since, now, self.received);
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(deadline),
                None => self.timer = Some(Box::pin(sleep_until(deadline))),
            }
            self.armed = true;
        }
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl<B> HttpBody for TimedBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<axum::BoxError>,
{
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(context) {
            (this.asked, this.armed) = (false, false);
            if let Some(Ok(data)) = frame.as_ref().map(|it| it.as_ref().map(Frame::data_ref)) {
                this.received += data.map_or(0, |data| data.len() as u64);
            }
            return Poll::Ready(frame.map(|it| it.map_err(Into::into)));
        }
        if !this.asked {
            // What has arrived is handed over only now that it is asked for: another
            // look, before there is need of a timer.
            this.asked = true;
            this.since.get_or_insert_with(Instant::now);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(this.poll_timeout(context));
        this.late.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err("the request body did not arrive in time".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_may_pause_but_not_for_long_and_has_to_come_at_a_least_rate() {
        let since = Instant::now();
        let pace = BodyProgressLimit { pause: Duration::from_secs(30), rate: 10 };
        let left = |at: u64, received: u64| {
            let now = since + Duration::from_secs(at);
            pace.next_deadline(since, now, received).saturating_duration_since(now).as_secs()
        };
        assert_eq!(left(0, 0), 30);
        assert_eq!(left(20, 2), 10, "it trickles");
        assert_eq!(left(31, 9), 0, "it has trickled for too long");
        assert_eq!(left(40, 300), 20, "it is slow");
        assert_eq!(left(1000, 10_000), 30, "it is slow and steady");
        assert_eq!(left(5, 1_000_000), 30, "it came quickly, and has stopped");
    }

    /// As a connection hands over what it has: each piece when it was asked for.
    #[tokio::test]
    async fn what_is_there_at_once_sets_no_timer() {
        let (mut left, mut asked) = (50, false);
        let pieces = futures::stream::poll_fn(move |context| {
            asked = !asked;
            if asked {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            left -= 1;
            Poll::Ready((left >= 0).then(|| Ok::<_, axum::Error>(Bytes::from_static(b"piece"))))
        });
        let mut coming =
            TimedBody::new(Body::from_stream(pieces), BodyProgressLimit::default(), Arc::default());
        let mut read = 0;
        while let Some(frame) =
            std::future::poll_fn(|it| Pin::new(&mut coming).poll_frame(it)).await
        {
            read += frame.unwrap().into_data().unwrap().len();
        }
        assert_eq!((read, coming.received), (250, 250));
        assert!(coming.timer.is_none());
    }
}
