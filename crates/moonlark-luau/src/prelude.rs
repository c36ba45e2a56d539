//! The prelude with the host modules written into it, compiled once.

use std::fmt::Write;
use std::sync::Arc;

use mlua::chunk::Compiler;
use moonlark_core::module::{Function, Module};
use moonlark_core::{Problem, Result, Value};

pub(crate) struct Prelude {
    bytecode: Vec<u8>,
    functions: Vec<Function>,
    /// It is for scripts of agents.
    agents: bool,
}

impl Prelude {
    pub(crate) fn new(modules: &[Module]) -> Result<Arc<Prelude>> {
        Self::build(modules.iter().filter(|module| !module.only_in_tests), "")
    }

    pub(crate) fn for_tests(modules: &[Module]) -> Result<Arc<Prelude>> {
        Self::build(modules.iter(), include_str!("prelude_testing.luau"))
    }

    /// For scripts of agents. Each has a VM of its own, so the modules are made
    /// when they are first named.
    pub(crate) fn for_agents(modules: &[Module]) -> Result<Arc<Prelude>> {
        let mut functions = Vec::new();
        let mut source = [include_str!("prelude.luau"), include_str!("prelude_sdk.luau")].concat();
        source.push_str("local lazy = {}\n");
        for module in modules.iter().filter(|module| !module.only_in_tests) {
            let made = written(module, &mut functions);
            let _ = writeln!(source, "function lazy.{}() return {made} end", module.name);
        }
        source.push_str(include_str!("prelude_run.luau"));
        Self::compile(source, functions, true)
    }

    fn build<'a>(modules: impl Iterator<Item = &'a Module>, more: &str) -> Result<Arc<Prelude>> {
        let mut functions = Vec::new();
        let mut source = [
            include_str!("prelude.luau"),
            include_str!("prelude_sdk.luau"),
            include_str!("prelude_require.luau"),
        ]
        .concat();
        for module in modules {
            let made = written(module, &mut functions);
            let _ = writeln!(source, "base.{} = {made}", module.name);
        }
        source.push_str(more);
        source.push_str(include_str!("prelude_end.luau"));
        Self::compile(source, functions, false)
    }

    fn compile(source: String, functions: Vec<Function>, agents: bool) -> Result<Arc<Prelude>> {
        let bytecode =
            Compiler::new().set_optimization_level(2).set_debug_level(1).compile(source).map_err(
                |error| Problem::internal(format!("the prelude does not compile: {error}")),
            )?;
        Ok(Arc::new(Prelude { bytecode, functions, agents }))
    }

    pub(crate) fn bytecode(&self) -> &[u8] {
        &self.bytecode
    }

    pub(crate) fn is_for_agents(&self) -> bool {
        self.agents
    }

    pub(crate) fn function(&self, id: usize) -> Option<&Function> {
        self.functions.get(id)
    }
}

/// A module as Luau writes it, with its functions by their numbers.
fn written(module: &Module, functions: &mut Vec<Function>) -> String {
    let mut fields = String::new();
    for function in &module.functions {
        let (id, name) = (functions.len(), function.name);
        let body = if function.tool.is_instant() {
            format!("instant({id})")
        } else {
            format!("waiting({id}, {:?})", function.tool.name)
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
