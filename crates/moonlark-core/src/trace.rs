//! Where in a distributed trace something happens: taken over from whoever
//! calls, handed on to whoever is called, and told when it has ended.
//!
//! [`Trace`] is the form of W3C Trace Context. A [`Tracer`] takes what has ended;
//! without one, no span is made, and a trace that came in is handed on as it is.
//! Nothing here knows where spans go, and none of them has an argument in it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::call::Call;
use crate::journal::Id;
use crate::tool::{Source, Tool};

/// The longest `tracestate`, and the most entries in one, that is handed on.
const STATE: usize = 512;
const ENTRIES: usize = 32;

/// A place in a trace: what happens next is below `span`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
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
pub trait Tracer: Send + Sync {
    /// Whether a trace is kept: the one that came in, or a new one of this id.
    fn keeps(&self, came_in: Option<&Trace>, id: &TraceId) -> bool;

    /// Never waits.
    fn ended(&self, span: Span);
}

/// Something that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub trace: Trace,
    pub parent: Option<SpanId>,
    pub what: What,
    pub began: SystemTime,
    pub took: Duration,
    /// `ok`, or a code.
    pub outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// A call of a tool.
    Call {
        tool: String,
        source: Arc<Source>,
        surface: &'static str,
        /// No tool has made it.
        outside: bool,
        call: Option<Id>,
        run: Option<Id>,
    },
    /// An agent's script.
    Run(Id),
    /// Something asked of another server, in the words of its protocol.
    Request { name: String, facts: Vec<(&'static str, Fact)> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    Text(String),
    Number(i64),
}

impl Trace {
    /// From the values of `traceparent` and `tracestate`; none if the first is
    /// not what the standard says.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Trace> {
        let parent = parent.trim();
        let mut parts = parent.splitn(5, '-');
        let version: [u8; 1] = bytes(parts.next()?)?;
        let (id, span) = (bytes(parts.next()?)?, bytes(parts.next()?)?);
        let flags: [u8; 1] = bytes(parts.next()?)?;
        // Later versions may have more behind it.
        let ends = version[0] != 0 || parts.next().is_none();
        if version[0] == 0xff || !ends || id == [0; 16] || span == [0; 8] {
            return None;
        }
        let state = state.map(str::trim).filter(|state| is_state(state)).map(Arc::from);
        Some(Trace { id, span, sampled: flags[0] & 1 == 1, state })
    }

    /// The value of `traceparent`.
    pub fn parent(&self) -> String {
        let mut text = String::with_capacity(55);
        text.push_str("00-");
        hex(&mut text, &self.id);
        text.push('-');
        hex(&mut text, &self.span);
        text.push_str(if self.sampled { "-01" } else { "-00" });
        text
    }

    /// The value of `tracestate`, if there is one.
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Its id as people and programs write it.
    pub fn id_text(&self) -> String {
        let mut text = String::with_capacity(32);
        hex(&mut text, &self.id);
        text
    }

    /// A new place below this one, or in a new trace. None without random
    /// numbers: then nothing is traced.
    fn below(above: Option<&Trace>, tracer: &Arc<dyn Tracer>) -> Option<Trace> {
        let mut fresh = [0; 24];
        getrandom::fill(&mut fresh).ok()?;
        let (new, span) = fresh.split_first_chunk::<16>()?;
        let span = *span.first_chunk()?;
        let id = above.map_or(*new, |above| above.id);
        let sampled = tracer.keeps(above, &id);
        Some(Trace { id, span, sampled, state: above.and_then(|above| above.state.clone()) })
    }
}

/// Text of lowercase hexadecimal digits, exactly as many as are needed.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
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

pub fn hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Into a String: never fails.
        let _ = write!(out, "{byte:02x}");
    }
}

/// Of bounded length, and nothing that does not belong into a header.
fn is_state(state: &str) -> bool {
    let fits = |entry: &str| entry.trim().is_empty() || entry.contains('=');
    !state.is_empty()
        && state.len() <= STATE
        && state.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && state.split(',').count() <= ENTRIES
        && state.split(',').all(fits)
}

