//! A prompt script as a prompt: listing, arguments, and answers.

use std::sync::Arc;

use moonlark_core::content::{ToolAnswer, is_content_block};
use moonlark_core::nearest::nearest_name;
use moonlark_core::schema::Schema;
use moonlark_core::source_resources::{ResourceWatcher, SourceResources};
use moonlark_core::tool::{CallEffects, CallScope, Source, SourceKind, ToolListing};
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::visible_text::visible_in_line;
use moonlark_core::{Problem, Result, SourceLocation, Tool, Value};
use moonlark_gateway::Call;
use moonlark_gateway::tool_body::ToolBody;
use moonlark_luau::{PromptHeader, PromptScript};

use crate::scripts::{DiscoveredScript, wrong_kind_problem};

/// Messages of one prompt.
const MAX_PROMPT_MESSAGES: usize = 1000;

/// What a prompt script offers: one prompt.
pub(super) fn offer_prompt(
    found: &DiscoveredScript,
    script: PromptScript,
    scope: Arc<CallScope>,
) -> Result<SourceResources> {
    let name = resolve_prompt_name(found, &script.header)?;
    let source = Arc::new(Source { kind: SourceKind::Script, name: found.file.clone() });
    let definition = prompt_definition(&name, &script.header);
    let door = prompt_request_tool(&name, &source, script, scope);
    Ok(SourceResources {
        source,
        uris: String::new(),
        app_uris: Arc::default(),
        names: String::new(),
        resources: Arc::default(),
        templates: Arc::default(),
        prompts: Arc::new(vec![definition]),
        capabilities: Arc::new(
            [("prompts".to_owned(), Value::Object(Object::new()))].into_iter().collect(),
        ),
        instructions: None,
        door: Arc::new(door),
        watcher: Arc::new(NoopResourceWatcher),
    })
}

/// The name of the prompt that such a source has.
pub(super) fn offered_prompt_name(offers: &SourceResources) -> Option<&str> {
    offers.prompts.first()?.get("name")?.as_str()
}

/// Only resources can be watched.
struct NoopResourceWatcher;

impl ResourceWatcher for NoopResourceWatcher {
    fn release_lease(&self, _lease: u64) {}
}

/// The name in the configuration, the script's own, or that of its file.
fn resolve_prompt_name(found: &DiscoveredScript, header: &PromptHeader) -> Result<String> {
    let stem = found.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    match (&found.configured, &header.name) {
        (Some(key), Some(name)) if key != name => {
            let message =
                format!("the script calls itself {name}, but the configuration calls it {key}");
            Err(Problem::bad_script(message)
                .at_location(SourceLocation::in_file(found.file.clone()))
                .with_hint(format!(
                    "rename [agents.script.{key}] to [agents.script.{name}], or change agent.name"
                )))
        }
        (Some(key), _) => Ok(key.clone()),
        (None, Some(name)) if !name.is_empty() => Ok(name.clone()),
        (None, _) => Ok(stem.to_owned()),
    }
}

/// The prompt as MCP lists it.
fn prompt_definition(name: &str, header: &PromptHeader) -> Object {
    let mut prompt = Object::new();
    prompt.insert("name".to_owned(), name.into());
    if let Some(title) = &header.title {
        prompt.insert("title".to_owned(), title.as_str().into());
    }
    if !header.description.is_empty() {
        prompt.insert("description".to_owned(), header.description.as_str().into());
    }
    let argument = |argument: &moonlark_luau::PromptArgument| {
        let mut fields = Object::new();
        fields.insert("name".to_owned(), argument.name.as_str().into());
        if !argument.description.is_empty() {
            fields.insert("description".to_owned(), argument.description.as_str().into());
        }
        fields.insert("required".to_owned(), argument.required.into());
        Value::Object(fields)
    };
    let arguments: Vec<Value> = header.arguments.iter().map(argument).collect();
    if !arguments.is_empty() {
        prompt.insert("arguments".to_owned(), Value::Array(arguments));
    }
    prompt
}

