//! `context`: what a handler with a second parameter gets.

use moonlark_core::Problem;
use moonlark_core::value::{Object, Value};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::structs::AllocStruct;
use starlark::values::{Heap, Value as Sv};

use super::native_function::{NativeBody, NativeFunction};
use super::starlark_errors::raise_problem;
use super::starlark_globals::JobSession;
use super::{call_arguments, starlark_bridge};
use crate::worker_protocol::WorkerReport;

/// `config` and `caller` as values, and the tools that every script may use.
pub(super) fn build_context<'v>(heap: Heap<'v>, values: Value) -> Sv<'v> {
    let mut fields: Vec<(String, Sv<'v>)> = Vec::new();
    if let Value::Object(values) = values {
        fields.extend(
            values
                .into_iter()
                .map(|(name, value)| (name, starlark_bridge::alloc_value(heap, value))),
        );
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
        let function =
            NativeFunction::new(format!("context.{name}"), ContextToolCall { tool, params });
        fields.push((name.to_owned(), heap.alloc(function)));
    }
    heap.alloc(AllocStruct(fields))
}

/// `context.call(tool, args)`, or a tool with a name of its own there.
#[derive(Debug)]
struct ContextToolCall {
    tool: Option<&'static str>,
    params: &'static [&'static str],
}

impl NativeBody for ContextToolCall {
    fn call<'v>(
        &self,
        name: &str,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Sv<'v>> {
        let session = JobSession::from_evaluator(eval)?;
        let heap = eval.heap();
        let given = call_arguments::collect_arguments(name, self.params, args, heap)?;
        let mut given =
            call_arguments::read_arguments(name, given, |_| false, heap, session.value)?;
        let report = match self.tool {
            Some(tool) => WorkerReport::Tool { name: tool.to_owned(), args: Value::Object(given) },
            None => {
                let Some(Value::Str(name)) = given.swap_remove("tool") else {
                    return Err(raise_problem(Problem::bad_request(
                        "context.call takes the name of a tool and its arguments",
                    )));
                };
                let args = given.swap_remove("args").unwrap_or(Value::Object(Object::new()));
                WorkerReport::Tool { name, args }
            }
        };
        let answer = session.link.ask_engine(&report).map(|answer| extract_list(answer, self.tool));
        answer.map(|value| starlark_bridge::alloc_value(heap, value)).map_err(raise_problem)
    }
}

/// A list, whoever answers: the knowledge base has it under a name.
fn extract_list(answer: Value, tool: Option<&str>) -> Value {
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
