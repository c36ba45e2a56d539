//! The arguments of a call from a script, by place or by name.

use moonlark_core::module::unknown_parameter_problem;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result};
use starlark::eval::Arguments;
use starlark::values::{Heap, Value};

use super::starlark_bridge;
use super::starlark_errors::raise_problem;

/// Match the arguments of `function` with its parameters; those not given are
/// left out.
pub(super) fn collect_arguments<'v, 'p>(
    function: &str,
    params: &[&'p str],
    args: &Arguments<'v, '_>,
    heap: Heap<'v>,
) -> starlark::Result<Vec<(&'p str, Value<'v>)>> {
    collect_with_aliases(function, params, &[], args, heap)
}

/// The same for a function that knows further names, which no message lists.
pub(super) fn collect_with_aliases<'v, 'p>(
    function: &str,
    params: &[&'p str],
    also: &[&'p str],
    args: &Arguments<'v, '_>,
    heap: Heap<'v>,
) -> starlark::Result<Vec<(&'p str, Value<'v>)>> {
    let by_place: Vec<Value<'v>> = args.positions(heap)?.collect();
    if by_place.len() > params.len() {
        return Err(raise_problem(Problem::bad_request(format!(
            "{function} takes at most {} arguments, got {}",
            params.len(),
            by_place.len()
        ))));
    }
    let mut given: Vec<(&'p str, Value<'v>)> = params.iter().copied().zip(by_place).collect();
    for (name, value) in args.names_map()? {
        let other = also.iter().copied().find(|other| *other == name.as_str());
        let param = match other {
            Some(other) => other,
            None => find_parameter(function, params, name.as_str()).map_err(raise_problem)?,
        };
        if given.iter().any(|(taken, _)| *taken == param) {
            return Err(raise_problem(Problem::bad_request(format!(
                "{function}: {param} is given twice"
            ))));
        }
        given.push((param, value));
    }
    Ok(given)
}

/// What is given for the parameters, copied out of the script. Not given and given
/// as None are the same, except where `takes_none` says otherwise.
pub(super) fn read_arguments<'v>(
    function: &str,
    given: Vec<(&str, Value<'v>)>,
    takes_none: impl Fn(&str) -> bool,
    heap: Heap<'v>,
    limit: usize,
) -> starlark::Result<Object> {
    let mut object = Object::new();
    for (param, value) in given {
        if !value.is_none() || takes_none(param) {
            let what = format!("{function}: {param}");
            let value = starlark_bridge::read_value(value, heap, &what, limit);
            object.insert(param.to_owned(), value.map_err(raise_problem)?);
        }
    }
    Ok(object)
}

fn find_parameter<'p>(function: &str, params: &[&'p str], name: &str) -> Result<&'p str> {
    let found = params.iter().copied().find(|param| *param == name);
    found.ok_or_else(|| unknown_parameter_problem(function, name, params.iter().copied()))
}
