//! A tool of an upstream as one of ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use moonlark_core::content::{Content, ToolAnswer};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{CallEffects, Source, ToolExposure, ToolListing};
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Tool, Value};
use moonlark_gateway::Call;
use moonlark_gateway::tool_body::ToolBody;
use serde_json::{Map, Value as Json};

use crate::call_request::{self, UpstreamRequest};
use crate::definition_text::{clean_definition, text_field};
use crate::name_mapping::tool_app_uri;
use crate::param_headers;
use crate::resource_subscriptions;
use crate::upstream_state::UpstreamState;
use moonlark_core::tool_config::{ToolConfig, hide_arguments};

const SUBSCRIBE_METHOD: &str = "resources/subscribe";

/// What a definition becomes, and what is wrong with it all the same.
pub(crate) fn build_tool(
    shared: &Arc<UpstreamState>,
    source: &Arc<Source>,
    mut definition: Object,
) -> Result<(Tool, Option<Problem>)> {
    let name = text_field(&definition, "name").to_owned();
    if name.is_empty() {
        return Err(Problem::bad_script("a tool without a name is left out"));
    }
    let at = |problem: Problem| {
        let message = format!("tool {} of '{}': {}", name, source.name, problem.message);
        problem.with_message(message)
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
    if !accepts_object(&input) {
        let why = "left out: its schema does not describe an object of arguments";
        return Err(at(Problem::bad_script(why)));
    }
    let input = Value::Object(input);
    param_headers::check_marks(&input)
        .map_err(|why| at(Problem::bad_script(format!("left out: {why}"))))?;
    let config = shared.settings.tools.get(&name).cloned().unwrap_or_default();
    let mut input_json = schema_to_json(&input);
    let unknown = hide_arguments(&mut input_json, &config.arguments);
    let unknown =
        unknown.first().map(|it| shared.settings.source_key().unknown_argument_problem(&name, it));
    let shown_input = if config.arguments.is_empty() {
        input.clone()
    } else {
        Value::from_json(Json::Object(input_json.clone())).unwrap_or_default()
    };
    let (schema, problem) = Schema::from_foreign(input_json);
    let headers = param_headers::has_marks(&input).then_some(input);
    definition.insert("inputSchema".to_owned(), shown_input);
    let output = match definition.swap_remove("outputSchema") {
        Some(output @ Value::Object(_)) => {
            let schema = Schema::description_only(schema_to_json(&output));
            definition.insert("outputSchema".to_owned(), output);
            Some(schema)
        }
        _ => None,
    };
    shared.names.app_uri_to_caller(&mut definition);
    let effects = config.effects.apply_to(effects_from_annotations(&definition));
    apply_tool_config(&mut definition, &config, effects);
    let callee = UpstreamToolTarget {
        name: name.as_str().into(),
        headers: headers.map(Arc::new),
        fixed: Arc::new(config.arguments),
        repeatable: effects.read_only || effects.idempotent,
    };
    let body = build_tool_body(Arc::downgrade(shared), callee);
    let own_name = config.name.as_deref().unwrap_or(&name);
    let mut tool = Tool::new(format!("{}.{own_name}", source.name), source.clone(), schema, body);
    tool.original_name = Some(name.clone());
    tool.title = Some(text_field(&definition, "title").to_owned()).filter(|it| !it.is_empty());
    tool.description = text_field(&definition, "description").to_owned();
    tool.output = output;
    tool.effects = effects;
    tool.scope = shared.settings.scope.clone();
    tool.shown = ToolListing::As(format!("{}{own_name}", shared.settings.tool_prefix()));
    tool.expose = match shared.settings.expose {
        // A client can show the app of a tool only if it is listed.
        ToolExposure::Code | ToolExposure::Auto if tool_app_uri(&definition).is_some() => {
            ToolExposure::Both
        }
        expose => expose,
    };
    tool.definition = Some(Arc::new(definition));
    Ok((tool, problem.map(at).or(cut).or(unknown)))
}

/// What clients that list the tool see of the operator's words.
fn apply_tool_config(definition: &mut Object, config: &ToolConfig, effects: CallEffects) {
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
struct UpstreamToolTarget {
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
pub(crate) fn build_passthrough_tool(shared: &Arc<UpstreamState>, source: &Arc<Source>) -> Tool {
    let weak = Arc::downgrade(shared);
    let body = ToolBody::from_answering_fn(move |call, args| {
        let shared = weak.upgrade();
        async move {
            let shared = shared.ok_or_else(removed_upstream_problem)?;
            let method = args.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
            let params = args.get("params").and_then(Value::as_object).cloned();
            let mut params = params.unwrap_or_default();
            shared.names.params_to_upstream(&method, &mut params);
            if method == SUBSCRIBE_METHOD {
                return subscribe_for_lease(&shared, &call, &args, &params).await;
            }
            let request = UpstreamRequest::for_method(&method);
            let mut answer =
                call_request::request_for_call(&shared, &call, request, params).await?;
            shared.names.answer_to_caller(&mut answer);
            // What an old server leaves out, a modern client needs; an old one
            // is not told.
            if !answer.contains_key("resultType") {
                answer.insert("resultType".to_owned(), "complete".into());
            }
            Ok(ToolAnswer::Raw(answer))
        }
    });
    let schema = Schema::description_only(Map::new());
    let mut tool = Tool::new(format!("{}:", source.name), source.clone(), schema, body);
    tool.scope = shared.settings.scope.clone();
    tool.shown = ToolListing::Not;
    tool
}

/// The one request that outlives its call: what it began lasts as long as the
/// caller's lease, whatever the server's connection does.
async fn subscribe_for_lease(
    shared: &UpstreamState,
    call: &Call,
    args: &Value,
    params: &Object,
) -> Result<ToolAnswer> {
    let lease = match args.get("lease") {
        Some(Value::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let uri = params.get("uri").and_then(Value::as_str);
    let (Some(lease), Some(uri)) = (lease, uri) else {
        return Err(Problem::bad_request(format!("{SUBSCRIBE_METHOD} needs a uri and a lease")));
    };
    resource_subscriptions::watch_resource(shared, call, lease, uri).await?;
    Ok(ToolAnswer::Raw(Object::new()))
}

fn build_tool_body(shared: std::sync::Weak<UpstreamState>, callee: UpstreamToolTarget) -> ToolBody {
    ToolBody::from_answering_fn(move |call: Call, args| {
        let (shared, callee) = (shared.upgrade(), callee.clone());
        async move {
            let shared = shared.ok_or_else(removed_upstream_problem)?;
            let args = with_fixed_arguments(args, &callee.fixed)?;
            let headers = match (&callee.headers, &args) {
                (Some(schema), Value::Object(args)) => {
                    param_headers::collect_param_headers(schema, args)
                }
                _ => Vec::new(),
            };
            let mut params = Object::new();
            params.insert("name".to_owned(), Value::from(&*callee.name));
            params.insert("arguments".to_owned(), args);
            let request =
                UpstreamRequest { method: "tools/call", headers, repeatable: callee.repeatable };
            let answer = call_request::request_for_call(&shared, &call, request, params).await?;
            interpret_tool_result(&shared, answer)
        }
    })
}

/// The arguments with those that the operator gives. A caller that gives one of them
/// means something else by it.
fn with_fixed_arguments(args: Value, fixed: &BTreeMap<String, Value>) -> Result<Value> {
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
                .with_hint("the operator of this server decides about it: leave it out"));
        }
    }
    Ok(Value::Object(args))
}

/// What a server answered to `tools/call`.
fn interpret_tool_result(shared: &UpstreamState, mut answer: Object) -> Result<ToolAnswer> {
    if matches!(answer.get("resultType").and_then(Value::as_str), Some("input_required" | "task")) {
        shared.names.answer_to_caller(&mut answer);
        return Ok(ToolAnswer::Raw(answer));
    }
    let blocks = match answer.swap_remove("content") {
        Some(Value::Array(mut blocks)) => {
            if !shared.names.is_transparent() {
                blocks.iter_mut().for_each(|block| shared.names.block_to_caller(block));
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
    Content { blocks, structured, extra: answer }.into_answer(failed)
}

fn removed_upstream_problem() -> Problem {
    Problem::unavailable("the server was removed from the configuration")
}

fn effects_from_annotations(definition: &Object) -> CallEffects {
    let careful = CallEffects::default();
    let hint = |key: &str, default: bool| match definition
        .get("annotations")
        .and_then(|annotations| annotations.get(key))
    {
        Some(Value::Bool(said)) => *said,
        _ => default,
    };
    let read_only = hint("readOnlyHint", careful.read_only);
    CallEffects {
        read_only,
        destructive: !read_only && hint("destructiveHint", careful.destructive),
        idempotent: read_only || hint("idempotentHint", careful.idempotent),
        open_world: hint("openWorldHint", careful.open_world),
    }
}

/// Whether what it says about its type can be true of arguments.
fn accepts_object(schema: &Object) -> bool {
    match schema.get("type") {
        Some(Value::Str(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind.as_str() == Some("object")),
        _ => true,
    }
}

fn schema_to_json(schema: &Value) -> Map<String, Json> {
    match schema.to_json_lossy() {
        Json::Object(object) => object,
        _ => Map::new(),
    }
}
