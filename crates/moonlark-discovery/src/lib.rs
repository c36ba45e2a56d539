//! How agents find out what they can call: three tools, and the same as
//! resources.
//!
//! Everything is drawn from [`Catalog::sdk_resources`], the one table of names, so that
//! what is printed can be called as it is printed. Nothing here knows where a tool
//! comes from; documents are found by calling the tools that find them.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod artifact_search;
mod described_functions;
mod document_search;
mod example_call;
mod function_docs;
mod function_index;
mod function_list;
mod function_search;
mod function_summary;
mod index_cache;
mod request_search;
mod resources;
#[cfg(test)]
mod test_catalog;
pub mod text_index;
mod tool_definitions;

use std::sync::Arc;

use moonlark_core::source_resources::SourceResources;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::{Catalog, Result, Tool};

pub use described_functions::{DescribedFunction, find_functions};
pub use function_index::{FoundFunction, FunctionIndex, best_fit};
pub use function_search::MIN_FIT;
use index_cache::FunctionIndexCache;

/// What agents see the names of all functions before.
pub(crate) const SDK_NAME_PREFIX: &str = "sdk.";

/// `search_docs`, `list_functions` and `get_function_docs`.
pub fn discovery_tools() -> Result<Vec<Arc<Tool>>> {
    let current = Arc::new(FunctionIndexCache::default());
    Ok(vec![
        Arc::new(tool_definitions::search_docs_tool(current)?),
        Arc::new(tool_definitions::list_functions_tool()?),
        Arc::new(tool_definitions::get_function_docs_tool()?),
    ])
}

/// `sdk://…` and `artifact://…`, where agents have a use for scripts.
pub fn discovery_resources(catalog: &Catalog) -> Vec<Arc<SourceResources>> {
    if !catalog.has_code_mode() {
        return Vec::new();
    }
    vec![Arc::new(resources::sdk_resources(catalog)), Arc::new(resources::artifact_resources())]
}

pub(crate) fn builtin_source() -> Arc<Source> {
    Arc::new(Source { kind: SourceKind::Builtin, name: "moonlark".to_owned() })
}
