//! The prelude with the host modules written into it, compiled once.
//!
//! What a server needs when it starts is compiled when its source changes, by
//! `cargo x generate`: compiling was a quarter of what a start costs.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use mlua::chunk::Compiler;
use moonlark_core::module::{Module, ModuleFunction};
use moonlark_core::{Problem, Result, Value};
use sha2::{Digest, Sha256};

/// The digest of a source, and what comes of compiling it.
const TOOLS_BYTECODE: &[u8] = include_bytes!("prelude_bytecode/tools.bin");
const AGENTS_BYTECODE: &[u8] = include_bytes!("prelude_bytecode/agents.bin");
const SOURCE_DIGEST_BYTES: usize = 32;

pub(crate) struct LuauPrelude {
    bytecode: Cow<'static, [u8]>,
    functions: Vec<ModuleFunction>,
    whose: PreludeAudience,
}

/// Which scripts a prelude is for, where that makes a difference to the host.
#[derive(Clone, Copy, PartialEq)]
enum PreludeAudience {
    Tools,
    Agents,
    Connectors,
}

impl LuauPrelude {
    pub(crate) fn new(modules: &[Module]) -> Result<Arc<LuauPrelude>> {
        Self::compile_prelude(tools_source(modules), PreludeAudience::Tools)
    }

    pub(crate) fn for_connectors(modules: &[Module]) -> Result<Arc<LuauPrelude>> {
        let modules = modules.iter().filter(|module| !module.only_in_tests);
        let (more, whose) = (include_str!("prelude_connector.luau"), PreludeAudience::Connectors);
        Self::compile_prelude(build_source(modules, more, whose), whose)
    }

    pub(crate) fn for_tests(modules: &[Module]) -> Result<Arc<LuauPrelude>> {
        let (more, whose) = (include_str!("prelude_testing.luau"), PreludeAudience::Tools);
        Self::compile_prelude(build_source(modules.iter(), more, whose), whose)
    }

    pub(crate) fn for_agents(modules: &[Module]) -> Result<Arc<LuauPrelude>> {
        Self::compile_prelude(agents_source(modules), PreludeAudience::Agents)
    }

    fn compile_prelude(
        (source, functions): PreludeSource,
        whose: PreludeAudience,
    ) -> Result<Arc<LuauPrelude>> {
        let bytecode = match committed_bytecode(&source, whose) {
            Some(bytecode) => Cow::Borrowed(bytecode),
            None => Cow::Owned(compile_source(&source)?),
        };
        Ok(Arc::new(LuauPrelude { bytecode, functions, whose }))
    }

    pub(crate) fn bytecode(&self) -> &[u8] {
        &self.bytecode
    }

    pub(crate) fn is_for_agents(&self) -> bool {
        self.whose == PreludeAudience::Agents
    }

    pub(crate) fn is_for_connectors(&self) -> bool {
        self.whose == PreludeAudience::Connectors
    }

    pub(crate) fn find_function(&self, id: usize) -> Option<&ModuleFunction> {
        self.functions.get(id)
    }
}

/// The files of compiled preludes that belong to `modules`, by their paths in this crate.
pub(crate) fn prelude_bytecode_files(modules: &[Module]) -> Result<[(&'static str, Vec<u8>); 2]> {
    let file = |(source, _): (String, _)| -> Result<Vec<u8>> {
        Ok([Sha256::digest(&source).as_slice(), &compile_source(&source)?].concat())
    };
    Ok([
        ("src/prelude_bytecode/tools.bin", file(tools_source(modules))?),
        ("src/prelude_bytecode/agents.bin", file(agents_source(modules))?),
    ])
}

fn committed_bytecode(source: &str, whose: PreludeAudience) -> Option<&'static [u8]> {
    let committed = match whose {
        PreludeAudience::Tools => TOOLS_BYTECODE,
        PreludeAudience::Agents => AGENTS_BYTECODE,
        PreludeAudience::Connectors => return None,
    };
    let (digest, bytecode) = committed.split_at_checked(SOURCE_DIGEST_BYTES)?;
    (digest == Sha256::digest(source).as_slice()).then_some(bytecode)
}

fn compile_source(source: &str) -> Result<Vec<u8>> {
    // Without names and lines, which nobody is shown: they are a third of what a
    // new VM has to read.
    let compiler = Compiler::new().set_optimization_level(2).set_debug_level(0);
    compiler
        .compile(source)
        .map_err(|error| Problem::internal(format!("the prelude does not compile: {error}")))
}

/// A prelude with the functions that it names by number.
type PreludeSource = (String, Vec<ModuleFunction>);

fn tools_source(modules: &[Module]) -> PreludeSource {
    let modules = modules.iter().filter(|module| !module.only_in_tests);
    build_source(modules, "", PreludeAudience::Tools)
}

/// For scripts of agents.
fn agents_source(modules: &[Module]) -> PreludeSource {
    let mut functions = Vec::new();
    let mut source = [include_str!("prelude.luau"), include_str!("prelude_sdk.luau")].concat();
    // Said below, in the part for these scripts.
    source.push_str("local recorded\n");
    let modules = modules.iter().filter(|module| !module.only_in_tests);
    push_lazy_modules(&mut source, modules, &mut functions, PreludeAudience::Agents);
    source.push_str(include_str!("prelude_run.luau"));
    source.push_str(include_str!("prelude_parallel.luau"));
    source.push_str(include_str!("prelude_answer.luau"));
    (source, functions)
}

fn build_source<'a>(
    modules: impl Iterator<Item = &'a Module>,
    more: &str,
    whose: PreludeAudience,
) -> PreludeSource {
    let mut functions = Vec::new();
    let mut source = [
        include_str!("prelude.luau"),
        include_str!("prelude_sdk.luau"),
        include_str!("prelude_require.luau"),
    ]
    .concat();
    push_lazy_modules(&mut source, modules, &mut functions, whose);
    source.push_str(include_str!("prelude_modules.luau"));
    source.push_str(more);
    source.push_str(include_str!("prelude_end.luau"));
    (source, functions)
}

/// Functions that make the modules, for when a script names one: most name few of them,
/// and all of them are a third of what a VM holds.
fn push_lazy_modules<'a>(
    source: &mut String,
    modules: impl Iterator<Item = &'a Module>,
    functions: &mut Vec<ModuleFunction>,
    whose: PreludeAudience,
) {
    source.push_str("local lazy = {}\n");
    for module in modules {
        let made = render_module(module, functions, whose);
        let _ = writeln!(source, "function lazy.{}() return {made} end", module.name);
    }
}

/// A module as Luau writes it, with its functions by their numbers.
fn render_module(
    module: &Module,
    functions: &mut Vec<ModuleFunction>,
    whose: PreludeAudience,
) -> String {
    let mut fields = String::new();
    for function in &module.functions {
        let (id, name) = (functions.len(), function.name);
        let instant = function.tool.is_instant();
        let body = match whose {
            // An agent's script may be resumed: what it looked at goes on record.
            PreludeAudience::Agents if !instant || function.needs.is_some() => {
                format!("recorded({id}, {:?})", function.tool.name)
            }
            _ if instant => format!("instant({id})"),
            _ => format!("waiting({id}, {:?})", function.tool.name),
        };
        functions.push(function.clone());
        if module.callable {
            return body;
        }
        let _ = write!(fields, "{name} = {body}, ");
    }
    for constant in &module.constants {
        let value = match &constant.value {
            Value::Null => "host.null".to_owned(),
            other => other.to_json_lossy().to_string(),
        };
        let _ = write!(fields, "{} = {value}, ", constant.name);
    }
    format!("{{ {fields}}}")
}