/// What answers requests for the prompt.
fn prompt_request_tool(
    name: &str,
    source: &Arc<Source>,
    script: PromptScript,
    scope: Arc<CallScope>,
) -> Tool {
    let body = ToolBody::from_answering_fn(move |call: Call, args: Value| {
        let script = script.clone();
        async move {
            let method = args.get("method").and_then(Value::as_str).unwrap_or_default();
            let params = args.get("params").unwrap_or(&Value::Null);
            let mut answer = match method {
                "prompts/get" => get_prompt(&script, &call, params).await?,
                "completion/complete" => empty_completion(),
                _ => {
                    let method = shorten_text(method);
                    return Err(Problem::bad_request(format!("a prompt knows no {method}")));
                }
            };
            answer.insert("resultType".to_owned(), "complete".into());
            Ok(ToolAnswer::Raw(answer))
        }
    });
    let schema = Schema::description_only(serde_json::Map::new());
    let mut tool = Tool::new(format!("agent:{name}"), source.clone(), schema, body);
    // It makes a text. What it calls for that goes by the rules itself.
    tool.effects = CallEffects { open_world: true, ..CallEffects::READ_ONLY };
    tool.shown = ToolListing::Not;
    tool.scope = scope;
    tool
}

fn empty_completion() -> Object {
    let nothing = Value::from_fields([("values", Value::Array(Vec::new()))]);
    [("completion".to_owned(), nothing)].into_iter().collect()
}

async fn get_prompt(script: &PromptScript, call: &Call, params: &Value) -> Result<Object> {
    let header = &script.header;
    let given = params.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
    let args = resolve_arguments(header, given)?;
    let resolved = script.resolve_prompt(call, Value::Object(args)).await?;
    let (messages, tools) = read_prompt_result(resolved, header, call)?;
    let mut answer = Object::new();
    if !header.description.is_empty() {
        answer.insert("description".to_owned(), header.description.as_str().into());
    }
    answer.insert("messages".to_owned(), Value::Array(messages));
    if !tools.is_empty() {
        let tools = Value::from_fields([("moonlark/tools", tools.into())]);
        answer.insert("_meta".to_owned(), tools);
    }
    Ok(answer)
}

/// What was given, held to what the script says it takes; defaults filled in.
fn resolve_arguments(header: &PromptHeader, mut given: Object) -> Result<Object> {
    let names = || header.arguments.iter().map(|argument| argument.name.as_str());
    let mut wrong = Vec::new();
    for name in given.keys().filter(|name| !names().any(|known| known == *name)) {
        let near = nearest_name(name, names()).map(|near| format!(" (did you mean {near}?)"));
        wrong.push(format!("unknown argument: {}{}", shorten_text(name), near.unwrap_or_default()));
    }
    for argument in &header.arguments {
        let is_missing = given.get(&argument.name).is_none_or(|value| *value == Value::Null);
        match &argument.default {
            Some(default) if is_missing => {
                given.insert(argument.name.clone(), default.clone());
            }
            None if is_missing && argument.required => {
                wrong.push(format!("missing required argument: {}", argument.name));
            }
            _ => {}
        }
    }
    if wrong.is_empty() { Ok(given) } else { Err(Problem::bad_request(wrong.join("; "))) }
}

