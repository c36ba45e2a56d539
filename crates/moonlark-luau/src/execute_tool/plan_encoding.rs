//! The encoding of plans, as `execute` answers them and as they are on record.

use moonlark_core::value::{Object, Value};
use moonlark_core::{Problem, Result};
use moonlark_gateway::Run;
use moonlark_gateway::run::PlannedCall;

/// The plan that a run has made, whole.
pub(super) fn encode_plan(run: &Run) -> Value {
    let calls = run.planned_calls().into_iter().map(|call| {
        let order = Value::Int(call.order as i64);
        let mut described = describe_call(call);
        described.insert("order".to_owned(), order);
        Value::Object(described)
    });
    Value::Array(calls.collect())
}

fn describe_call(call: PlannedCall) -> Object {
    let place = call.at.to_string().into();
    let fields = [("tool", call.tool.into()), ("arguments", call.args), ("place", place)];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The calls of a plan that is on record.
pub(super) fn decode_plan(written: &Value) -> Result<Vec<PlannedCall>> {
    let garbled = || Problem::internal("the plan in the journal cannot be read");
    let Value::Array(calls) = written else { return Err(garbled()) };
    let call = |call: &Value| {
        let order = match call.get("order")? {
            Value::Int(order) => u64::try_from(*order).ok()?,
            _ => return None,
        };
        Some(PlannedCall {
            tool: call.get("tool")?.as_str()?.to_owned(),
            args: call.get("arguments")?.clone(),
            at: call.get("place")?.as_str()?.into(),
            order,
        })
    };
    calls.iter().map(|it| call(it).ok_or_else(garbled)).collect()
}

/// The same for whoever asked for it.
pub(super) fn present_plan(run: &Run, surface: &str) -> Value {
    let calls = run.planned_calls().into_iter().map(|call| Value::Object(describe_call(call)));
    let id = run.id().to_string();
    let how = match surface {
        "cli" => format!("nothing was changed; `moonlark runs resume {id}` does just this, once"),
        _ => format!("nothing was changed; execute with resume = \"{id}\" does just this, once"),
    };
    let mut plan = Object::new();
    plan.insert("plan".to_owned(), id.into());
    plan.insert("calls".to_owned(), Value::Array(calls.collect()));
    plan.insert("complete".to_owned(), Value::Bool(run.stop_problem().is_none()));
    if let Some(problem) = run.stop_problem() {
        plan.insert("ends".to_owned(), problem.message.as_str().into());
    }
    plan.insert("how".to_owned(), how.into());
    Value::Object(plan)
}
