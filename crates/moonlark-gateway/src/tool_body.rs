//! What runs behind a tool, and the one place where it can be reached.
//!
//! Everybody can make a [`ToolBody`] and put it into a tool. What is in it, only this
//! crate sees: validation, limits and the record would otherwise have a way around them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::{Problem, Result};
use moonlark_core::tool::{BoxFuture, Tool};
use moonlark_core::tool_body::{BodyCall, SealedBody};
use moonlark_core::value::Value;

use crate::call::Call;
use crate::metrics::SourceMetrics;

type SyncBodyFn = dyn Fn(&Call, Value) -> Result<Value> + Send + Sync;
type AnsweringBodyFn = dyn Fn(Call, Value) -> BoxFuture<Result<ToolAnswer>> + Send + Sync;
type AsyncBodyFn = dyn Fn(Call, Value) -> BoxFuture<Result<Value>> + Send + Sync;

/// What runs behind a tool. A body that waits is dropped to cancel it.
#[derive(Clone)]
pub struct ToolBody(BodyFn);

#[derive(Clone)]
pub(crate) enum BodyFn {
    /// Pure computation: done when it returns.
    Now(Arc<SyncBodyFn>),
    /// May wait.
    Later(Arc<AsyncBodyFn>),
    /// May wait, and answers in the form its caller gets.
    Answering(Arc<AnsweringBodyFn>),
}

impl ToolBody {
    pub fn from_fn(body: impl Fn(&Call, Value) -> Result<Value> + Send + Sync + 'static) -> Self {
        ToolBody(BodyFn::Now(Arc::new(body)))
    }

    pub fn from_async_fn<F>(body: impl Fn(Call, Value) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Value>> + Send + 'static,
    {
        ToolBody(BodyFn::Later(Arc::new(move |call, args| Box::pin(body(call, args)))))
    }

    pub fn from_answering_fn<F>(body: impl Fn(Call, Value) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<ToolAnswer>> + Send + 'static,
    {
        ToolBody(BodyFn::Answering(Arc::new(move |call, args| Box::pin(body(call, args)))))
    }
}

/// The same tool, every call of which ends with this Problem.
pub fn into_failing_tool(tool: Tool, problem: &Problem) -> Tool {
    let message = format!("{} is unavailable: {}", tool.name, problem.message);
    let problem = problem.clone().with_message(message);
    tool.with_body(ToolBody::from_fn(move |_, _| Err(problem.clone())))
}

impl From<ToolBody> for SealedBody {
    fn from(ToolBody(body): ToolBody) -> SealedBody {
        let is_instant = matches!(body, BodyFn::Now(_));
        SealedBody::new(ToolRuntime::new(body), is_instant)
    }
}

impl BodyCall for Call {
    fn seal_fn(body: impl Fn(&Call, Value) -> Result<Value> + Send + Sync + 'static) -> SealedBody {
        ToolBody::from_fn(body).into()
    }

    fn seal_async_fn<F>(body: impl Fn(Call, Value) -> F + Send + Sync + 'static) -> SealedBody
    where
        F: Future<Output = Result<Value>> + Send + 'static,
    {
        ToolBody::from_async_fn(body).into()
    }
}

/// What the gateway keeps in a tool: its body, and what it has to find for every call.
pub(crate) struct ToolRuntime {
    pub(crate) body: BodyFn,
    /// How often it has answered, for whoever looks at some of the answers.
    answer_count: AtomicU32,
    /// Where its calls are counted, once there was one.
    pub(crate) source_metrics: OnceLock<Arc<SourceMetrics>>,
}

impl ToolRuntime {
    fn new(body: BodyFn) -> Self {
        Self { body, answer_count: AtomicU32::new(0), source_metrics: OnceLock::new() }
    }

    pub(crate) fn of_tool(tool: &Tool) -> &ToolRuntime {
        /// For a tool without a body, which was not made to be called.
        static WITHOUT_BODY: LazyLock<ToolRuntime> = LazyLock::new(|| {
            let problem = |_: &Call, _| Err(Problem::internal("this tool has no body"));
            ToolRuntime::new(BodyFn::Now(Arc::new(problem)))
        });
        tool.body().open::<ToolRuntime>().unwrap_or_else(|| &WITHOUT_BODY)
    }

    /// Counts one more answer. Wraps around after some billions.
    pub(crate) fn count_answer(&self) -> u32 {
        self.answer_count.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}