/// What the script returned as messages, and the tools it names. MCP has no
/// role for the system: what is to be known first is the first message.
fn read_prompt_result(
    resolved: Value,
    header: &PromptHeader,
    call: &Call,
) -> Result<(Vec<Value>, Vec<String>)> {
    let mut fields = match resolved {
        Value::Str(text) => [("system".to_owned(), Value::Str(text))].into_iter().collect(),
        Value::Object(fields) => fields,
        other => {
            let rule = "agent.resolve must return a table with system and messages";
            return Err(wrong_kind_problem(rule, &other));
        }
    };
    let mut take = |name: &str| fields.swap_remove(name).unwrap_or(Value::Null);
    let tools = match take("tools") {
        Value::Null => header.tools.clone(),
        Value::Object(empty) if empty.is_empty() => Vec::new(),
        Value::Array(items) => items
            .into_iter()
            .map(|item| match item {
                Value::Str(name) => Ok(name),
                other => Err(wrong_kind_problem("tools of agent.resolve must be names", &other)),
            })
            .collect::<Result<_>>()?,
        other => return Err(wrong_kind_problem("tools of agent.resolve must be a list", &other)),
    };
    let unknown = tools.iter().filter(|name| is_unknown_tool(name, call));
    for name in unknown {
        let (prompt, name) = (visible_in_line(call.tool()), visible_in_line(name));
        tracing::warn!("{prompt} names the tool {name}, which does not exist");
    }
    let tools: Vec<String> = tools.into_iter().map(|name| listed_tool_name(&name, call)).collect();
    let mut first = match take("system") {
        Value::Null => String::new(),
        Value::Str(text) => text,
        other => return Err(wrong_kind_problem("system of agent.resolve must be text", &other)),
    };
    if !tools.is_empty() {
        if !first.is_empty() {
            first.push_str("\n\n");
        }
        first.push_str(&format!("Tools for this: {}.", tools.join(", ")));
    }
    let mut messages = Vec::new();
    if !first.is_empty() {
        messages.push(prompt_message("user", text_block(first)));
    }
    let list = match take("messages") {
        Value::Null => Vec::new(),
        Value::Object(empty) if empty.is_empty() => Vec::new(),
        Value::Array(list) if list.len() <= MAX_PROMPT_MESSAGES => list,
        Value::Array(_) => {
            return Err(Problem::tool_error(format!(
                "agent.resolve returned more than {MAX_PROMPT_MESSAGES} messages"
            )));
        }
        other => {
            return Err(wrong_kind_problem("messages of agent.resolve must be a list", &other));
        }
    };
    for (index, item) in list.into_iter().enumerate() {
        read_message(item, &format!("messages[{}]", index + 1), &mut messages)?;
    }
    if messages.is_empty() {
        return Err(Problem::tool_error("agent.resolve returned neither system nor messages"));
    }
    Ok((messages, tools))
}

/// One message; one with several pieces of content becomes as many.
fn read_message(item: Value, at: &str, messages: &mut Vec<Value>) -> Result<()> {
    let mut fields = match item {
        Value::Str(text) => {
            messages.push(prompt_message("user", text_block(text)));
            return Ok(());
        }
        Value::Object(fields) => fields,
        other => {
            let table = "{ role = \"user\", content = \"…\" }";
            let rule = format!("{at} must be a table such as {table}");
            return Err(wrong_kind_problem(&rule, &other));
        }
    };
    let role = match fields.get("role").and_then(Value::as_str).unwrap_or("user") {
        "assistant" => "assistant",
        "user" | "system" | "developer" => "user",
        other => {
            return Err(Problem::tool_error(format!(
                "{at}.role is {:?}, which is none of user, assistant, system",
                shorten_text(other)
            )));
        }
    };
    let blocks = match fields.swap_remove("content").unwrap_or(Value::Null) {
        Value::Str(text) => vec![text_block(text)],
        block @ Value::Object(_) if is_content_block(&block) => vec![block],
        Value::Array(blocks) if blocks.iter().all(is_content_block) => blocks,
        other => {
            let rule = format!("{at}.content must be text or content as MCP has it");
            return Err(wrong_kind_problem(&rule, &other));
        }
    };
    messages.extend(blocks.into_iter().map(|block| prompt_message(role, block)));
    Ok(())
}

fn prompt_message(role: &str, content: Value) -> Value {
    Value::from_fields([("role", role.into()), ("content", content)])
}

fn text_block(text: String) -> Value {
    Value::from_fields([("type", "text".into()), ("text", text.into())])
}

/// A tool by the name that the caller sees, whichever of its names it was given by.
fn listed_tool_name(name: &str, call: &Call) -> String {
    let catalog = call.catalog();
    let Ok(tool) = catalog.find_tool_for_agents(name) else { return name.to_owned() };
    let listed = catalog.listed_tools().iter().find(|(_, other)| Arc::ptr_eq(other, tool));
    listed.map_or_else(|| tool.name.clone(), |(shown, _)| shown.clone())
}

/// Whether no tool has the name, and none that is yet to come may have it.
fn is_unknown_tool(name: &str, call: &Call) -> bool {
    let catalog = call.catalog();
    let is_complete = !catalog.is_loading() && catalog.connecting_sources().is_empty();
    is_complete && catalog.find_tool_for_agents(name).is_err()
}
