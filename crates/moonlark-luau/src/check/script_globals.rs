//! The global names of an agent's script.

use std::sync::Arc;

use moonlark_core::module::ScriptLanguage;
use moonlark_core::sdk::SdkFunction;
use moonlark_core::{Catalog, Module};
use moonlark_render::script_functions::{SCRIPT_FUNCTIONS, find_script_function};

/// What the language brings, as the prelude lets it through.
const LANGUAGE_GLOBALS: [&str; 31] = [
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

/// The libraries of the language, with what an agent's script finds in each.
const LIBRARY_MEMBERS: [(&str, &[&str]); 7] = [
    (
        "bit32",
        &[
            "arshift", "band", "bnot", "bor", "btest", "bxor", "byteswap", "countlz", "countrz",
            "extract", "lrotate", "lshift", "replace", "rrotate", "rshift",
        ],
    ),
    (
        "coroutine",
        &["close", "create", "isyieldable", "resume", "running", "status", "wrap", "yield"],
    ),
    (
        "math",
        &[
            "abs",
            "acos",
            "asin",
            "atan",
            "atan2",
            "ceil",
            "clamp",
            "cos",
            "cosh",
            "deg",
            "e",
            "exp",
            "floor",
            "fmod",
            "frexp",
            "huge",
            "isfinite",
            "isinf",
            "isnan",
            "ldexp",
            "lerp",
            "log",
            "log10",
            "map",
            "max",
            "min",
            "modf",
            "nan",
            "noise",
            "phi",
            "pi",
            "pow",
            "rad",
            "random",
            "randomseed",
            "round",
            "sign",
            "sin",
            "sinh",
            "sqrt",
            "sqrt2",
            "tan",
            "tanh",
            "tau",
            "tointeger",
            "type",
        ],
    ),
    ("os", &["clock", "date", "difftime", "time"]),
    (
        "string",
        &[
            "byte", "char", "find", "format", "gmatch", "gsub", "len", "lower", "match", "pack",
            "packsize", "rep", "reverse", "split", "sub", "unpack", "upper",
        ],
    ),
    (
        "table",
        &[
            "clear", "clone", "concat", "create", "find", "foreach", "foreachi", "freeze", "getn",
            "insert", "isfrozen", "maxn", "move", "pack", "remove", "sort", "unpack",
        ],
    ),
    ("utf8", &["char", "charpattern", "codepoint", "codes", "len", "offset"]),
];

/// A library of the language, and what is in it.
pub(super) fn find_library(name: &str) -> Option<(&'static str, &'static [&'static str])> {
    LIBRARY_MEMBERS.into_iter().find(|(library, _)| *library == name)
}

/// Whether texts have a function of this name.
pub(super) fn is_text_function(name: &str) -> bool {
    find_library("string").is_some_and(|(_, members)| members.contains(&name))
}

/// What code mode brings beside its helpers.
const CODE_MODE_GLOBALS: [&str; 2] = ["require", "sdk"];

/// What Lua has elsewhere, and something else does here.
pub(super) const UNAVAILABLE_LUA_GLOBALS: [&str; 7] =
    ["collectgarbage", "dofile", "getfenv", "io", "load", "loadstring", "setfenv"];

/// The types of the helpers, for the type checker.
pub(super) fn helper_definitions() -> String {
    SCRIPT_FUNCTIONS.iter().map(|it| format!("declare function {}\n", it.declared)).collect()
}

/// Whether a name belongs to the language or the host, so that no source has
/// it. Modules that were not granted count: the run says how to grant them.
pub(super) fn is_reserved_name(catalog: &Catalog, name: &str) -> bool {
    let of_code_mode = CODE_MODE_GLOBALS.contains(&name) || find_script_function(name).is_some();
    LANGUAGE_GLOBALS.contains(&name) || of_code_mode || find_module(catalog, name).is_some()
}

/// The host module of that name.
pub(super) fn find_module<'c>(catalog: &'c Catalog, name: &str) -> Option<&'c Module> {
    catalog.modules().iter().find(|module| module.name == name && is_agent_module(module))
}

/// Whether it is a module that agents' scripts can have.
pub(super) fn is_agent_module(module: &Module) -> bool {
    module.is_for_language(ScriptLanguage::Luau) && !module.only_in_tests
}

/// All of them, for "did you mean".
pub(super) fn all_global_names(catalog: &Catalog) -> impl Iterator<Item = &str> {
    let modules = catalog.modules().iter().filter(|module| is_agent_module(module));
    let sources = catalog.sdk().sources().iter().map(|source| source.name.as_str());
    let helpers = SCRIPT_FUNCTIONS.iter().map(|it| it.name).chain(CODE_MODE_GLOBALS);
    LANGUAGE_GLOBALS
        .into_iter()
        .chain(helpers)
        .chain(modules.map(|module| module.name))
        .chain(sources)
}

/// How scripts call the tool that an agent knows by this name: `sdk.tools.report`
/// for `report`, `sdk.files.read` for `files__read` or plain `read`.
pub(super) fn find_tool_path(catalog: &Catalog, name: &str) -> Option<String> {
    let tool = catalog.find_tool(name).ok();
    let functions = catalog
        .sdk()
        .sources()
        .iter()
        .flat_map(|source| source.functions.iter().map(move |function| (source, function)));
    let is_it = |(_, function): &(_, &SdkFunction)| match tool {
        Some(tool) => Arc::ptr_eq(tool, &function.tool),
        None => function.name == name || function.original == name,
    };
    let (source, function) = functions.into_iter().find(is_it)?;
    Some(format!("sdk.{}.{}", source.name, function.name))
}

#[cfg(test)]
pub(crate) fn all_libraries() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    LIBRARY_MEMBERS.into_iter()
}
