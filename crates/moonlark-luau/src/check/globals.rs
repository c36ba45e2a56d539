//! The names that an agent's script finds without saying where from.

use moonlark_core::module::Language;
use moonlark_core::{Catalog, Module};

/// What the language brings, as the prelude lets it through.
const LANGUAGE: [&str; 31] = [
    "_G",
    "_VERSION",
    "assert",
    "bit32",
    "buffer",
    "coroutine",
    "error",
    "getmetatable",
    "ipairs",
    "math",
    "next",
    "os",
    "pairs",
    "pcall",
    "print",
    "rawequal",
    "rawget",
    "rawlen",
    "rawset",
    "select",
    "setmetatable",
    "string",
    "table",
    "tonumber",
    "tostring",
    "type",
    "typeof",
    "unpack",
    "utf8",
    "vector",
    "xpcall",
];

/// What code mode brings.
const CODE_MODE: [&str; 7] =
    ["artifact", "await_all", "await_any", "map_parallel", "paginate", "result", "sdk"];

/// What Lua has elsewhere, and something else does here.
pub(super) const ELSEWHERE: [&str; 7] =
    ["collectgarbage", "dofile", "getfenv", "io", "load", "loadstring", "setfenv"];

/// The types of those that are functions, for the type checker.
pub(super) const DEFINITIONS: &str = "\
declare function artifact(handle: any, options: any?): any
declare function await_all(promises: any): any
declare function await_any(promises: any): (any, any)
declare function map_parallel<T, R>(list: {T}, f: (item: T, index: number) -> R, options: any?): ({R}, any)
declare function paginate(operation: any, args: any?): () -> any
declare function result(value: any): ()
";

/// Whether a name belongs to the language or the host, so that no source has
/// it. Modules that were not granted count: the run says how to grant them.
pub(super) fn is_taken(catalog: &Catalog, name: &str) -> bool {
    LANGUAGE.contains(&name) || CODE_MODE.contains(&name) || module(catalog, name).is_some()
}

/// The host module of that name.
pub(super) fn module<'c>(catalog: &'c Catalog, name: &str) -> Option<&'c Module> {
    catalog.modules().iter().find(|module| module.name == name && is_found(module))
}

/// Whether it is a module that agents' scripts can have.
pub(super) fn is_found(module: &Module) -> bool {
    module.is_for(Language::Luau) && !module.only_in_tests
}

/// All of them, for "did you mean".
pub(super) fn all(catalog: &Catalog) -> impl Iterator<Item = &str> {
    let modules = catalog.modules().iter().filter(|module| is_found(module));
    let sources = catalog.sdk().sources().iter().map(|source| source.name.as_str());
    LANGUAGE.into_iter().chain(CODE_MODE).chain(modules.map(|module| module.name)).chain(sources)
}
