//! A prompt script: the global table `agent`, which makes a prompt.
//!
//! `agent.resolve(args, config, context)` is run each time somebody asks for the
//! prompt. What becomes of its answer is not known here: it leaves as a value.

use std::collections::BTreeMap;
use std::sync::Arc;

use mlua::Table;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::{Call, Gateway};

use crate::engine::LuauEngine;
use crate::header_table::{HeaderKind, HeaderTable, text_from_value, wrong_kind_problem};
use crate::luau_bridge::Bridge;
use crate::script_unit::ScriptUnit;
use crate::tool_script::ScriptFile;

/// A prompt script that loads.
#[derive(Clone)]
pub struct PromptScript {
    engine: LuauEngine,
    unit: Arc<ScriptUnit>,
    pub header: Arc<PromptHeader>,
}

/// What the script says of itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PromptHeader {
    pub name: Option<String>,
    pub title: Option<String>,
    pub description: String,
    /// The tools that it is about, by name.
    pub tools: Vec<String>,
    pub arguments: Vec<PromptArgument>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PromptArgument {
    pub name: String,
    pub description: String,
    pub required: bool,
    /// What it is when it is not given.
    pub default: Option<Value>,
}

impl LuauEngine {
    /// Load a prompt script. Its top level runs here, in the same sandbox and
    /// with the same limits as later. Beside the outcome: the files it consists
    /// of, as with tools.
    pub async fn load_prompt(
        &self,
        script: ScriptFile,
        gateway: &Gateway,
    ) -> (Result<PromptScript>, BTreeMap<String, String>) {
        let (vms, read) = (self.tool_vms(), read_prompt_header);
        let (loaded, files) =
            self.load_script_file(script, gateway, vms, "agent.resolve", read).await;
        let loaded = loaded.map(|(unit, header)| PromptScript {
            engine: self.clone(),
            unit,
            header: Arc::new(header),
        });
        (loaded, files)
    }
}

impl PromptScript {
    /// Run `agent.resolve` in `call`, whose scope is the script's.
    pub async fn resolve_prompt(&self, call: &Call, args: Value) -> Result<Value> {
        let (unit, call) = (self.unit.clone(), call.clone());
        let resolving = self.engine.run_in_vm(self.engine.tool_vms()?, move |vm| {
            Box::pin(async move { vm.run_execute(&unit, &call, args).await })
        });
        resolving.await
    }
}

const PROMPT_TABLE: HeaderKind = HeaderKind {
    name: "agent",
    example: "name = \"…\", description = \"…\"",
    function: "resolve",
    params: "args, config, context",
    aliases: &[],
    max_field_bytes: 256 * 1024,
};

/// Read the `agent` table out of a script's globals.
fn read_prompt_header(bridge: &Bridge, globals: &Table) -> Result<PromptHeader> {
    let agent = HeaderTable::find(bridge, globals, &PROMPT_TABLE)?;
    agent.check_field_names(&["name", "title", "version", "description", "tools", "arguments"])?;
    Ok(PromptHeader {
        name: agent.read_text("name")?,
        title: agent.read_text("title")?,
        description: agent.read_text("description")?.unwrap_or_default(),
        tools: read_tool_names(agent.read_field("tools")?)?,
        arguments: read_arguments(agent.read_field("arguments")?)?,
    })
}

fn read_list(what: &str, value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Object(empty) if empty.is_empty() => Ok(Vec::new()),
        Value::Array(items) => Ok(items),
        other => Err(wrong_kind_problem(what, "a list", &other)),
    }
}

fn read_tool_names(value: Value) -> Result<Vec<String>> {
    let name = |tool: Value| match tool {
        Value::Str(name) => Ok(name),
        other => Err(wrong_kind_problem("agent.tools", "a list of names of tools", &other)),
    };
    read_list("agent.tools", value)?.into_iter().map(name).collect()
}

fn read_arguments(value: Value) -> Result<Vec<PromptArgument>> {
    let mut arguments: Vec<PromptArgument> = Vec::new();
    for (index, item) in read_list("agent.arguments", value)?.into_iter().enumerate() {
        let at = format!("agent.arguments[{}]", index + 1);
        let argument = match item {
            // A name alone is an argument that may be left out.
            Value::Str(name) => PromptArgument { name, ..PromptArgument::default() },
            Value::Object(fields) => read_argument(fields, &at)?,
            other => {
                let must_be = "a table such as { name = \"topic\" }";
                return Err(wrong_kind_problem(&at, must_be, &other));
            }
        };
        if arguments.iter().any(|known| known.name == argument.name) {
            let name = &argument.name;
            return Err(Problem::bad_script(format!("agent has two arguments named {name}")));
        }
        arguments.push(argument);
    }
    Ok(arguments)
}

fn read_argument(mut fields: Object, at: &str) -> Result<PromptArgument> {
    let mut take = |name: &str| fields.swap_remove(name).unwrap_or(Value::Null);
    let name =
        text_from_value(&format!("{at}.name"), take("name"))?.filter(|name| !name.is_empty());
    let Some(name) = name else {
        return Err(Problem::bad_script(format!("{at} has no name")));
    };
    let required = match take("required") {
        Value::Null => false,
        Value::Bool(required) => required,
        other => return Err(wrong_kind_problem(&format!("{at}.required"), "a boolean", &other)),
    };
    Ok(PromptArgument {
        name,
        description: text_from_value(&format!("{at}.description"), take("description"))?
            .unwrap_or_default(),
        required,
        default: Some(take("default")).filter(|default| *default != Value::Null),
    })
}
