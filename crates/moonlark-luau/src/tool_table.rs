//! The global `tool` table of a script, read and checked.

use std::sync::Arc;

use mlua::{Table, Value as Lv};
use moonlark_core::nearest::nearest;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Body, Effects, Scope, Source, Tool};
use moonlark_core::value::Value;
use moonlark_core::{Place, Problem, Result};

use crate::bridge::Bridge;
use crate::params;

const FIELDS: [&str; 8] =
    ["name", "version", "description", "parameters", "output", "annotations", "execute", "title"];

/// Names that MCP clients accept.
fn is_tool_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

/// What a script says about itself.
pub(crate) struct Header {
    name: Option<String>,
    version: Option<String>,
    description: String,
    input: Schema,
    output: Option<Schema>,
    effects: Effects,
}

/// Read the `tool` table out of a script's globals. Only raw access: nothing of
/// the script runs here.
pub(crate) fn read(bridge: &Bridge, globals: &Table) -> Result<Header> {
    let tool = match globals.raw_get("tool") {
        Ok(Lv::Table(tool)) => tool,
        Ok(Lv::Nil) => {
            return Err(Problem::bad_script("the script defines no global table named tool").hint(
                "start it with: tool = { name = \"…\", description = \"…\", parameters = {} }",
            ));
        }
        _ => return Err(Problem::bad_script("tool must be a table")),
    };
    let field = |name: &str| -> Result<Value> {
        let value = tool.raw_get::<Lv>(name).unwrap_or(Lv::Nil);
        bridge.read(&value, &format!("tool.{name}"), 1024 * 1024)
    };
    let text = |name: &str| match field(name)? {
        Value::Null => Ok(None),
        Value::Str(text) => Ok(Some(text)),
        other => {
            Err(Problem::bad_script(format!("tool.{name} must be a string, got {}", other.kind())))
        }
    };
    match tool.raw_get::<Lv>("execute") {
        Ok(Lv::Function(_)) => {}
        _ => {
            return Err(Problem::bad_script("tool.execute is not a function")
                .hint("add: function tool.execute(params, context) … end"));
        }
    }
    check_fields(&tool)?;
    let output = match field("output")? {
        Value::Null => None,
        Value::Object(schema) => Some(Schema::compile(params::own_schema(schema, "tool.output")?)?),
        _ => return Err(Problem::bad_script("tool.output must be a JSON Schema")),
    };
    Ok(Header {
        name: text("name")?,
        version: text("version")?,
        description: text("description")?.unwrap_or_default(),
        input: params::input_schema(field("parameters")?)?,
        output,
        effects: effects(field("annotations")?)?,
    })
}

fn check_fields(tool: &Table) -> Result<()> {
    let mut unknown = None;
    let _ = tool.for_each(|key: Lv, _: Lv| {
        if let Lv::String(key) = key {
            let key = key.to_string_lossy();
            if !FIELDS.contains(&key.as_str()) {
                unknown.get_or_insert(key);
            }
        }
        Ok(())
    });
    // Helpers kept in the table are fine; a misspelt field is not.
    match unknown.and_then(|name| Some((nearest(&name, FIELDS)?, name))) {
        Some((near, name)) => Err(Problem::bad_script(format!("tool.{name} means nothing"))
            .hint(format!("did you mean tool.{near}?"))),
        None => Ok(()),
    }
}

fn effects(annotations: Value) -> Result<Effects> {
    let mut effects = Effects::default();
    let fields = match annotations {
        Value::Null => return Ok(effects),
        Value::Object(fields) => fields,
        other => {
            return Err(Problem::bad_script(format!(
                "tool.annotations must be a table, got {}",
                other.kind()
            )));
        }
    };
    for (name, value) in fields {
        let Value::Bool(flag) = value else {
            return Err(Problem::bad_script(format!(
                "tool.annotations.{name} must be a boolean, got {}",
                value.kind()
            )));
        };
        match name.as_str() {
            "read_only" => {
                effects.read_only = flag;
                effects.destructive &= !flag;
            }
            "destructive" => effects.destructive = flag,
            "idempotent" => effects.idempotent = flag,
            "open_world" => effects.open_world = flag,
            other => {
                let names = ["read_only", "destructive", "idempotent", "open_world"];
                let near = nearest(other, names).map(|near| format!("did you mean {near}?"));
                return Err(Problem::bad_script(format!("tool.annotations.{other} means nothing"))
                    .maybe_hint(
                        near.or(Some(format!("the annotations are {}", names.join(", ")))),
                    ));
            }
        }
    }
    Ok(effects)
}

impl Header {
    pub(crate) fn into_tool(
        self,
        configured: Option<String>,
        source: Arc<Source>,
        scope: Arc<Scope>,
        body: Body,
    ) -> Result<Tool> {
        let place = || Place::file(source.name.clone());
        let name = match (configured, self.name) {
            (Some(key), Some(name)) if key != name => {
                return Err(Problem::bad_script(format!(
                    "the script calls itself {name}, but the configuration calls it {key}"
                ))
                .at(place())
                .hint(format!(
                    "rename [tools.script.{key}] to [tools.script.{name}], or change tool.name"
                )));
            }
            (Some(key), _) => key,
            (None, Some(name)) => name,
            (None, None) => {
                return Err(Problem::bad_script("tool.name is missing").at(place()));
            }
        };
        if !is_tool_name(&name) {
            return Err(Problem::bad_script(format!("{name:?} cannot be the name of a tool"))
                .at(place())
                .hint("use letters, digits, _ - and . (at most 128)"));
        }
        let mut tool = Tool::new(name, source, self.input, body);
        tool.description = self.description;
        tool.version = self.version;
        tool.output = self.output;
        tool.effects = self.effects;
        tool.scope = scope;
        Ok(tool)
    }
}
