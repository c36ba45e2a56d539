//! `try_call(function, …)`: call something that may fail, and go on.

use moonlark_core::{Problem, ProblemCode};
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::structs::AllocStruct;
use starlark::values::{Heap, Value as Sv};

use super::native_function::{NativeFunction, PlainNativeFunction};
use super::starlark_errors::{self, raise_problem};
use super::starlark_globals::JobSession;

pub(super) fn add_try_call(builder: &mut GlobalsBuilder) {
    builder.set("try_call", NativeFunction::new("try_call", try_call as PlainNativeFunction));
}

/// Gives a struct: `ok`, and `value` or `error`, which has `code`, `message`,
/// `hint` and `retryable`.
fn try_call<'v>(
    name: &str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Sv<'v>> {
    let heap = eval.heap();
    let mut by_place: Vec<Sv<'v>> = args.positions(heap)?.collect();
    if by_place.is_empty() {
        return Err(raise_problem(
            Problem::bad_request(format!("{name} takes a function and its arguments"))
                .with_hint("write try_call(http.get, url, timeout = 5)"),
        ));
    }
    let function = by_place.remove(0);
    let named = args.names_map()?;
    let named: Vec<(&str, Sv<'v>)> =
        named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let error = match eval.eval_function(function, &by_place, &named) {
        Ok(value) => return Ok(outcome_struct(heap, Ok(value))),
        Err(error) => error,
    };
    let problem = starlark_errors::problem_from_error(&error);
    // No limit can be caught by the script it is for.
    if matches!(problem.code, ProblemCode::Limit | ProblemCode::Internal)
        || JobSession::from_evaluator(eval)?.is_limit_exceeded(eval)
    {
        return Err(error);
    }
    Ok(outcome_struct(heap, Err(problem)))
}

fn outcome_struct<'v>(heap: Heap<'v>, ended: Result<Sv<'v>, Problem>) -> Sv<'v> {
    let none = Sv::new_none();
    let (ok, value, error) = match ended {
        Ok(value) => (true, value, none),
        Err(problem) => {
            let hint = problem.hint.as_deref().map_or(none, |hint| heap.alloc(hint));
            let fields = [
                ("code", heap.alloc(problem.code.as_str())),
                ("message", heap.alloc(problem.message.as_str())),
                ("hint", hint),
                ("retryable", Sv::new_bool(problem.is_retryable())),
            ];
            (false, none, heap.alloc(AllocStruct(fields)))
        }
    };
    let fields = [("ok", Sv::new_bool(ok)), ("value", value), ("error", error)];
    heap.alloc(AllocStruct(fields))
}
