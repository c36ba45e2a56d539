//! What sources have beside tools, as one server shows it.

use std::sync::Arc;

use moonlark_core::problem::cut_message;
use moonlark_core::sdk::SdkSource;
use moonlark_core::source_resources::{SourceResources, resources_for_prompt, resources_for_uri};
use moonlark_core::tool::ToolExposure;
use moonlark_core::{Catalog, Value};
use rmcp::model::{ErrorData, Reference, ServerCapabilities};
use serde_json::{Map, Value as Json, json};

const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// What this server can do: what Moonlark does, and what the sources add. A
/// source that is still connecting, or a script that is being loaded, may add anything
/// that is usual to have.
pub(super) fn server_capabilities(catalog: &Catalog) -> ServerCapabilities {
    let mut all = json!({"tools": {"listChanged": true}, "logging": {}});
    let is_growing = catalog.is_loading() || !catalog.connecting_sources().is_empty();
    if is_growing || !catalog.source_resources().is_empty() {
        all["resources"] = json!({"subscribe": true, "listChanged": true});
        all["prompts"] = json!({"listChanged": true});
        all["completions"] = json!({});
    }
    // Calls that take long are tasks for clients that know them.
    let mut extensions = Map::new();
    extensions.insert(TASKS_EXTENSION.to_owned(), json!({}));
    for offers in catalog.source_resources() {
        let Some(Value::Object(theirs)) = offers.capabilities.get("extensions") else { continue };
        for (name, settings) in theirs {
            extensions.entry(name.clone()).or_insert_with(|| settings.to_json_lossy());
        }
    }
    all["extensions"] = Json::Object(extensions);
    serde_json::from_value(all).unwrap_or_default()
}

/// What agents are told: our own words, and those of the sources. It goes into
/// every agent's context.
pub(super) fn agent_instructions(catalog: &Catalog) -> String {
    if catalog.has_code_mode() {
        return code_mode_instructions(catalog);
    }
    let mut text = String::from(
        "Tools of the operator of this server and of the servers behind it. Errors say what to do next.",
    );
    for offers in catalog.source_resources() {
        if let Some(theirs) = &offers.instructions {
            text.push_str(&format!("\n\n{}: {}", offers.source.name, cut_message(theirs)));
        }
    }
    text
}

/// The same where tools are called from scripts: what is connected, and how to
/// go on. What a source says of itself is told where there is room; otherwise
/// `list_functions` tells it to those who ask.
fn code_mode_instructions(catalog: &Catalog) -> String {
    const MAX_NAMED_SOURCES: usize = 12;
    const MAX_INSTRUCTIONS_BYTES: usize = 560;
    let sources = catalog.sdk().sources();
    let name = |source: &SdkSource| format!("{} ({})", source.name, source.functions.len());
    let mut connected: Vec<String> = sources.iter().take(MAX_NAMED_SOURCES).map(name).collect();
    connected.extend(
        sources
            .len()
            .checked_sub(MAX_NAMED_SOURCES)
            .filter(|more| *more > 0)
            .map(|more| format!("{more} more: list_functions")),
    );
    let example = sources.first().map_or("source", |source| source.name.as_str());
    let mut text = format!(
        "Functions are called from Luau scripts: find them with search_docs, then execute, for example `return sdk.{example}.name({{ key = value }})`. One script can make many calls and return only what matters.",
    );
    if !connected.is_empty() {
        text.push_str(&format!(" Sources (functions): {}.", connected.join(", ")));
    }
    let waiting: Vec<&str> = catalog
        .connecting_sources()
        .iter()
        // What is listed itself need not be looked for.
        .filter(|it| it.expose != ToolExposure::Direct)
        .take(MAX_NAMED_SOURCES)
        .map(|it| it.source.as_str())
        .collect();
    if !waiting.is_empty() {
        text.push_str(&format!(" Connecting: {}.", waiting.join(", ")));
    }
    for offers in catalog.source_resources() {
        if let Some(theirs) = &offers.instructions
            && text.len() + theirs.len() < MAX_INSTRUCTIONS_BYTES
        {
            text.push_str(&format!("\n\n{}: {}", offers.source.name, theirs.trim()));
        }
    }
    text
}

