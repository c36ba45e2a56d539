//! The prelude with the host modules written into it, compiled once.

use std::fmt::Write;
use std::sync::Arc;

use mlua::chunk::Compiler;
use moonlark_core::module::{Module, ModuleFunction};
use moonlark_core::{Problem, Result, Value};

pub(crate) struct LuauPrelude {
    bytecode: Vec<u8>,
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
        Self::build_prelude(
            modules.iter().filter(|module| !module.only_in_tests),
            "",
            PreludeAudience::Tools,
        )
    }

    pub(crate) fn for_connectors(modules: &[Module]) -> Result<Arc<LuauPrelude>> {
        let modules = modules.iter().filter(|module| !module.only_in_tests);
        Self::build_prelude(
            modules,
            include_str!("prelude_connector.luau"),
            PreludeAudience::Connectors,
        )
    }

    pub(crate) fn for_tests(modules: &[Module]) -> Result<Arc<LuauPrelude>> {
        Self::build_prelude(
            modules.iter(),
            include_str!("prelude_testing.luau"),
            PreludeAudience::Tools,
        )
    }

    /// For scripts of agents.
    pub(crate) fn for_agents(modules: &[Module]) -> Result<Arc<LuauPrelude>> {
        let mut functions = Vec::new();
        let mut source = [include_str!("prelude.luau"), include_str!("prelude_sdk.luau")].concat();
        // Said below, in the part for these scripts.
        source.push_str("local recorded\n");
        let modules = modules.iter().filter(|module| !module.only_in_tests);
        push_lazy_modules(&mut source, modules, &mut functions, PreludeAudience::Agents);
        source.push_str(include_str!("prelude_run.luau"));
        source.push_str(include_str!("prelude_parallel.luau"));
        source.push_str(include_str!("prelude_answer.luau"));
        Self::compile_prelude(source, functions, PreludeAudience::Agents)
    }

    fn build_prelude<'a>(
        modules: impl Iterator<Item = &'a Module>,
        more: &str,
        whose: PreludeAudience,
    ) -> Result<Arc<LuauPrelude>> {
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
        Self::compile_prelude(source, functions, whose)
    }

    fn compile_prelude(
        source: String,
        functions: Vec<ModuleFunction>,
        whose: PreludeAudience,
    ) -> Result<Arc<LuauPrelude>> {
        // Without names and lines, which nobody is shown: they are a third of what a
        // new VM has to read.
        let compiler = Compiler::new().set_optimization_level(2).set_debug_level(0);
        let bytecode = compiler
            .compile(source)
            .map_err(|error| Problem::internal(format!("the prelude does not compile: {error}")))?;
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
