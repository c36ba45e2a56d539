//! Distributed tracing: trace context taken over from callers and handed on, and spans of
//! calls, runs and requests.
//!
//! [`TraceContext`] is the form of W3C Trace Context. A [`CallTracer`] takes what has ended;
//! without one, no span is made, and a trace that came in is handed on as it is.
//! Nothing here knows where spans go, and none of them has an argument in it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::call::Call;
use crate::call_outcome::CallOutcome;
use moonlark_core::record_id::RecordId;
use moonlark_core::tool::{Source, Tool};

/// The longest `tracestate`, and the most entries in one, that is handed on.
const MAX_TRACESTATE_BYTES: usize = 512;
const MAX_TRACESTATE_ENTRIES: usize = 32;

/// A place in a trace: what happens next is below `span`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    pub id: TraceId,
    pub span: SpanId,
    /// Whether anybody keeps it.
    pub sampled: bool,
    /// What others have to say about it, in their words.
    state: Option<Arc<str>>,
}

pub type TraceId = [u8; 16];
pub type SpanId = [u8; 8];

/// Takes what has ended.
pub trait CallTracer: Send + Sync {
    /// Whether a trace is kept: the one that came in, or a new one of this id.
    fn should_sample(&self, came_in: Option<&TraceContext>, id: &TraceId) -> bool;

    /// Never waits.
    fn record_span(&self, span: EndedSpan);
}

/// Something that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedSpan {
    pub trace: TraceContext,
    pub parent: Option<SpanId>,
    pub what: SpanKind,
    pub began: SystemTime,
    pub took: Duration,
    /// `ok`, or a code.
    pub outcome: CallOutcome,
}

impl EndedSpan {
    /// Something that has ended just now.
    fn new(
        trace: TraceContext,
        parent: Option<SpanId>,
        what: SpanKind,
        took: Duration,
        outcome: CallOutcome,
    ) -> Self {
        let now = SystemTime::now();
        Self { trace, parent, what, began: now.checked_sub(took).unwrap_or(now), took, outcome }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum SpanKind {
    /// A call of a tool.
    Call {
        tool: String,
        source: Arc<Source>,
        surface: &'static str,
        /// No tool has made it.
        outside: bool,
        /// It stands for a request that is no call of a tool, as one for a prompt.
        is_passthrough: bool,
        call: Option<RecordId>,
        run: Option<RecordId>,
    },
    /// An agent's script.
    Run(RecordId),
    /// Something asked of another server, in the words of its protocol.
    Request { name: String, facts: Vec<(&'static str, SpanAttribute)> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanAttribute {
    Text(String),
    Number(i64),
}

impl TraceContext {
    /// From the values of `traceparent` and `tracestate`; none if the first is
    /// not what the standard says.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<TraceContext> {
        let parent = parent.trim();
        let mut parts = parent.splitn(5, '-');
        let version: [u8; 1] = parse_hex(parts.next()?)?;
        let (id, span) = (parse_hex(parts.next()?)?, parse_hex(parts.next()?)?);
        let flags: [u8; 1] = parse_hex(parts.next()?)?;
        // Later versions may have more behind it.
        let ends = version[0] != 0 || parts.next().is_none();
        if version[0] == 0xff || !ends || id == [0; 16] || span == [0; 8] {
            return None;
        }
        let state = state.map(str::trim).filter(|state| is_valid_tracestate(state)).map(Arc::from);
        Some(TraceContext { id, span, sampled: flags[0] & 1 == 1, state })
    }

    /// The value of `traceparent`.
    pub fn to_traceparent(&self) -> String {
        let mut text = String::with_capacity(55);
        text.push_str("00-");
        write_hex(&mut text, &self.id);
        text.push('-');
        write_hex(&mut text, &self.span);
        text.push_str(if self.sampled { "-01" } else { "-00" });
        text
    }

    /// The value of `tracestate`, if there is one.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Its id as people and programs write it.
    pub fn id_hex(&self) -> String {
        let mut text = String::with_capacity(32);
        write_hex(&mut text, &self.id);
        text
    }

    /// A new place below this one, or in a new trace. None without random
    /// numbers: then nothing is traced.
    fn child_of(
        above: Option<&TraceContext>,
        tracer: &Arc<dyn CallTracer>,
    ) -> Option<TraceContext> {
        let mut fresh = [0; 24];
        getrandom::fill(&mut fresh).ok()?;
        let (new, span) = fresh.split_first_chunk::<16>()?;
        let span = *span.first_chunk()?;
        let id = above.map_or(*new, |above| above.id);
        let sampled = tracer.should_sample(above, &id);
        Some(TraceContext { id, span, sampled, state: above.and_then(|above| above.state.clone()) })
    }
}

/// Text of lowercase hexadecimal digits, exactly as many as are needed.
fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

pub fn write_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Into a String: never fails.
        let _ = write!(out, "{byte:02x}");
    }
}

/// Of bounded length, and nothing that does not belong into a header.
fn is_valid_tracestate(state: &str) -> bool {
    let fits = |entry: &str| entry.trim().is_empty() || entry.contains('=');
    !state.is_empty()
        && state.len() <= MAX_TRACESTATE_BYTES
        && state.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && state.split(',').count() <= MAX_TRACESTATE_ENTRIES
        && state.split(',').all(fits)
}

/// Where a call is in its trace, and what is above it.
#[derive(Clone)]
pub(crate) struct CallTrace {
    trace: TraceContext,
    parent: Option<SpanId>,
}

impl CallTrace {
    /// For a call below this: with nobody to tell, whatever came in goes on.
    pub(crate) fn child_of(
        above: Option<&CallTrace>,
        tracer: Option<&Arc<dyn CallTracer>>,
    ) -> Option<CallTrace> {
        let Some(tracer) = tracer else { return above.cloned() };
        let above = above.map(|above| &above.trace);
        let trace = TraceContext::child_of(above, tracer)?;
        Some(CallTrace { trace, parent: above.map(|above| above.span) })
    }

