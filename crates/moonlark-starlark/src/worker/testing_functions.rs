//! The functions of `testing` that take or give functions, which no value is.

use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Value};
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::Value as Sv;

use super::native_function::{NativeFunction, PlainNativeFunction};
use super::starlark_errors::{self, raise_problem};
use super::starlark_globals::JobSession;
use super::{call_arguments, handler_context};

/// Put the function `name` into the module, if it is one of those here.
pub(super) fn set(builder: &mut GlobalsBuilder, name: &str, full_name: &str) -> bool {
    let function: PlainNativeFunction = match full_name {
        "testing.raises" => raises,
        "testing.context" => make_context,
        _ => return false,
    };
    builder.set(name, NativeFunction::new(full_name, function));
    true
}

fn raises<'v>(
    name: &str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Sv<'v>> {
    let heap = eval.heap();
    let (mut function, mut contains, mut about) = (None, None, None);
    let params = ["fn", "contains", "message"];
    for (param, value) in call_arguments::collect_arguments(name, &params, args, heap)? {
        match param {
            "fn" => function = Some(value),
            "contains" => contains = value.unpack_str(),
            _ => about = value.unpack_str(),
        }
    }
    let about = about.map(|about| format!("{about}: ")).unwrap_or_default();
    let fail =
        |message: String| raise_problem(Problem::tool_error(format!("{name}: {about}{message}")));
    let Some(function) = function.filter(|function| function.get_type() == "function") else {
        return Err(fail("takes a function without parameters".to_owned()));
    };
    let error = match eval.eval_function(function, &[], &[]) {
        Ok(value) => {
            let got = value.to_string_for_type_error();
            return Err(fail(format!("the function did not fail, it returned {got}")));
        }
        Err(error) => error,
    };
    let problem = starlark_errors::problem_from_error(&error);
    // A limit ends the test, whatever it expected.
    if problem.code == ProblemCode::Limit {
        return Err(error);
    }
    match contains {
        Some(part) if !problem.message.contains(part) => Err(fail(format!(
            "it failed with {:?}, which does not contain {part:?}",
            problem.message
        ))),
        _ => Ok(heap.alloc(problem.message)),
    }
}

fn make_context<'v>(
    name: &str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Sv<'v>> {
    let session = JobSession::from_evaluator(eval)?;
    let heap = eval.heap();
    let given = call_arguments::collect_arguments(name, &["config"], args, heap)?;
    let mut given = call_arguments::read_arguments(name, given, |_| false, heap, session.value)?;
    let config = given.swap_remove("config").unwrap_or_else(|| Value::Object(Object::new()));
    let caller = Value::from_fields([
        ("surface", "test".into()),
        ("name", moonlark_gateway::call::LOCAL_CALLER.into()),
        ("client", Value::Null),
    ]);
    Ok(handler_context::build_context(
        heap,
        Value::from_fields([("config", config), ("caller", caller)]),
    ))
}
