//! A catalog of a few tools, and the tool `execute`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use moonlark_core::content::{Content, ToolAnswer};
use moonlark_core::grant::{Grant, GrantSet};
use moonlark_core::limits::CallLimits;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{CallScope, Source, SourceKind, ToolExposure};
use moonlark_core::value::Object;
use moonlark_core::{Catalog, Module, Problem, Result, Tool, Value};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Call, Caller, Gateway};
use serde_json::{Value as Json, json};

use crate::luau_testing::modules;
use crate::{ExecuteSettings, LuauCheckMode, LuauEngine};

pub(super) struct World {
    pub(super) limits: CallLimits,
    pub(super) result: usize,
    pub(super) check: LuauCheckMode,
    pub(super) allow: Vec<&'static str>,
    pub(super) engine: LuauEngine,
    pub(super) modules: Arc<Vec<Module>>,
    pub(super) seen: Arc<Seen>,
}

/// What the tools saw.
#[derive(Default)]
pub(super) struct Seen {
    in_flight: AtomicUsize,
    pub(super) peak: AtomicUsize,
    /// Calls that were begun and dropped.
    pub(super) dropped: AtomicUsize,
    /// Somebody hangs.
    pub(super) hanging: tokio::sync::Notify,
    /// The last of those that hang has gone.
    pub(super) gone: tokio::sync::Notify,
}

impl World {
    pub(super) fn new() -> World {
        let modules = Arc::new(modules());
        World {
            limits: CallLimits { timeout: Duration::from_secs(20), ..CallLimits::default() },
            result: 64 * 1024,
            check: LuauCheckMode::Off,
            allow: vec!["tool:*"],
            engine: LuauEngine::new(&modules).unwrap(),
            modules,
            seen: Arc::default(),
        }
    }

    pub(super) fn gateway(&self) -> Gateway {
        let grants = self.allow.iter().map(|it| it.parse::<Grant>().unwrap()).collect();
        let scope = CallScope {
            grants: GrantSet::for_agent_script("execute", None, grants),
            limits: self.limits.clone(),
            ..CallScope::default()
        };
        let max_timeout = self.limits.timeout;
        let settings = ExecuteSettings {
            scope,
            check: self.check,
            max_timeout,
            result: self.result,
            has_saved_scripts: true,
        };
        let mut tools = tools(&self.seen);
        tools.push(Arc::new(self.engine.execute_tool(settings).unwrap()));
        Gateway::new(Catalog::new(self.modules.clone(), tools, &[], vec![]), 100)
    }

    pub(super) async fn execute(&self, script: &str) -> Result<Content> {
        execute(&self.gateway(), script).await
    }

    /// The plain result as JSON, or the Problem.
    pub(super) async fn answer(&self, script: &str) -> String {
        said(self.execute(script).await)
    }
}

pub(super) async fn execute(gateway: &Gateway, script: &str) -> Result<Content> {
    let call = gateway.open_call(Caller::new("cli"))?;
    let args = Value::from_fields([("script", script.into())]);
    match gateway.invoke(&call, "execute", args).await? {
        ToolAnswer::Content(content) => Ok(content),
        other => panic!("{other:?}"),
    }
}

pub(super) fn said(ended: Result<Content>) -> String {
    match ended {
        Ok(content) => {
            ToolAnswer::Content(content).into_plain_value().encode_json("result").unwrap()
        }
        Err(problem) => problem.to_string(),
    }
}

/// The answer of a fresh world.
pub(super) async fn answer(script: &str) -> String {
    World::new().answer(script).await
}

/// The blocks of an answer as JSON, without `_meta`.
pub(super) async fn content(script: &str) -> Json {
    let content = World::new().execute(script).await.unwrap();
    let blocks = Value::Array(content.blocks).to_json_lossy();
    match content.structured {
        Some(structured) => json!({"content": blocks, "structured": structured.to_json_lossy()}),
        None => json!({"content": blocks}),
    }
}

pub(super) const IMAGE: &str = "iVBORw0KGgo=";

