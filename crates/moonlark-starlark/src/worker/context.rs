//! `context`: what a handler with a second parameter gets.

use moonlark_core::Problem;
use moonlark_core::value::{Object, Value};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::structs::AllocStruct;
use starlark::values::{Heap, Value as Sv};

use super::errors::raise;
use super::globals::Session;
use super::native::{Body, Native};
use super::{args, bridge};
use crate::wire::Report;

/// `config` and `caller` as values, and the tools that every script may use.
pub(super) fn build<'v>(heap: Heap<'v>, values: Value) -> Sv<'v> {
    let mut fields: Vec<(String, Sv<'v>)> = Vec::new();
    if let Value::Object(values) = values {
        fields.extend(values.into_iter().map(|(name, value)| (name, bridge::alloc(heap, value))));
    }
    for (name, tool, params) in [
        ("call", None, &["tool", "args"][..]),
        (
            "search",
            Some("search"),
            &["query", "mode", "source", "limit", "since", "until", "metadata", "explain"],
        ),
        ("get", Some("get"), &["id", "section", "offset", "limit"]),
        ("sources", Some("sources"), &[]),
    ] {
        let function = Native::new(format!("context.{name}"), ToolCall { tool, params });
        fields.push((name.to_owned(), heap.alloc(function)));
    }
    heap.alloc(AllocStruct(fields))
}

/// `context.call(tool, args)`, or a tool with a name of its own there.
#[derive(Debug)]
struct ToolCall {
    tool: Option<&'static str>,
    params: &'static [&'static str],
}

impl Body for ToolCall {
    fn call<'v>(
        &self,
        name: &str,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Sv<'v>> {
        let session = Session::of(eval)?;
        let heap = eval.heap();
        let mut given = Object::new();
        for (param, value) in args::collect(name, self.params, args, heap)? {
            if !value.is_none() {
                let what = format!("{name}: {param}");
                let value = bridge::read(value, heap, &what, session.value).map_err(raise)?;
                given.insert(param.to_owned(), value);
            }
        }
        let report = match self.tool {
            Some(tool) => Report::Tool { name: tool.to_owned(), args: Value::Object(given) },
            None => {
                let Some(Value::Str(name)) = given.swap_remove("tool") else {
                    return Err(raise(Problem::bad_request(
                        "context.call takes the name of a tool and its arguments",
                    )));
                };
                let args = given.swap_remove("args").unwrap_or(Value::Object(Object::new()));
                Report::Tool { name, args }
            }
        };
        let answer = session.link.ask(&report).map(|answer| list_of(answer, self.tool));
        answer.map(|value| bridge::alloc(heap, value)).map_err(raise)
    }
}

/// A list, whoever answers: the knowledge base has it under a name.
fn list_of(answer: Value, tool: Option<&str>) -> Value {
    let name = match tool {
        Some("search") => "results",
        Some("sources") => "sources",
        _ => return answer,
    };
    match answer {
        Value::Object(mut fields) if fields.contains_key(name) => {
            fields.swap_remove(name).unwrap_or_default()
        }
        answer => answer,
    }
}
