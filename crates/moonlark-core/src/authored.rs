//! What an author says about a tool, whichever language it is written in:
//! read, checked, made into a [`Tool`].

use std::sync::Arc;

use crate::nearest::nearest;
use crate::params;
use crate::problem::{Place, Problem, Result};
use crate::schema::Schema;
use crate::tool::{Body, Effects, Scope, Source, Tool};
use crate::value::{Object, Value};

/// The description of one tool.
pub struct Header {
    name: Option<String>,
    version: Option<String>,
    description: String,
    input: Schema,
    output: Option<Schema>,
    effects: Effects,
    /// Commands the author says it runs.
    allowed_exec: Vec<String>,
}

/// The fields that describe a tool, beside its function.
pub const FIELDS: [&str; 7] =
    ["name", "version", "description", "parameters", "output", "annotations", "allowed_exec"];

impl Header {
    /// Read the `fields` of what messages call `what`: `tool`, say.
    pub fn read(mut fields: Object, what: &str) -> Result<Header> {
        let mut take = |name: &str| fields.swap_remove(name).unwrap_or(Value::Null);
        let text = |name: &str, value: Value| match value {
            Value::Null => Ok(None),
            Value::Str(text) => Ok(Some(text)),
            other => Err(Problem::bad_script(format!(
                "{what}.{name} must be a string, got {}",
                other.kind()
            ))),
        };
        let output = match take("output") {
            Value::Null => None,
            Value::Object(schema) => {
                Some(Schema::compile(params::own_schema(schema, &format!("{what}.output"))?)?)
            }
            _ => return Err(Problem::bad_script(format!("{what}.output must be a JSON Schema"))),
        };
        Ok(Header {
            name: text("name", take("name"))?,
            version: text("version", take("version"))?,
            description: text("description", take("description"))?.unwrap_or_default(),
            input: params::input_schema(take("parameters"), &format!("{what}.parameters"))?,
            output,
            effects: effects(take("annotations"), what)?,
            allowed_exec: commands(take("allowed_exec"), what)?,
        })
    }

    /// The tool itself. `configured` is the name the configuration gives it.
    pub fn into_tool(
        self,
        configured: Option<String>,
        source: Arc<Source>,
        mut scope: Scope,
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
        scope.grants = scope.grants.declaring(self.allowed_exec);
        tool.scope = Arc::new(scope);
        Ok(tool)
    }
}

/// A script that cannot load is a bad script, whatever stopped it; limits and
/// denials keep their code. `body` is where a script may do more.
pub fn at_load(mut problem: Problem, file: &str, body: &str) -> Problem {
    use crate::problem::Code::{self, Cancelled, Denied, Internal, Limit, Timeout};
    if problem.code == Timeout {
        problem.message = "the script did not finish loading in time".to_owned();
    }
    if problem.code == Denied {
        problem.hint = Some(format!(
            "while a script loads it can only read its own files: move this into {body}"
        ));
    }
    if !matches!(problem.code, Timeout | Limit | Denied | Internal | Cancelled) {
        problem.code = Code::BadScript;
    }
    problem.place.get_or_insert_with(|| Place::file(file));
    problem
}

/// Names that MCP clients accept.
fn is_tool_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

fn commands(value: Value, what: &str) -> Result<Vec<String>> {
    let bad = || Problem::bad_script(format!("{what}.allowed_exec must be a list of commands"));
    let items = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Object(empty) if empty.is_empty() => return Ok(Vec::new()),
        Value::Array(items) => items,
        _ => return Err(bad()),
    };
    let command = |item| match item {
        Value::Str(command) => Ok(command),
        _ => Err(bad()),
    };
    items.into_iter().map(command).collect()
}

fn effects(annotations: Value, what: &str) -> Result<Effects> {
    let mut effects = Effects::default();
    let fields = match annotations {
        Value::Null => return Ok(effects),
        Value::Object(fields) => fields,
        other => {
            return Err(Problem::bad_script(format!(
                "{what}.annotations must be a table, got {}",
                other.kind()
            )));
        }
    };
    for (name, value) in fields {
        let Value::Bool(flag) = value else {
            return Err(Problem::bad_script(format!(
                "{what}.annotations.{name} must be a boolean, got {}",
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
                return Err(Problem::bad_script(format!(
                    "{what}.annotations.{other} means nothing"
                ))
                .maybe_hint(near.or(Some(format!("the annotations are {}", names.join(", "))))));
            }
        }
    }
    Ok(effects)
}
