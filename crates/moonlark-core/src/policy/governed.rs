//! The gateway's step: a body runs when its rule lets it, and no more often
//! than it has to.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::kept;
use super::rule::{Per, Rule};
use crate::call::Call;
use crate::content::Answer;
use crate::limits::seconds;
use crate::problem::{Code, Problem, Result};
use crate::tool::Tool;
use crate::value::Value;

/// How much earlier than the call itself the wait for a turn ends, so that
/// there is time to say so.
const EARLIER: Duration = Duration::from_millis(20);

/// Run `body` as the rule of the call says: an answer on hand first, which
/// costs nothing; then the rate, then a turn.
pub(crate) async fn governed<F>(
    call: &Call,
    tool: &Arc<Tool>,
    args: Value,
    body: impl FnOnce(Call, Value) -> F,
) -> Result<Answer>
where
    F: Future<Output = Result<Answer>>,
{
    let Some(rule) = call.rule().filter(|rule| rule.is_limit()) else {
        return body(call.clone(), args).await;
    };
    let good_for = rule.terms.cache.filter(|_| tool.effects.read_only);
    let shared = matches!(rule.terms.per, Per::Tool | Per::Source);
    let caller = if shared { "" } else { call.caller().name() };
    let key = good_for.and_then(|good_for| Some((good_for, kept::key(tool, caller, &args)?)));
    let run = async {
        let call = pass(rule, call, tool).await?;
        // The turn is over when the call is, whatever the body does with its own.
        let _held = call.held().cloned();
        body(call, args).await
    };
    match key {
        Some((good_for, key)) => rule.answers().answer(key, caller, tool, good_for, run).await,
        None => run.await,
    }
}

/// Count the call, and wait for its turn.
async fn pass(rule: &Rule, call: &Call, tool: &Arc<Tool>) -> Result<Call> {
    let key = || rule.key(tool, call.caller());
    if let Some(rate) = rule.terms.rate {
        let passed = rule.meter().pass(key(), rate, Instant::now());
        passed.map_err(|wait| {
            let message = format!("tool '{}' may be called {rate}, which is used up", tool.name);
            later(message, rule, wait)
        })?;
    }
    let Some(most) = rule.terms.concurrency else { return Ok(call.clone()) };
    let turn = rule.turns().turn(key(), call.held().cloned());
    let deadline = call.deadline();
    let until = deadline.checked_sub(EARLIER).unwrap_or(deadline);
    match tokio::time::timeout_at(until, turn).await {
        Ok(held) => Ok(call.holding(held)),
        Err(_) => {
            let message = format!(
                "{most} calls of tool '{}' are in progress, which is the limit; it was not its turn within {}",
                tool.name,
                seconds(call.limits().timeout)
            );
            Err(later(message, rule, Duration::from_secs(1)))
        }
    }
}

fn later(message: String, rule: &Rule, wait: Duration) -> Problem {
    let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut problem = Problem::new(Code::RateLimited, message).hint(format!(
        "try again in {}; the limit is that of {}",
        seconds(Duration::from_secs(whole.max(1))),
        rule.place
    ));
    problem.retry_after = Some(u32::try_from(whole.max(1)).unwrap_or(u32::MAX));
    problem
}

impl Rule {
    /// Whether it has a say in how a call runs.
    fn is_limit(&self) -> bool {
        self.terms.rate.is_some() || self.terms.concurrency.is_some() || self.terms.cache.is_some()
    }
}
