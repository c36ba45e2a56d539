//! `testing.raises`: the one host function that takes a function.

use std::fmt;

use allocative::Allocative;
use moonlark_core::{Code, Problem};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value as Sv,
    starlark_value,
};

use super::args;
use super::errors::{self, raise};

pub(super) fn is_special(function: &str) -> bool {
    function == "testing.raises"
}

#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative, StarlarkPagablePanic)]
pub(super) struct Raises;

starlark::starlark_simple_value!(Raises);

impl fmt::Display for Raises {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<function testing.raises>")
    }
}

#[starlark_value(type = "function")]
impl<'v> StarlarkValue<'v> for Raises {
    fn invoke(
        &self,
        _me: Sv<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Sv<'v>> {
        let heap = eval.heap();
        let fail = |message: String| raise(Problem::tool_error(message));
        let (mut function, mut contains) = (None, None);
        for (param, value) in args::collect("testing.raises", &["fn", "contains"], args, heap)? {
            match param {
                "fn" => function = Some(value),
                _ => contains = value.unpack_str(),
            }
        }
        let Some(function) = function else {
            return Err(fail("testing.raises takes a function without parameters".to_owned()));
        };
        let error = match eval.eval_function(function, &[], &[]) {
            Ok(value) => {
                let got = value.to_string_for_type_error();
                return Err(fail(format!(
                    "testing.raises: the function did not fail, it returned {got}"
                )));
            }
            Err(error) => error,
        };
        let problem = errors::problem(&error);
        // A limit ends the test, whatever it expected.
        if problem.code == Code::Limit {
            return Err(error);
        }
        match contains {
            Some(part) if !problem.message.contains(part) => Err(fail(format!(
                "testing.raises: it failed with {:?}, which does not contain {part:?}",
                problem.message
            ))),
            _ => Ok(heap.alloc(problem.message)),
        }
    }
}
