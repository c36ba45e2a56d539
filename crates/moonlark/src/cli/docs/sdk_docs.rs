//! A tool as agent scripts call it, drawn as `get_function_docs` draws it.

use moonlark_core::{Catalog, Tool};
use moonlark_gateway::Gateway;
use moonlark_render::luau::sdk_docs::{ObservedResult, SdkFunctionDocs, sdk_function_docs};
use serde_json::{Map, Value as Json, json};

use super::super::cli_caller;

/// What scripts know of it; nothing for what they do not find under `sdk`.
pub(super) fn find_sdk_docs(
    tool: &Tool,
    catalog: &Catalog,
    gateway: &Gateway,
) -> Option<SdkFunctionDocs> {
    let functions = |source| -> Option<_> {
        let source: &moonlark_core::sdk::SdkSource = source;
        let same = |it: &&moonlark_core::sdk::SdkFunction| std::ptr::eq(&*it.tool, tool);
        Some((source, source.functions.iter().find(same)?))
    };
    let (source, function) = catalog.sdk().sources().iter().find_map(functions)?;
    let learned = gateway.learned_shapes().find_shape(tool, &cli_caller());
    let observed = learned
        .map(|shape| ObservedResult { schema: shape.to_schema(), calls: shape.calls().into() });
    Some(sdk_function_docs(source, function, observed.as_ref()))
}

/// For people: the signature and the types it names.
pub(super) fn sdk_docs_text(docs: &SdkFunctionDocs) -> String {
    // What is said about it and its parameters stands elsewhere on the page.
    let bare = SdkFunctionDocs { about: String::new(), params: Vec::new(), ..docs.clone() };
    let indented: Vec<String> = bare
        .to_text()
        .trim_end()
        .lines()
        .map(|line| format!("  {line}").trim_end().to_owned())
        .collect();
    format!("In agent scripts:\n{}", indented.join("\n"))
}

pub(super) fn sdk_docs_json(docs: &SdkFunctionDocs) -> Json {
    let types: Map<String, Json> =
        docs.types.iter().map(|(name, body)| (name.clone(), body.as_str().into())).collect();
    json!({
        "name": docs.path,
        "signature": docs.signature,
        "types": types,
        "learned_from": docs.learned,
    })
}
