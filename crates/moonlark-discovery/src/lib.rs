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

use moonlark_core::offers::Offers;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::{Catalog, Result, Tool};

use current::Current;
pub use described_functions::{DescribedFunction, find_functions};
pub use functions::{FoundFunction, FunctionIndex};

/// What agents see the names of all functions before.
pub(crate) const SDK: &str = "sdk.";

/// `search_docs`, `list_functions` and `get_function_docs`.
pub fn tools() -> Result<Vec<Arc<Tool>>> {
    let current = Arc::new(Current::default());
    Ok(vec![
        Arc::new(definitions::search_docs(current)?),
        Arc::new(definitions::list_functions()?),
        Arc::new(definitions::get_function_docs()?),
    ])
}

/// `sdk://…` and `artifact://…`, where agents have a use for scripts.
pub fn offers(catalog: &Catalog) -> Vec<Arc<Offers>> {
    if !catalog.code_mode() {
        return Vec::new();
    }
    vec![Arc::new(resources::sdk(catalog)), Arc::new(resources::artifacts())]
}

pub(crate) fn source() -> Arc<Source> {
    Arc::new(Source { kind: SourceKind::Builtin, name: "moonlark".to_owned() })
}
