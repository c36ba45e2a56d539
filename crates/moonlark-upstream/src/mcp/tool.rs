//! A tool of an upstream as one of ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use moonlark_core::content::{Answer, Content};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Body, Effects, Expose, Shown, Source};
use moonlark_core::value::Object;
use moonlark_core::{Call, Code, Problem, Result, Tool, Value};
use serde_json::{Map, Value as Json};

use super::calling::{self, Request};
use super::names::app_of;
use super::param_headers;
use super::shared::Shared;
use super::watching;
use crate::foreign_text::clean_definition;
use crate::tool_config::{ToolConfig, hide_arguments};

const WATCH: &str = "resources/subscribe";

/// What a definition becomes; the Problem says what is wrong with it.
pub(crate) fn build(
    shared: &Arc<Shared>,
    source: &Arc<Source>,
    mut definition: Object,
) -> (Result<Tool>, Option<Problem>) {
    let name = definition.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    let Some(name) = name.map(str::to_owned) else {
        return (Err(Problem::bad_script("a tool without a name is left out")), None);
    };
    let at = |problem: Problem| {
        let message = format!("tool {} of '{}': {}", name, source.name, problem.message);
        problem.saying(message)
    };
    let cut = clean_definition(&mut definition).map(|why| at(Problem::bad_script(why)));
    // One that says nothing about its arguments leaves them to the server.
    let mut input = match definition.swap_remove("inputSchema") {
        Some(Value::Object(input)) => input,
        _ => Object::new(),
    };
    if !input.contains_key("type") {
        input.insert("type".to_owned(), "object".into());
    }
    if !takes_an_object(&input) {
        let problem = Problem::bad_script("left out: its arguments are said to be no object");
        return (Err(at(problem)), None);
    }
    let input = Value::Object(input);
    if let Err(why) = param_headers::check(&input) {
        return (Err(at(Problem::bad_script(format!("left out: {why}")))), None);
    }
    let config = shared.settings.tools.get(&name).cloned().unwrap_or_default();
    let mut input_json = json(&input);
    let unknown = hide_arguments(&mut input_json, &config.arguments);
    let unknown = unknown.first().map(|it| shared.settings.key().argument_is_unknown(&name, it));
    let shown_input = match config.arguments.is_empty() {
        true => input.clone(),
        false => Value::from_json(Json::Object(input_json.clone())).unwrap_or_default(),
    };
    let (schema, problem) = Schema::foreign(input_json);
    let headers = uses_headers(&input).then_some(input);
    definition.insert("inputSchema".to_owned(), shown_input);
    let output = match definition.swap_remove("outputSchema") {
        Some(output @ Value::Object(_)) => {
            let schema = Schema::described(json(&output));
            definition.insert("outputSchema".to_owned(), output);
            Some(schema)
        }
        _ => None,
    };
    shared.names.ui_out(&mut definition);
    let effects = config.effects.apply(effects(&definition));
    apply_config(&mut definition, &config, effects);
    let callee = Callee {
        name: name.as_str().into(),
        headers: headers.map(Arc::new),
        fixed: Arc::new(config.arguments),
        repeatable: effects.read_only || effects.idempotent,
    };
    let body = body(Arc::downgrade(shared), callee);
    let own_name = config.name.as_deref().unwrap_or(&name);
    let mut tool = Tool::new(format!("{}.{own_name}", source.name), source.clone(), schema, body);
    tool.original_name = Some(name.clone());
    tool.title = Some(text(&definition, "title")).filter(|title| !title.is_empty());
    tool.description = text(&definition, "description");
    tool.output = output;
    tool.effects = effects;
    tool.scope = shared.settings.scope.clone();
    tool.shown = Shown::As(format!("{}{own_name}", shared.settings.tool_prefix()));
    tool.expose = match shared.settings.expose {
        // A client can show the app of a tool only if it is listed.
        Expose::Code | Expose::Auto if app_of(&definition).is_some() => Expose::Both,
        expose => expose,
    };
    tool.definition = Some(Arc::new(definition));
    (Ok(tool), problem.map(at).or(cut).or(unknown))
}

/// What clients that list the tool see of the operator's words.
fn apply_config(definition: &mut Object, config: &ToolConfig, effects: Effects) {
    if let Some(description) = &config.description {
        definition.insert("description".to_owned(), description.as_str().into());
    }
    if config.effects.is_empty() {
        return;
    }
    let mut annotations = match definition.swap_remove("annotations") {
        Some(Value::Object(annotations)) => annotations,
        _ => Object::new(),
    };
    for (hint, said) in [
        ("readOnlyHint", effects.read_only),
        ("destructiveHint", effects.destructive),
        ("idempotentHint", effects.idempotent),
        ("openWorldHint", effects.open_world),
    ] {
        annotations.insert(hint.to_owned(), Value::Bool(said));
    }
    definition.insert("annotations".to_owned(), Value::Object(annotations));
}

/// What a call of a tool needs to know.
#[derive(Clone)]
struct Callee {
    /// As the server calls it.
    name: Arc<str>,
    /// The schema, if some arguments travel in HTTP headers too.
    headers: Option<Arc<Value>>,
    /// Arguments that the operator gives.
    fixed: Arc<BTreeMap<String, Value>>,
    /// Whether making it twice does the same as making it once.
    repeatable: bool,
}

