//! The catalog as MCP lists it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use moonlark_core::catalog::unreadable_original;
use moonlark_core::original_name::with_original_name;
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
    if let Some(original) = unreadable_original(tool, name) {
        let own = described.description.unwrap_or_default();
        described.description = Some(with_original_name(&own, original).into());
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

/// Whether some parameter travels in a header too: one that is reached by `properties` alone.
fn uses_headers(schema: &serde_json::Map<String, Json>) -> bool {
    let properties = schema.get("properties").and_then(Json::as_object);
    properties.into_iter().flat_map(|properties| properties.values()).any(|property| {
        property.get("x-mcp-header").is_some() || property.as_object().is_some_and(uses_headers)
    })
}

#[cfg(test)]
mod tests {
    use moonlark_core::portable_schema::PortableInput;
    use moonlark_core::schema::Schema;
    use moonlark_core::tool::{Source, SourceKind, ToolListing};
    use moonlark_core::tool_body::SealedBody;
    use serde_json::json;

    use super::*;

    fn tool(name: &str, schema: &Json) -> Arc<moonlark_core::Tool> {
        let source = Arc::new(Source { kind: SourceKind::Upstream, name: "shop".to_owned() });
        let (input, _) = Schema::from_foreign(schema.as_object().unwrap().clone());
        let mut tool =
            moonlark_core::Tool::new(format!("shop.{name}"), source, input, SealedBody::empty());
        tool.shown = ToolListing::As(format!("shop__{name}"));
        tool.original_name = Some(name.to_owned());
        tool.expose = moonlark_core::tool::ToolExposure::Direct;
        "Finds.".clone_into(&mut tool.description);
        Arc::new(tool)
    }

    fn listing(tools: Vec<Arc<moonlark_core::Tool>>) -> McpListing {
        let catalog = Catalog::new(Arc::default(), tools, &[], vec![]);
        McpListing::new(&catalog, ListedSchemas::Portable)
    }

    #[test]
    fn a_parameter_that_travels_in_a_header_counts_wherever_it_is() {
        let marked = json!({"type": "string", "x-mcp-header": "Region"});
        let at_top = json!({"type": "object", "properties": {"region": marked}});
        let nested = json!({"type": "object", "properties": {"where": at_top}});
        let plain = json!({"type": "object", "properties": {"x-mcp-header": {"type": "string"}}});
        for (schema, expected) in [(&at_top, true), (&nested, true), (&plain, false)] {
            let listing = listing(vec![tool("find", schema)]);
            assert_eq!(listing.tool_with_headers("shop__find").is_some(), expected, "{schema}");
            // Clients are told of it at the same place.
            let listed = PortableInput::from_schema(schema.as_object().unwrap()).schema;
            assert_eq!(uses_headers(&listed), expected);
        }
    }

    #[test]
    fn a_tool_whose_name_has_lost_letters_says_what_it_was() {
        let schema = json!({"type": "object"});
        let listing = listing(vec![tool("find.all", &schema), tool("поиск", &schema)]);
        let said: Vec<&str> =
            listing.tools.iter().map(|it| it.description.as_deref().unwrap()).collect();
        assert_eq!(said, ["Finds.", "Finds. (original name: поиск)"]);
    }
}
