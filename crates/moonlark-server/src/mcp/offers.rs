//! What sources have beside tools, as one server shows it.

use std::sync::Arc;

use moonlark_core::offers::{Offers, of_prompt, of_uri};
use moonlark_core::problem::cut;
use moonlark_core::{Catalog, Value};
use rmcp::model::{ErrorData, Reference, ServerCapabilities};
use serde_json::{Map, Value as Json, json};

/// What this server can do: what Moonlark does, and what the sources add. A
/// source that is still connecting may add anything it is usual to have.
pub(super) fn capabilities(catalog: &Catalog) -> ServerCapabilities {
    let mut all = json!({"tools": {"listChanged": true}, "logging": {}});
    if !(catalog.offers().is_empty() && catalog.connecting().is_empty()) {
        all["resources"] = json!({"subscribe": true, "listChanged": true});
        all["prompts"] = json!({"listChanged": true});
        all["completions"] = json!({});
    }
    let mut extensions = Map::new();
    for offers in catalog.offers() {
        let Some(Value::Object(theirs)) = offers.capabilities.get("extensions") else { continue };
        for (name, settings) in theirs {
            extensions.entry(name.clone()).or_insert_with(|| settings.to_json_lossy());
        }
    }
    if !extensions.is_empty() {
        all["extensions"] = Json::Object(extensions);
    }
    serde_json::from_value(all).unwrap_or_default()
}

/// What agents are told: our own words, and those of the sources.
pub(super) fn instructions(catalog: &Catalog) -> String {
    let mut text = String::from(
        "Tools of the operator of this server and of the servers behind it. Errors say what to do next.",
    );
    for offers in catalog.offers() {
        if let Some(theirs) = &offers.instructions {
            // They go into every agent's context.
            text.push_str(&format!("\n\n{}: {}", offers.source.name, cut(theirs)));
        }
    }
    text
}

/// Whose a reference in a request for completion is.
pub(super) fn of_reference<'a>(
    catalog: &'a Catalog,
    reference: &Reference,
) -> Option<&'a Arc<Offers>> {
    match reference {
        Reference::Prompt(prompt) => of_prompt(catalog.offers(), &prompt.name),
        Reference::Resource(resource) => of_uri(catalog.offers(), &resource.uri),
        _ => None,
    }
}

/// Whose a task is: its id begins with the source.
pub(super) fn of_task<'a>(catalog: &'a Catalog, id: &str) -> Result<&'a Arc<Offers>, ErrorData> {
    let owns = |offers: &&Arc<Offers>| {
        id.strip_prefix(&offers.source.name).is_some_and(|rest| rest.starts_with(':'))
    };
    catalog
        .offers()
        .iter()
        .find(owns)
        .ok_or_else(|| ErrorData::invalid_params(format!("there is no task {id}"), None))
}