fn tools(seen: &Arc<Seen>) -> Vec<Arc<Tool>> {
    let blocks = |blocks: Json| answering(json!({"content": blocks}));
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "data": IMAGE, "mimeType": "image/png"});
    let audio =
        json!({"type": "audio", "data": "AAEC", "mimeType": "audio/wav", "_meta": {"a": 1}});
    let blob = json!({"type": "resource", "resource": {"uri": "a:b", "blob": "AAEC"}});
    let note = json!({"type": "resource", "resource": {"uri": "a:b", "text": "note"}});
    let link = json!({"type": "resource_link", "uri": "a:b", "name": "b"});
    let hard = json!({"none": null, "big": 9_007_199_254_740_993_i64, "empty": [], "nothing": {}});
    let mut tools = vec![
        tool("calc", "calc.add", ToolBody::from_fn(|_, args| add(&args))),
        tool(
            "calc",
            "calc.divide-by",
            ToolBody::from_fn(|_, _| Err(Problem::tool_error("by zero"))),
        ),
        tool("content", "content.text", blocks(json!([text("hello")]))),
        tool("content", "content.json", blocks(json!([text("{\"n\": [1, null]}")]))),
        tool("content", "content.several", blocks(json!([text("a"), image, text("b")]))),
        tool("content", "content.texts", blocks(json!([text("a"), text("b")]))),
        tool("content", "content.nothing", blocks(json!([]))),
        tool("content", "content.image", blocks(json!([image]))),
        tool("content", "content.audio", blocks(json!([audio]))),
        tool("content", "content.blob", blocks(json!([blob]))),
        tool("content", "content.note", blocks(json!([note]))),
        tool("content", "content.link", blocks(json!([link]))),
        tool(
            "content",
            "content.structured",
            answering(json!({"content": [text("{}")], "structuredContent": hard})),
        ),
        tool(
            "content",
            "content.failure",
            answering(json!({"content": [text("no such branch")], "isError": true})),
        ),
        tool(
            "declared",
            "declared.read",
            ToolBody::from_fn(|_, _| {
                let more = Value::from_fields([("size", Value::Int(1))]);
                Ok(Value::from_fields([("content", "text".into()), ("more", more)]))
            }),
        ),
        tool(
            "shop",
            "shop.orders",
            answering(json!({"structuredContent": {
                "orders": [{"id": 1, "total": 5}, {"id": 2, "total": 7}],
                "next": "p2",
                "summary": {"count": 2},
            }, "content": []})),
        ),
        tool("shop", "shop.nothing", blocks(json!([]))),
        tool("shop", "shop.wide", ToolBody::from_fn(|_, _| Ok(wide_answer(1900)))),
        tool("shop", "shop.long", ToolBody::from_fn(|_, _| Ok(wide_answer(5000)))),
        tool("shop", "shop.deep", ToolBody::from_fn(|_, _| Ok(deep_answer()))),
        tool("json", "json.shadowed", ToolBody::from_fn(|_, _| Ok("of a source".into()))),
        tool("sleep", "sleep.shadowed", ToolBody::from_fn(|_, _| Ok("of a source".into()))),
    ];
    let meeting = Arc::new(tokio::sync::Barrier::new(10));
    tools.push(tool(
        "slow",
        "slow.meet",
        ToolBody::from_async_fn(move |_, args| {
            let meeting = meeting.clone();
            async move {
                meeting.wait().await;
                Ok(args)
            }
        }),
    ));
    let counting = seen.clone();
    tools.push(tool(
        "slow",
        "slow.count",
        ToolBody::from_async_fn(move |_, args| count(counting.clone(), args)),
    ));
    let hanging = seen.clone();
    tools.push(tool(
        "slow",
        "slow.hang",
        ToolBody::from_async_fn(move |_, _| hang(hanging.clone())),
    ));
    tools.into_iter().map(Arc::new).collect()
}

fn tool(source: &str, name: &str, body: ToolBody) -> Tool {
    let kind = SourceKind::Upstream;
    let source = Arc::new(Source { kind, name: source.to_owned() });
    let schema = match name {
        "calc.add" => json!({
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}, "note": {"type": "string"}},
            "required": ["a", "b"],
        }),
        _ => json!({"type": "object"}),
    };
    let Json::Object(schema) = schema else { unreachable!() };
    let mut tool = Tool::new(name, source, Schema::compile(schema).unwrap(), body);
    tool.expose = ToolExposure::Code;
    if name == "declared.read" {
        let output = json!({"type": "object", "properties": {"content": {"type": "string"}, "note": {"type": "string"}, "more": {"type": "object"}}});
        tool.output = Some(Schema::description_only(output.as_object().unwrap().clone()));
    }
    tool
}

fn answering(answer: Json) -> ToolBody {
    let answer = Value::from_json(answer).unwrap();
    ToolBody::from_answering_fn(move |_, _| {
        let answer = answer.clone();
        async move { ToolAnswer::from_script_result(answer) }
    })
}

fn add(args: &Value) -> Result<Value> {
    let number = |name: &str| match args.get(name) {
        Some(Value::Int(int)) => *int,
        Some(Value::Float(float)) => *float as i64,
        _ => 0,
    };
    Ok(Value::from_fields([("sum", Value::Int(number("a") + number("b")))]))
}

/// An object with many fields of similar names.
fn wide_answer(fields: usize) -> Value {
    let field = |n: usize| (format!("{}{n}y", "x".repeat(60)), Value::Int(1));
    Value::Object((0..fields).map(field).collect())
}

fn deep_answer() -> Value {
    (0..60).fold(Value::Int(1), |inner, _| Value::from_fields([("a", inner)]))
}

/// How many of these are in flight at once.
async fn count(seen: Arc<Seen>, args: Value) -> Result<Value> {
    let now = seen.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
    seen.peak.fetch_max(now, Ordering::SeqCst);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    seen.in_flight.fetch_sub(1, Ordering::SeqCst);
    Ok(args)
}

async fn hang(seen: Arc<Seen>) -> Result<Value> {
    struct Going(Arc<Seen>);
    impl Drop for Going {
        fn drop(&mut self) {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
            self.0.gone.notify_one();
        }
    }
    let _going = Going(seen.clone());
    seen.hanging.notify_one();
    std::future::pending().await
}

/// The run's own account of itself.
pub(super) fn account(extra: &Object) -> &Value {
    extra.get("_meta").and_then(|meta| meta.get("moonlark/run")).unwrap()
}

/// A call that may be refused as one of an authored script would be.
pub(super) fn scripted(gateway: &Gateway, limits: &CallLimits) -> Call {
    let scope = CallScope { limits: limits.clone(), ..CallScope::default() };
    gateway.open_scoped_call(Caller::new("load"), Arc::new(scope))
}