/// Whose a reference in a request for completion is.
pub(super) fn source_of_reference<'a>(
    catalog: &'a Catalog,
    reference: &Reference,
) -> Option<&'a Arc<SourceResources>> {
    match reference {
        Reference::Prompt(prompt) => resources_for_prompt(catalog.source_resources(), &prompt.name),
        Reference::Resource(resource) => {
            resources_for_uri(catalog.source_resources(), &resource.uri)
        }
        _ => None,
    }
}

/// Whose a task is: its id begins with the source.
pub(super) fn source_of_task<'a>(
    catalog: &'a Catalog,
    id: &str,
) -> Result<&'a Arc<SourceResources>, ErrorData> {
    let owns = |offers: &&Arc<SourceResources>| {
        id.strip_prefix(&offers.source.name).is_some_and(|rest| rest.starts_with(':'))
    };
    catalog
        .source_resources()
        .iter()
        .find(owns)
        .ok_or_else(|| ErrorData::invalid_params(format!("there is no task {id}"), None))
}

#[cfg(test)]
mod tests {
    use moonlark_core::catalog::ConnectingSource;
    use moonlark_core::schema::Schema;
    use moonlark_core::tool::{Source, SourceKind};
    use moonlark_core::{Result, Tool};
    use moonlark_gateway::tool_body::ToolBody;

    use super::*;

    /// So many servers, each with a name as servers have them.
    fn catalog(servers: usize) -> Catalog {
        const NAMES: [&str; 10] = [
            "github",
            "slack",
            "postgres",
            "filesystem",
            "chrome-devtools",
            "google_maps",
            "elasticsearch",
            "aws-documentation",
            "sequential-thinking",
            "basic-memory",
        ];
        let tools = (0..servers).flat_map(|server| {
            let name = match server {
                server if server < NAMES.len() => NAMES[server].to_owned(),
                server => format!("server-{server}"),
            };
            (0..26).map(move |number| {
                let source = Arc::new(Source { kind: SourceKind::Upstream, name: name.clone() });
                let body = ToolBody::from_fn(|_, _| -> Result<Value> { Ok(Value::Null) });
                let name = format!("{name}.tool_{number}");
                let mut tool = Tool::new(name, source, Schema::description_only(Map::new()), body);
                tool.expose = ToolExposure::Code;
                Arc::new(tool)
            })
        });
        Catalog::new(Arc::default(), tools.collect(), &[], Vec::new())
    }

    #[test]
    fn ten_sources_are_told_in_150_tokens_and_more_take_little_more() {
        let counter = tiktoken_rs::o200k_base().unwrap();
        let tokens = |servers| {
            let text = agent_instructions(&catalog(servers));
            (counter.encode_ordinary(&text).len(), text)
        };
        let (ten, text) = tokens(10);
        assert!(ten <= 150, "{ten} tokens: {text}");
        assert!(text.contains("basic_memory (26)"), "{text}");
        let (many, text) = tokens(500);
        assert!(many <= 180, "{many} tokens: {text}");
        assert!(text.contains("488 more"), "{text}");
    }

    #[test]
    fn sources_that_connect_are_named_where_agents_look_for_their_functions() {
        let connecting = |source: &str, expose| ConnectingSource {
            source: source.to_owned(),
            kind: SourceKind::Upstream,
            prefix: format!("{source}__"),
            expose,
            is_remembered: false,
        };
        let sources =
            vec![connecting("git", ToolExposure::Code), connecting("fs", ToolExposure::Direct)];
        let catalog = Catalog::default().with_source_resources(Vec::new(), sources);
        let text = code_mode_instructions(&catalog);
        assert!(text.ends_with("return only what matters. Connecting: git."), "{text}");
    }
}
