//! As much of a catalog as the check of one script needs, to be sent to a worker: the names
//! of all sources, what is in those that the script mentions, and the schemas of the
//! functions that it mentions.

use std::collections::HashSet;
use std::sync::Arc;

use moonlark_core::catalog::ConnectingSource;
use moonlark_core::schema::Schema;
use moonlark_core::sdk::{Sdk, SdkFunction, SdkSource};
use moonlark_core::source_resources::SourceState;
use moonlark_core::tool::{Source, SourceKind, ToolExposure};
use moonlark_core::{Catalog, Module, Tool, Value};
use moonlark_gateway::tool_body::ToolBody;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

#[derive(Serialize, Deserialize)]
pub(super) struct DescribedCatalog {
    sources: Vec<DescribedSource>,
    /// Sources that may have anything: those that are not connected, and those that the
    /// script does not mention.
    awaited: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct DescribedSource {
    /// Its identifier.
    name: String,
    original: String,
    functions: Vec<DescribedFunction>,
}

#[derive(Serialize, Deserialize)]
struct DescribedFunction {
    name: String,
    original: String,
    /// None where the script does not mention it.
    schemas: Option<FunctionSchemas>,
}

#[derive(Serialize, Deserialize)]
struct FunctionSchemas {
    input: Map<String, Json>,
    output: Option<Map<String, Json>>,
}

impl DescribedCatalog {
    pub(super) fn for_script(catalog: &Catalog, script: &str) -> DescribedCatalog {
        let words = mentioned_words(script);
        let is_mentioned =
            |name: &str, original: &str| words.contains(name) || words.contains(original);
        let down = catalog.health().iter().filter(|it| it.state != SourceState::Ready);
        let down = down.map(|it| it.source.clone());
        let connecting = catalog.connecting_sources().iter().map(|it| it.source.clone());
        let mut described =
            DescribedCatalog { sources: Vec::new(), awaited: connecting.chain(down).collect() };
        for source in catalog.sdk().sources() {
            let (name, original) = (source.name.clone(), source.original.clone());
            let mut functions = Vec::new();
            if is_mentioned(&name, &original) {
                functions.extend(source.functions.iter().map(|it| {
                    DescribedFunction {
                        name: it.name.clone(),
                        original: it.original.clone(),
                        schemas: is_mentioned(&it.name, &it.original)
                            .then(|| FunctionSchemas::of_tool(&it.tool)),
                    }
                }));
            } else {
                described.awaited.push(original.clone());
            }
            described.sources.push(DescribedSource { name, original, functions });
        }
        described
    }

    pub(super) fn into_catalog(self, modules: &Arc<Vec<Module>>) -> Catalog {
        let unknown = Arc::new(described_tool(Map::new(), None));
        let to_function = |it: DescribedFunction| SdkFunction {
            name: it.name,
            original: it.original,
            tool: it.schemas.map_or_else(
                || unknown.clone(),
                |FunctionSchemas { input, output }| Arc::new(described_tool(input, output)),
            ),
        };
        let sources = self.sources.into_iter().map(|it| {
            let functions = it.functions.into_iter().map(to_function).collect();
            SdkSource::from_functions(it.name, it.original, SourceKind::Upstream, functions)
        });
        let sdk = Sdk::from_sources(sources.collect());
        let awaited = self.awaited.into_iter().map(|source| ConnectingSource {
            source,
            kind: SourceKind::Upstream,
            prefix: String::new(),
            expose: ToolExposure::Code,
            is_remembered: false,
        });
        Catalog::from_sdk(modules.clone(), sdk, awaited.collect())
    }
}

impl FunctionSchemas {
    fn of_tool(tool: &Tool) -> FunctionSchemas {
        // Not kept with the tool, which may never be called.
        let peek = |schema: &Schema| Arc::unwrap_or_clone(schema.peek_json());
        FunctionSchemas { input: peek(&tool.input), output: tool.output.as_ref().map(peek) }
    }
}

/// A tool as far as a check needs it.
fn described_tool(input: Map<String, Json>, output: Option<Map<String, Json>>) -> Tool {
    let source = Arc::new(Source { kind: SourceKind::Upstream, name: String::new() });
    let body = ToolBody::from_fn(|_, _| Ok(Value::Null));
    let mut tool = Tool::new("", source, Schema::description_only(input), body);
    tool.output = output.map(Schema::description_only);
    tool
}

/// Whatever may name a source or a function: words, and texts in quotes.
fn mentioned_words(script: &str) -> HashSet<&str> {
    let words = script.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    words.chain(script.split(['"', '\'', '`'])).collect()
}
