//! How agents find out what they can call: three tools, and the same as
//! resources.
//!
//! Everything is drawn from [`Catalog::sdk`], the one table of names, so that
//! what is printed can be called as it is printed. Nothing here knows where a tool
//! comes from; documents are found by calling the tools that find them.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod current;
mod definitions;
mod described_functions;
mod docs;
mod documents;
mod example;
mod functions;
pub mod index;
mod inside;
mod list;
mod resources;
mod search;
mod short;
#[cfg(test)]
mod testing;

use std::sync::Arc;

use moonlark_core::offers::SourceResources;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::{Catalog, Result, Tool};

use current::FunctionIndexCache;
pub use described_functions::{DescribedFunction, find_functions};
pub use functions::{FoundFunction, FunctionIndex};

/// What agents see the names of all functions before.
pub(crate) const SDK_NAME_PREFIX: &str = "sdk.";

/// `search_docs`, `list_functions` and `get_function_docs`.
pub fn discovery_tools() -> Result<Vec<Arc<Tool>>> {
    let current = Arc::new(FunctionIndexCache::default());
    Ok(vec![
        Arc::new(definitions::search_docs_tool(current)?),
        Arc::new(definitions::list_functions_tool()?),
        Arc::new(definitions::get_function_docs_tool()?),
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
