//! The policy step of the gateway: a body runs when its rule lets it, and no more often
//! than it has to.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::response_cache;
use super::rule::{CountingScope, PolicyRule};
use crate::call::Call;
use moonlark_core::content::ToolAnswer;
use moonlark_core::limits::format_seconds;
use moonlark_core::problem::{Problem, ProblemCode, Result};
use moonlark_core::tool::Tool;
use moonlark_core::value::Value;

/// How much earlier than the call itself the wait for a turn ends, so that
/// there is time to say so.
const TURN_DEADLINE_MARGIN: Duration = Duration::from_millis(20);

/// Run `body` as the rule of the call says: an answer on hand first, which
/// costs nothing; then the rate, then a turn.
pub(crate) async fn run_under_rule<F>(
    call: &Call,
    tool: &Arc<Tool>,
    args: Value,
    body: impl FnOnce(Call, Value) -> F,
) -> Result<ToolAnswer>
where
    F: Future<Output = Result<ToolAnswer>>,
{
    let Some(rule) = call.rule().filter(|rule| rule.limits_calls()) else {
        return body(call.clone(), args).await;
    };
    let good_for = rule.terms.cache.filter(|_| tool.effects.read_only);
    let shared = matches!(rule.terms.per, CountingScope::Tool | CountingScope::Source);
    let caller = if shared { "" } else { call.caller().name() };
    let key = good_for
        .and_then(|good_for| Some((good_for, response_cache::cache_key(tool, caller, &args)?)));
    let run = async {
        let call = wait_for_turn(rule, call, tool).await?;
        // The turn is over when the call is, whatever the body does with its own.
        let _held = call.concurrency_permit().cloned();
        body(call, args).await
    };
    match key {
        Some((good_for, key)) => {
            rule.response_cache().get_or_run(key, caller, tool, good_for, run).await
        }
        None => run.await,
    }
}

/// Count the call, and wait for its turn.
async fn wait_for_turn(rule: &PolicyRule, call: &Call, tool: &Arc<Tool>) -> Result<Call> {
    let key = || rule.counting_key(tool, call.caller());
    if let Some(rate) = rule.terms.rate {
        let passed = rule.rate_limiter().try_pass(key(), rate, Instant::now());
        passed.map_err(|wait| {
            let message = format!("tool '{}' may be called {rate}, which is used up", tool.name);
            rate_limited_problem(message, rule, wait)
        })?;
    }
    let Some(most) = rule.terms.concurrency else { return Ok(call.clone()) };
    let turn = rule.keyed_semaphore().acquire_permit(key(), call.concurrency_permit().cloned());
    let deadline = call.deadline();
    let until = deadline.checked_sub(TURN_DEADLINE_MARGIN).unwrap_or(deadline);
    match tokio::time::timeout_at(until, turn).await {
        Ok(held) => Ok(call.with_concurrency_permit(held)),
        Err(_) => {
            let message = format!(
                "{most} calls of tool '{}' are in progress, which is the limit; it was not its turn within {}",
                tool.name,
                format_seconds(call.limits().timeout)
            );
            Err(rate_limited_problem(message, rule, Duration::from_secs(1)))
        }
    }
}

fn rate_limited_problem(message: String, rule: &PolicyRule, wait: Duration) -> Problem {
    let seconds = (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1);
    let time = format_seconds(Duration::from_secs(seconds));
    Problem::new(ProblemCode::RateLimited, message)
        .with_hint(format!("try again in {time}; the limit is that of {}", rule.place))
        .with_retry_after(u32::try_from(seconds).unwrap_or(u32::MAX))
}

impl PolicyRule {
    /// Whether it has a say in how a call runs.
    fn limits_calls(&self) -> bool {
        self.terms.rate.is_some() || self.terms.concurrency.is_some() || self.terms.cache.is_some()
    }
}