    pub(crate) fn context(&self) -> &TraceContext {
        &self.trace
    }
}

impl From<TraceContext> for CallTrace {
    fn from(trace: TraceContext) -> Self {
        Self { trace, parent: None }
    }
}

impl Call {
    /// Something below this call, told when it has ended.
    pub fn start_span(&self, what: impl FnOnce() -> SpanKind) -> SpanGuard {
        let Some(tracer) = self.gateway().tracer() else {
            return SpanGuard { trace: self.trace().cloned(), open: None };
        };
        let above = self.trace();
        let trace = TraceContext::child_of(above, tracer);
        let open = trace.as_ref().filter(|trace| trace.sampled).map(|_| OpenSpan {
            tracer: tracer.clone(),
            parent: above.map(|above| above.span),
            what: what(),
            since: Instant::now(),
        });
        SpanGuard { trace, open }
    }

    /// A call that this one wanted to make was refused.
    pub(crate) fn trace_refused_call(&self, tool: &Tool, outcome: CallOutcome) {
        let what = || SpanKind::Call {
            tool: tool.name.clone(),
            source: tool.source.clone(),
            surface: self.caller().surface,
            outside: self.depth() == 0,
            is_passthrough: tool.is_passthrough(),
            call: None,
            run: self.run().map(|run| run.id()),
        };
        self.start_span(what).end_with(outcome);
    }

    /// The call itself has ended.
    pub(crate) fn trace_ended_call(&self, tool: &Tool, took: Duration, outcome: CallOutcome) {
        let Some(tracer) = self.gateway().tracer() else { return };
        let Some(CallTrace { trace, parent }) = self.call_trace().filter(|it| it.trace.sampled)
        else {
            return;
        };
        let what = SpanKind::Call {
            tool: self.tool().to_owned(),
            source: tool.source.clone(),
            surface: self.caller().surface,
            outside: self.depth() == 1,
            is_passthrough: tool.is_passthrough(),
            call: self.id(),
            run: self.run().map(|run| run.id()),
        };
        tracer.record_span(EndedSpan::new(trace.clone(), *parent, what, took, outcome));
    }
}

/// Something that goes on. What is dropped was cancelled.
pub struct SpanGuard {
    trace: Option<TraceContext>,
    open: Option<OpenSpan>,
}

struct OpenSpan {
    tracer: Arc<dyn CallTracer>,
    parent: Option<SpanId>,
    what: SpanKind,
    since: Instant,
}

impl SpanGuard {
    /// For whoever is asked: what they do is below this.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.trace.as_ref()
    }

    /// Something about a request that is known only now.
    pub fn set_attribute(&mut self, key: &'static str, fact: SpanAttribute) {
        if let Some(OpenSpan { what: SpanKind::Request { facts, .. }, .. }) = &mut self.open {
            facts.push((key, fact));
        }
    }

    pub fn end_with(mut self, outcome: CallOutcome) {
        self.finish_span(outcome);
    }

    fn finish_span(&mut self, outcome: CallOutcome) {
        let Some(open) = self.open.take() else { return };
        let Some(trace) = self.trace.clone() else { return };
        let OpenSpan { tracer, parent, what, since } = open;
        tracer.record_span(EndedSpan::new(trace, parent, what, since.elapsed(), outcome));
    }
}

impl Drop for SpanGuard {
    fn drop(&mut self) {
        self.finish_span(CallOutcome::Cancelled);
    }
}

#[cfg(test)]
mod tests;