/// Where a call is in its trace, and what is above it.
#[derive(Clone)]
pub(crate) struct Traced {
    trace: Trace,
    parent: Option<SpanId>,
}

impl Traced {
    /// For a call below this: with nobody to tell, whatever came in goes on.
    pub(crate) fn below(
        above: Option<&Traced>,
        tracer: Option<&Arc<dyn Tracer>>,
    ) -> Option<Traced> {
        let Some(tracer) = tracer else { return above.cloned() };
        let above = above.map(|above| &above.trace);
        let trace = Trace::below(above, tracer)?;
        Some(Traced { trace, parent: above.map(|above| above.span) })
    }

    pub(crate) fn trace(&self) -> &Trace {
        &self.trace
    }
}

impl From<Trace> for Traced {
    fn from(trace: Trace) -> Self {
        Self { trace, parent: None }
    }
}

impl Call {
    /// Something below this call, told when it has ended.
    pub fn spanning(&self, what: impl FnOnce() -> What) -> Spanning {
        let Some(tracer) = self.gateway().tracer() else {
            return Spanning { trace: self.trace().cloned(), open: None };
        };
        let above = self.trace();
        let trace = Trace::below(above, tracer);
        let open = trace.as_ref().filter(|trace| trace.sampled).map(|_| Open {
            tracer: tracer.clone(),
            parent: above.map(|above| above.span),
            what: what(),
            since: Instant::now(),
        });
        Spanning { trace, open }
    }

    /// A call that this one wanted to make was refused.
    pub(crate) fn tell_refused(&self, tool: &Tool, outcome: &'static str) {
        let what = || What::Call {
            tool: tool.name.clone(),
            source: tool.source.clone(),
            surface: self.caller().surface,
            outside: self.depth() == 0,
            call: None,
            run: self.run().map(|run| run.id()),
        };
        self.spanning(what).end(outcome);
    }

    /// The call itself has ended.
    pub(crate) fn tell(&self, source: &Arc<Source>, took: Duration, outcome: &'static str) {
        let Some(tracer) = self.gateway().tracer() else { return };
        let Some(Traced { trace, parent }) = self.traced().filter(|it| it.trace.sampled) else {
            return;
        };
        let what = What::Call {
            tool: self.tool().to_owned(),
            source: source.clone(),
            surface: self.caller().surface,
            outside: self.depth() == 1,
            call: self.id(),
            run: self.run().map(|run| run.id()),
        };
        let (trace, parent) = (trace.clone(), *parent);
        tracer.ended(Span { trace, parent, what, began: began(took), took, outcome });
    }
}

/// Something that goes on. What is dropped was cancelled.
pub struct Spanning {
    trace: Option<Trace>,
    open: Option<Open>,
}

struct Open {
    tracer: Arc<dyn Tracer>,
    parent: Option<SpanId>,
    what: What,
    since: Instant,
}

impl Spanning {
    /// For whoever is asked: what they do is below this.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Something about a request that is known only now.
    pub fn note(&mut self, key: &'static str, fact: Fact) {
        if let Some(Open { what: What::Request { facts, .. }, .. }) = &mut self.open {
            facts.push((key, fact));
        }
    }

    pub fn end(mut self, outcome: &'static str) {
        self.finish(outcome);
    }

    fn finish(&mut self, outcome: &'static str) {
        let Some(open) = self.open.take() else { return };
        let Some(trace) = self.trace.clone() else { return };
        let Open { tracer, parent, what, since } = open;
        let took = since.elapsed();
        tracer.ended(Span { trace, parent, what, began: began(took), took, outcome });
    }
}

impl Drop for Spanning {
    fn drop(&mut self) {
        self.finish("cancelled");
    }
}

fn began(took: Duration) -> SystemTime {
    let now = SystemTime::now();
    now.checked_sub(took).unwrap_or(now)
}

#[cfg(test)]
mod tests;
