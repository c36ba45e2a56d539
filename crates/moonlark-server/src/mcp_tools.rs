//! The catalog as MCP lists it.

use std::collections::HashMap;
use std::sync::Arc;

use moonlark_core::Catalog;
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::Value as Json;

use crate::mcp::owned;

/// The tools of one catalog, ready to send.
pub(crate) struct Listing {
    catalog: Arc<Catalog>,
    tools: Vec<Tool>,
    /// Tools whose parameters travel in HTTP headers too; the SDK compares.
    headers: HashMap<String, Tool>,
}

impl Listing {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Self {
        let tools: Vec<Tool> = catalog.tools().iter().map(|tool| describe(tool)).collect();
        let headers = tools
            .iter()
            .filter(|tool| uses_headers(&tool.input_schema))
            .map(|tool| (tool.name.to_string(), tool.clone()))
            .collect();
        Self { catalog, tools, headers }
    }

    pub(crate) fn is_of(&self, catalog: &Arc<Catalog>) -> bool {
        Arc::ptr_eq(&self.catalog, catalog)
    }

    pub(crate) fn tools(&self) -> &[Tool] {
        &self.tools
    }

    pub(crate) fn with_headers(&self, name: &str) -> Option<Tool> {
        self.headers.get(name).cloned()
    }
}

fn describe(tool: &moonlark_core::Tool) -> Tool {
    let effects = tool.effects;
    let mut described =
        Tool::new(owned(&tool.name), owned(&tool.description), tool.input.json().clone());
    // Old clients only know objects as output.
    described.output_schema = tool
        .output
        .as_ref()
        .filter(|output| output.json().get("type") == Some(&Json::from("object")))
        .map(|output| output.json().clone());
    let mut annotations = ToolAnnotations::new();
    annotations.read_only_hint = Some(effects.read_only);
    annotations.destructive_hint = Some(effects.destructive);
    annotations.idempotent_hint = Some(effects.idempotent);
    annotations.open_world_hint = Some(effects.open_world);
    described.annotations = Some(annotations);
    described
}

fn uses_headers(schema: &serde_json::Map<String, Json>) -> bool {
    schema
        .get("properties")
        .and_then(Json::as_object)
        .into_iter()
        .flatten()
        .any(|(_, property)| property.get("x-mcp-header").is_some())
}
