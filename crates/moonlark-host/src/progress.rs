//! `progress`: report progress to the caller.

use moonlark_core::{Module, Problem, Result};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

pub(crate) fn module() -> Module {
    Module::new("progress", "Report progress.")
        .function("progress", "Tell the caller how far the work is.", progress)
        .callable()
        .positional_params(&["total", "message"])
        .example(json!({"done": 3, "total": 10, "message": "third page"}), json!(null))
        .example(json!({"done": 0.5}), json!(null))
        .fails(json!({"done": "half"}), "done")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProgressArgs {
    /// How much is done; each report must be higher than the last.
    done: f64,
    /// How much there is in all, where that is known.
    total: Option<f64>,
    /// What is going on; at most 500 characters are passed on.
    message: Option<String>,
}

/// Reports wait for whoever reads them, so they must be small.
const MAX_PROGRESS_MESSAGE_CHARS: usize = 500;

fn progress(call: &Call, args: ProgressArgs) -> Result<()> {
    for (name, number) in [("done", Some(args.done)), ("total", args.total)] {
        if let Some(number) = number.filter(|number| !number.is_finite()) {
            return Err(Problem::bad_request(format!(
                "{name} must be a finite number, got {number}"
            )));
        }
    }
    let first_chars = |text: String| text.chars().take(MAX_PROGRESS_MESSAGE_CHARS).collect();
    let message: Option<String> = args.message.map(first_chars);
    call.report_progress(args.done, args.total, message.as_deref());
    Ok(())
}
