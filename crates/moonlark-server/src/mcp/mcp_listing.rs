//! The catalog as MCP lists it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use moonlark_core::portable_schema::portable_output;
use moonlark_core::source_resources::SourceResources;
use moonlark_core::value::Object;
use moonlark_core::{Catalog, Value};
use moonlark_gateway::per_catalog::PerCatalog;
use moonlark_gateway::server_identity::ListedSchemas;
use moonlark_gateway::{Caller, Gateway};
use rmcp::model::{
    CacheScope, ErrorData, PaginatedRequestParams, Prompt, Resource, ResourceTemplate, Tool,
    ToolAnnotations,
};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

/// Entries on one page of a list.
const LIST_PAGE_SIZE: usize = 1000;
/// A client that listens is told of changes; one that does not looks this often.
const LIST_TTL_MS: u64 = 60_000;
/// While sources connect, lists grow.
const CONNECTING_TTL_MS: u64 = 1_000;

/// What the catalogs in use have, made once for each and each form of schemas.
#[derive(Default)]
pub(super) struct McpListingCache {
    portable: PerCatalog<McpListing>,
    exact: PerCatalog<McpListing>,
}

impl McpListingCache {
    pub(super) fn listing_of(
        &self,
        catalog: &Arc<Catalog>,
        schemas: ListedSchemas,
    ) -> Arc<McpListing> {
        let cache = match schemas {
            ListedSchemas::Portable => &self.portable,
            ListedSchemas::Exact => &self.exact,
        };
        cache.get_or_make(catalog, || McpListing::new(catalog, schemas))
    }
}

/// What one catalog has, ready to send.
pub(super) struct McpListing {
    pub(super) tools: Vec<Tool>,
    pub(super) resources: Vec<Resource>,
    pub(super) templates: Vec<ResourceTemplate>,
    pub(super) prompts: Vec<Prompt>,
    /// Tools whose parameters travel in HTTP headers too; the SDK compares.
    headers: HashMap<String, Tool>,
}

impl McpListing {
    fn new(catalog: &Catalog, schemas: ListedSchemas) -> Self {
        let tools: Vec<Tool> = catalog
            .listed_tools()
            .iter()
            .map(|(name, tool)| describe_tool(name, tool, schemas))
            .collect();
        let headers = tools
            .iter()
            .filter(|tool| uses_headers(&tool.input_schema))
            .map(|tool| (tool.name.to_string(), tool.clone()))
            .collect();
        let resources = collect_definitions(catalog, |offers| &offers.resources);
        let templates = collect_definitions(catalog, |offers| &offers.templates);
        let prompts = collect_definitions(catalog, |offers| &offers.prompts);
        Self { tools, resources, templates, prompts, headers }
    }

    pub(super) fn tool_with_headers(&self, name: &str) -> Option<Tool> {
        self.headers.get(name).cloned()
    }
}

/// How long clients may keep a list, and whether several may share it. Only the
/// clients of 2026-07-28 are told.
pub(super) struct ListCaching {
    pub(super) ttl_ms: u64,
    pub(super) scope: CacheScope,
}

impl ListCaching {
    /// For the lists of one caller. Others may be given the same only where nobody
    /// is told apart: where there is no rule, and callers show no names.
    pub(super) fn for_caller(gateway: &Gateway, caller: &Caller) -> ListCaching {
        let connecting = !gateway.catalog_for(caller).connecting_sources().is_empty();
        let same_for_all = gateway.policy().is_empty() && caller.name.is_none();
        ListCaching {
            ttl_ms: if connecting { CONNECTING_TTL_MS } else { LIST_TTL_MS },
            scope: if same_for_all { CacheScope::Public } else { CacheScope::Private },
        }
    }
}

/// One page of a list, where the next begins, and how long clients may keep it.
pub(super) struct ListPage<T> {
    pub(super) items: Vec<T>,
    pub(super) next_cursor: Option<String>,
    pub(super) ttl_ms: Option<u64>,
    pub(super) cache_scope: Option<CacheScope>,
}

/// The entries of one page, and where the next begins.
pub(super) fn paginate_list<T: Clone>(
    all: &[T],
    request: Option<PaginatedRequestParams>,
) -> Result<(Vec<T>, Option<String>), ErrorData> {
    let cursor = request.and_then(|request| request.cursor).unwrap_or_default();
    let start = match cursor.as_str() {
        "" => 0,
        cursor => cursor
            .parse()
            .ok()
            .filter(|start| *start < all.len())
            .ok_or_else(|| ErrorData::invalid_params("unknown cursor", None))?,
    };
    let end = (start + LIST_PAGE_SIZE).min(all.len());
    Ok((all[start..end].to_vec(), (end < all.len()).then(|| end.to_string())))
}

/// What all sources list. Entries that are no such thing were reported when the
/// source was read.
fn collect_definitions<T: DeserializeOwned>(
    catalog: &Catalog,
    list: impl Fn(&SourceResources) -> &Arc<Vec<Object>>,
) -> Vec<T> {
    let definitions = catalog.source_resources().iter().flat_map(|offers| list(offers).iter());
    definitions.filter_map(parse_definition).collect()
}

fn parse_definition<T: DeserializeOwned>(definition: &Object) -> Option<T> {
    serde_json::from_value(Value::Object(definition.clone()).to_json_lossy()).ok()
}

fn describe_tool(name: &str, tool: &moonlark_core::Tool, schemas: ListedSchemas) -> Tool {
    let mut described = describe_tool_exactly(name, tool);
    if schemas == ListedSchemas::Portable {
        described.input_schema = tool.portable_input().schema.clone();
        let portable = described.output_schema.as_ref().and_then(|it| portable_output(it));
        // A result that is no object is said as it is, to whom it is said at all.
        described.output_schema = portable.map(Arc::new).or(described.output_schema);
    }
    described
}

fn describe_tool_exactly(name: &str, tool: &moonlark_core::Tool) -> Tool {
    // A source that speaks MCP describes its tools better than we could.
    if let Some(mut described) = tool.definition.as_deref().and_then(parse_definition::<Tool>) {
        described.name = Cow::Owned(name.to_owned());
        return described;
    }
    let effects = tool.effects;
    let mut described = Tool::new(
        Cow::Owned(name.to_owned()),
        Cow::Owned(tool.description.clone()),
        tool.input.json().clone(),
    );
    described.title = tool.title.clone();
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