/// Takes what is no tool's: `{method, params}`, passed on as it is.
pub(crate) fn door(shared: &Arc<Shared>, source: &Arc<Source>) -> Tool {
    let weak = Arc::downgrade(shared);
    let body = Body::answering(move |call, args| {
        let shared = weak.upgrade();
        async move {
            let shared = shared.ok_or_else(gone)?;
            let method = args.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
            let params = args.get("params").and_then(Value::as_object).cloned();
            let mut params = params.unwrap_or_default();
            shared.names.inward(&method, &mut params);
            if method == WATCH {
                return watch(&shared, &call, &args, &params).await;
            }
            let request = Request::of_method(&method);
            let mut answer = calling::request(&shared, &call, request, params).await?;
            shared.names.outward(&mut answer);
            // What an old server leaves out, a modern client needs; an old one
            // is not told.
            if !answer.contains_key("resultType") {
                answer.insert("resultType".to_owned(), "complete".into());
            }
            Ok(Answer::Raw(answer))
        }
    });
    let schema = Schema::described(Map::new());
    let mut tool = Tool::new(format!("{}:", source.name), source.clone(), schema, body);
    tool.scope = shared.settings.scope.clone();
    tool.shown = Shown::Not;
    tool
}

/// The one request that outlives its call: what it began lasts as long as the
/// caller's lease, whatever the server's connection does.
async fn watch(shared: &Shared, call: &Call, args: &Value, params: &Object) -> Result<Answer> {
    let lease = match args.get("lease") {
        Some(Value::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let uri = params.get("uri").and_then(Value::as_str);
    let (Some(lease), Some(uri)) = (lease, uri) else {
        return Err(Problem::new(Code::BadRequest, format!("{WATCH} needs a uri and a lease")));
    };
    watching::watch(shared, call, lease, uri).await?;
    Ok(Answer::Raw(Object::new()))
}

fn body(shared: std::sync::Weak<Shared>, callee: Callee) -> Body {
    Body::answering(move |call: Call, args| {
        let (shared, callee) = (shared.upgrade(), callee.clone());
        async move {
            let shared = shared.ok_or_else(gone)?;
            let args = with_fixed(args, &callee.fixed)?;
            let headers = match (&callee.headers, &args) {
                (Some(schema), Value::Object(args)) => param_headers::headers(schema, args),
                _ => Vec::new(),
            };
            let mut params = Object::new();
            params.insert("name".to_owned(), Value::from(&*callee.name));
            params.insert("arguments".to_owned(), args);
            let request = Request { method: "tools/call", headers, repeatable: callee.repeatable };
            let answer = calling::request(&shared, &call, request, params).await?;
            interpret(&shared, answer)
        }
    })
}

/// The arguments with those that the operator gives. A caller that gives one of them
/// means something else by it.
fn with_fixed(args: Value, fixed: &BTreeMap<String, Value>) -> Result<Value> {
    if fixed.is_empty() {
        return Ok(args);
    }
    let mut args = match args {
        Value::Object(args) => args,
        _ => Object::new(),
    };
    for (name, value) in fixed {
        if args.insert(name.clone(), value.clone()).is_some() {
            return Err(Problem::bad_request(format!("unknown parameter: {name}"))
                .hint("the operator of this server decides about it: leave it out"));
        }
    }
    Ok(Value::Object(args))
}

/// What a server answered to `tools/call`.
fn interpret(shared: &Shared, mut answer: Object) -> Result<Answer> {
    if matches!(answer.get("resultType").and_then(Value::as_str), Some("input_required" | "task")) {
        shared.names.outward(&mut answer);
        return Ok(Answer::Raw(answer));
    }
    let blocks = match answer.swap_remove("content") {
        Some(Value::Array(mut blocks)) => {
            if !shared.names.is_transparent() {
                blocks.iter_mut().for_each(|block| shared.names.block_out(block));
            }
            blocks
        }
        None => Vec::new(),
        Some(other) => {
            return Err(Problem::tool_error(format!(
                "upstream '{}' answered with content that is no list but {}",
                shared.settings.name(),
                other.kind()
            )));
        }
    };
    let structured = answer.swap_remove("structuredContent").filter(|it| *it != Value::Null);
    let failed = answer.swap_remove("isError") == Some(Value::Bool(true));
    Content { blocks, structured, extra: answer }.judged(failed)
}

fn gone() -> Problem {
    Problem::unavailable("the server was removed from the configuration")
}

fn effects(definition: &Object) -> Effects {
    let careful = Effects::default();
    let hint = |key: &str, default: bool| match definition
        .get("annotations")
        .and_then(|annotations| annotations.get(key))
    {
        Some(Value::Bool(said)) => *said,
        _ => default,
    };
    let read_only = hint("readOnlyHint", careful.read_only);
    Effects {
        read_only,
        destructive: !read_only && hint("destructiveHint", careful.destructive),
        idempotent: read_only || hint("idempotentHint", careful.idempotent),
        open_world: hint("openWorldHint", careful.open_world),
    }
}

/// Whether what it says about its type can be true of arguments.
fn takes_an_object(schema: &Object) -> bool {
    match schema.get("type") {
        Some(Value::Str(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind.as_str() == Some("object")),
        _ => true,
    }
}

/// Whether some arguments travel in HTTP headers too.
fn uses_headers(schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().any(|(_, property)| property.get("x-mcp-header").is_some())
}

fn json(schema: &Value) -> Map<String, Json> {
    match schema.to_json_lossy() {
        Json::Object(object) => object,
        _ => Map::new(),
    }
}

fn text(definition: &Object, key: &str) -> String {
    definition.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}
