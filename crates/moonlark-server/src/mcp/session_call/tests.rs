//! Calls of clients that have a session, for tests that compare the ways they can take: one
//! table over HTTP and over pipes.

use std::sync::Arc;

use moonlark_core::content::{Content, ToolAnswer};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::value::Object;
use moonlark_core::{Problem, Tool, Value};
use moonlark_gateway::call::LogLevel;
use moonlark_gateway::call_client::ClientQuestion;
use moonlark_gateway::tool_body::ToolBody;
use serde_json::{Value as Json, json};

pub(crate) const OLD_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// What is to become of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CasePath {
    /// It is answered at once.
    Short,
    /// The short way, on which the call waits.
    ShortAndSlow,
    /// The short way, until something has to be said before the answer.
    Interrupted,
    Sdk,
}

pub(crate) fn session_call_cases() -> Vec<(CasePath, Json)> {
    let with = |place: &str, value: Json| {
        let mut changed = case_call(2, "same");
        changed.pointer_mut(place).unwrap().clone_from(&value);
        changed
    };
    let with_meta = |name: &str, meta: Json| {
        let mut changed = case_call(2, name);
        changed["params"]["_meta"] = meta;
        changed
    };
    let mut bare = with("/params/name", json!("later"));
    bare["params"].as_object_mut().unwrap().remove("arguments");
    let token = || json!({"progressToken": "p", "other": 1});
    use CasePath::{Interrupted, Sdk, Short, ShortAndSlow};
    vec![
        (Short, case_call(2, "same")),
        (Short, case_call(0, "same")),
        (Short, with("/params/arguments", json!({"n": "one"}))),
        (Short, with("/params/arguments", json!({"x": [1.5, "ü", null]}))),
        (Short, with("/params/arguments", Json::Null)),
        (Short, with("/id", json!("seven"))),
        (Short, with("/params/name", json!("none"))),
        (Short, case_call(3, "number")),
        (Short, case_call(3, "content")),
        (Short, case_call(3, "task")),
        (Short, case_call(3, "input")),
        (Short, with_meta("same", token())),
        (Short, with_meta("same", json!({"moonlark/run": true}))),
        (Short, with_meta("progress", json!({}))),
        (ShortAndSlow, case_call(3, "log")),
        (ShortAndSlow, bare),
        (Interrupted, with_meta("progress", token())),
        (Interrupted, with_meta("slow_progress", token())),
        (Sdk, with_meta("same", Json::Null)),
        (Sdk, with("/method", json!("tools/list"))),
        (Sdk, with("/method", json!("ping"))),
        (Sdk, with("/jsonrpc", json!("1.0"))),
        (Sdk, with("/id", json!({}))),
        (Sdk, with("/params/arguments", json!([]))),
        (Sdk, with("/params/arguments", json!({"n": 12345678901234567890_u64}))),
        (Sdk, json!([case_call(4, "same")])),
    ]
}

pub(crate) fn case_call(id: u64, name: &str) -> Json {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {"name": name, "arguments": {"n": id}}})
}

/// A tool that any call of [`session_call_cases`] can be made of.
pub(crate) fn case_tool(name: &str, body: ToolBody) -> Arc<Tool> {
    let source = Arc::new(Source { kind: SourceKind::Script, name: "a".to_owned() });
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let (input, _) = Schema::from_foreign(schema.as_object().unwrap().clone());
    Arc::new(Tool::new(name, source, input, body))
}

/// A tool for every kind of answer, and for everything that can be said before it.
pub(crate) fn case_tools() -> Vec<Arc<Tool>> {
    let tool = case_tool;
    let raw = |answer: Json| {
        ToolBody::from_answering_fn(move |_, _| {
            std::future::ready(Ok(ToolAnswer::Raw(fields(answer.clone()))))
        })
    };
    let content = json!([
        {"type": "text", "text": "two\nlines"},
        {"type": "audio", "data": "bm8=", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "file:///b.txt", "name": "b"},
    ]);
    vec![
        tool(
            "same",
            ToolBody::from_fn(|_, args| match args.get("n") {
                Some(Value::Int(0)) => Err(Problem::tool_error("not with zero")),
                _ => Ok(args),
            }),
        ),
        tool("number", ToolBody::from_fn(|_, _| Ok(Value::Int(7)))),
        tool(
            "later",
            ToolBody::from_async_fn(|_, args| async move {
                tokio::task::yield_now().await;
                Ok(args)
            }),
        ),
        tool(
            "content",
            ToolBody::from_answering_fn(move |_, _| {
                let Ok(Value::Array(blocks)) = Value::from_json(content.clone()) else {
                    unreachable!("a list")
                };
                let content = Content { blocks, structured: None, extra: Object::new() };
                std::future::ready(Ok(ToolAnswer::Content(content)))
            }),
        ),
        tool(
            "task",
            raw(json!({"resultType": "task", "taskId": "t", "status": "working",
            "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": null})),
        ),
        tool("input", raw(json!({"resultType": "input_required", "requestState": "s"}))),
        tool(
            "progress",
            ToolBody::from_fn(|call, args| {
                call.report_progress(1.0, Some(2.0), Some("half"));
                Ok(args)
            }),
        ),
        tool(
            "slow_progress",
            ToolBody::from_async_fn(|call, args| async move {
                tokio::task::yield_now().await;
                call.report_progress(1.0, None, None);
                tokio::task::yield_now().await;
                Ok(args)
            }),
        ),
        tool(
            "log",
            ToolBody::from_fn(|call, args| {
                call.log_message(LogLevel::Warn, "much", None)?;
                Ok(args)
            }),
        ),
        tool(
            "ask",
            ToolBody::from_async_fn(|call, _| async move {
                let params = fields(json!({"message": "?", "requestedSchema": {"type": "object"}}));
                let method = "elicitation/create".to_owned();
                call.ask_caller(ClientQuestion { method, params, name: None }).await
            }),
        ),
    ]
}

fn fields(value: Json) -> Object {
    let Ok(Value::Object(fields)) = Value::from_json(value) else { unreachable!("an object") };
    fields
}
