//! `sleep`: wait, without keeping a thread.

use std::time::Duration;

use moonlark_core::{Module, Problem, Result};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

pub(crate) fn module() -> Module {
    Module::new("sleep", "Wait.")
        .async_function(
            "sleep",
            "Wait for a number of seconds; the call's deadline ends it.",
            sleep,
        )
        .callable()
        .example(json!({"seconds": 0.001}), json!(null))
        .fails(json!({"seconds": -1}), "cannot sleep for -1 seconds")
        .fails(json!({"seconds": "1"}), "seconds")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SleepArgs {
    /// How long; fractions are fine.
    seconds: f64,
}

async fn sleep(_: Call, args: SleepArgs) -> Result<()> {
    let seconds = args.seconds;
    if !seconds.is_finite() || seconds < 0.0 {
        return Err(Problem::bad_request(format!("cannot sleep for {seconds} seconds"))
            .with_hint("give a number of seconds that is 0 or more"));
    }
    // Longer than a Duration can hold is as good as for ever.
    let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    tokio::time::sleep(time).await;
    Ok(())
}
