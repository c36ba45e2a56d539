//! Tool headers: what an author declares about a tool, in either language, read, checked
//! and made into a `Tool`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::nearest::nearest_name;
use crate::problem::{Problem, Result, SourceLocation, Warning};
use crate::schema::Schema;
use crate::tool::{CallEffects, CallScope, Source, Tool};
use crate::tool_body::SealedBody;
use crate::tool_parameters;
pub use crate::tool_parameters::merge_mistakes;
use crate::value::{Object, Value};

/// The description of one tool.
pub struct ToolHeader {
    name: Option<String>,
    title: Option<String>,
    version: Option<String>,
    description: String,
    input: Schema,
    output: Option<Schema>,
    effects: CallEffects,
    /// Commands the author says it runs.
    allowed_exec: Vec<String>,
    warnings: Vec<Warning>,
}

/// The fields that describe a tool, beside its function.
pub const TOOL_HEADER_FIELDS: [&str; 8] = [
    "name",
    "title",
    "version",
    "description",
    "parameters",
    "output",
    "annotations",
    "allowed_exec",
];

/// What other systems call some of them, which is understood as well.
pub const TOOL_HEADER_ALIASES: [(&str, &str); 5] = [
    ("params", "parameters"),
    ("input_schema", "parameters"),
    ("inputSchema", "parameters"),
    ("output_schema", "output"),
    ("outputSchema", "output"),
];

/// The hints of MCP, and what they are called here.
const ANNOTATION_ALIASES: [(&str, &str); 8] = [
    ("readOnlyHint", "read_only"),
    ("destructiveHint", "destructive"),
    ("idempotentHint", "idempotent"),
    ("openWorldHint", "open_world"),
    ("read_only_hint", "read_only"),
    ("destructive_hint", "destructive"),
    ("idempotent_hint", "idempotent"),
    ("open_world_hint", "open_world"),
];

impl ToolHeader {
    /// Read the `fields` of what messages call `what`: `tool`, say.
    pub fn from_fields(mut fields: Object, what: &str) -> Result<ToolHeader> {
        let mut warnings = Vec::new();
        let mut mistakes = rename_aliases(&mut fields, what, &mut warnings);
        let mut take = |name: &str| fields.swap_remove(name).unwrap_or(Value::Null);
        let output = read_output(take("output"), what).unwrap_or_else(|it| note(&mut mistakes, it));
        let input = tool_parameters::input_schema(
            take("parameters"),
            &format!("{what}.parameters"),
            &mut warnings,
        )
        .unwrap_or_else(|it| {
            mistakes.push(it);
            Schema::without_parameters()
        });
        let (effects, title) = read_annotations(take("annotations"), what, &mut warnings)
            .unwrap_or_else(|it| note(&mut mistakes, it));
        let mut text = |name: &str| match take(name) {
            Value::Null => None,
            Value::Str(text) => Some(text),
            other => {
                let message = format!("{what}.{name} must be a string, got {}", other.kind());
                note(&mut mistakes, Problem::bad_script(message))
            }
        };
        let (name, version) = (text("name"), text("version"));
        let title = text("title").or(title).filter(|title| !title.is_empty());
        let description = text("description").unwrap_or_default();
        if description.trim().is_empty() {
            warnings.push(Warning::new(format!("{what} has no description")).with_hint(
                "say in a line what it does: agents choose tools by their descriptions",
            ));
        }
        let allowed_exec = read_allowed_exec(take("allowed_exec"), what)
            .unwrap_or_else(|it| note(&mut mistakes, it));
        if !mistakes.is_empty() {
            return Err(merge_mistakes(mistakes));
        }
        Ok(ToolHeader {
            name,
            title,
            version,
            description,
            input,
            output,
            effects,
            allowed_exec,
            warnings,
        })
    }

    /// The tool itself. `configured` is the name the configuration gives it.
    pub fn into_tool(
        self,
        configured: Option<String>,
        source: Arc<Source>,
        mut scope: CallScope,
        body: impl Into<SealedBody>,
    ) -> Result<Tool> {
        let place = || SourceLocation::in_file(source.name.clone());
        let name = match (configured, self.name) {
            (Some(key), Some(name)) if key != name => {
                return Err(Problem::bad_script(format!(
                    "the script calls itself {name}, but the configuration calls it {key}"
                ))
                .at_location(place())
                .with_hint(format!(
                    "rename [tools.script.{key}] to [tools.script.{name}], or change tool.name"
                )));
            }
            (Some(key), _) => key,
            (None, Some(name)) => name,
            (None, None) => {
                return Err(Problem::bad_script("tool.name is missing").at_location(place()));
            }
        };
        if !is_valid_tool_name(&name) {
            return Err(Problem::bad_script(format!("{name:?} cannot be the name of a tool"))
                .at_location(place())
                .with_hint("use letters, digits, _ - and . (at most 128)"));
        }
        let place = place();
        let mut tool = Tool::new(name, source, self.input, body);
        tool.title = self.title;
        tool.warnings =
            self.warnings.into_iter().map(|warning| warning.at_location(place.clone())).collect();
        tool.description = self.description;
        tool.version = self.version;
        tool.output = self.output;
        tool.effects = self.effects;
        scope.grants = scope.grants.with_declared_commands(self.allowed_exec);
        tool.scope = Arc::new(scope);
        Ok(tool)
    }
}

/// A script that cannot load is a bad script, whatever stopped it; limits and
/// denials keep their code. `body` is where a script may do more.
pub fn into_load_problem(mut problem: Problem, file: &str, body: &str) -> Problem {
    use crate::problem::ProblemCode::{self, Cancelled, Denied, Internal, Limit, Timeout};
    if problem.code == Timeout {
        problem.message = "the script did not finish loading in time".to_owned();
        problem.hint = Some(format!(
            "move what takes long into {body}, which runs when it is called, or raise limits.load"
        ));
    }
    if problem.code == Denied {
        problem.hint = Some(format!(
            "while a script loads it can only read its own files: move this into {body}"
        ));
    }
    if !matches!(problem.code, Timeout | Limit | Denied | Internal | Cancelled) {
        problem.code = ProblemCode::BadScript;
    }
    problem.place.get_or_insert_with(|| SourceLocation::in_file(file));
    problem
}

/// Names that MCP clients accept.
fn is_valid_tool_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 128
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

fn read_allowed_exec(value: Value, what: &str) -> Result<Vec<String>> {
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

/// Note a mistake and go on, so that all of them are reported in one round.
fn note<T: Default>(mistakes: &mut Vec<Problem>, mistake: Problem) -> T {
    mistakes.push(mistake);
    T::default()
}

fn read_output(output: Value, what: &str) -> Result<Option<Schema>> {
    match output {
        Value::Null => Ok(None),
        Value::Object(schema) => {
            let schema = tool_parameters::authored_schema(schema, &format!("{what}.output"))?;
            Schema::compile(schema).map(Some)
        }
        _ => Err(Problem::bad_script(format!("{what}.output must be a JSON Schema"))),
    }
}

/// Fields under the names they have here, whatever name the author used. What is wrong
/// with them.
fn rename_aliases(fields: &mut Object, what: &str, warnings: &mut Vec<Warning>) -> Vec<Problem> {
    let mut mistakes = Vec::new();
    // What the author called the field that has the name here.
    let mut written: HashMap<&str, &str> = HashMap::new();
    for (alias, name) in TOOL_HEADER_ALIASES {
        let Some(value) = fields.swap_remove(alias).filter(|value| *value != Value::Null) else {
            continue;
        };
        if fields.get(name).is_some_and(|value| *value != Value::Null) {
            let first = written.get(name).copied().unwrap_or(name);
            mistakes.push(
                Problem::bad_script(format!(
                    "{what} has both {first} and {alias}, which mean the same"
                ))
                .with_hint(format!("keep one of them, and call it {name}")),
            );
            continue;
        }
        warnings.push(
            Warning::new(format!("{what}.{alias} is called {name} here"))
                .with_hint(format!("write {name}: both are understood")),
        );
        fields.insert(name.to_owned(), value);
        written.insert(name, alias);
    }
    mistakes
}

/// What the annotations say, and the title among them, which MCP had there first.
fn read_annotations(
    annotations: Value,
    what: &str,
    warnings: &mut Vec<Warning>,
) -> Result<(CallEffects, Option<String>)> {
    let mut effects = CallEffects::default();
    let mut title = None;
    let fields = match annotations {
        Value::Null => return Ok((effects, title)),
        Value::Object(fields) => fields,
        other => {
            return Err(Problem::bad_script(format!(
                "{what}.annotations must be a table, got {}",
                other.kind()
            )));
        }
    };
    let names = ["read_only", "destructive", "idempotent", "open_world"];
    for (name, value) in fields {
        let own = ANNOTATION_ALIASES
            .iter()
            .find(|(hint, _)| *hint == name)
            .map_or(&*name, |(_, own)| own);
        match (own, value) {
            (_, Value::Null) => {}
            ("title", Value::Str(text)) => title = Some(text),
            ("read_only", Value::Bool(flag)) => {
                effects.read_only = flag;
                effects.destructive &= !flag;
            }
            ("destructive", Value::Bool(flag)) => effects.destructive = flag,
            ("idempotent", Value::Bool(flag)) => effects.idempotent = flag,
            ("open_world", Value::Bool(flag)) => effects.open_world = flag,
            (known, value) if names.contains(&known) => {
                return Err(Problem::bad_script(format!(
                    "{what}.annotations.{name} must be a boolean, got {}",
                    value.kind()
                )));
            }
            (other, _) => {
                let message = format!("{what}.annotations.{other} means nothing");
                match nearest_name(
                    other,
                    names.into_iter().chain(ANNOTATION_ALIASES.map(|(hint, _)| hint)),
                ) {
                    Some(near) => {
                        return Err(
                            Problem::bad_script(message).with_hint(format!("did you mean {near}?"))
                        );
                    }
                    None => warnings.push(
                        Warning::new(message)
                            .with_hint(format!("the annotations are {}", names.join(", "))),
                    ),
                }
            }
        }
    }
    Ok((effects, title))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(fields: serde_json::Value) -> String {
        let Ok(Value::Object(fields)) = Value::from_json(fields) else { panic!("no object") };
        match ToolHeader::from_fields(fields, "tool") {
            Ok(header) => {
                let said: Vec<String> = header.warnings.iter().map(Warning::to_string).collect();
                let kind = header.input.json().get("properties") != Some(&json!({}));
                format!(
                    "{:?} {kind} {}\n{}",
                    header.title,
                    header.effects.read_only,
                    said.join("\n")
                )
            }
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn names_of_other_systems_are_understood_and_said() {
        for (fields, expected) in [
            (
                json!({"name": "a", "title": "A", "description": "It does."}),
                "Some(\"A\") false false\n",
            ),
            (
                json!({"name": "a"}),
                "None false false\nwarning: tool has no description\nhint: say in a line what it does: agents choose tools by their descriptions",
            ),
            (
                json!({"description": "d", "inputSchema": {"type": "object", "properties": {"a": {}}}}),
                "None true false\nwarning: tool.inputSchema is called parameters here\nhint: write parameters: both are understood",
            ),
            (
                json!({"description": "d", "params": [], "parameters": [{"name": "a", "type": "string"}]}),
                "error[bad_script]: tool has both parameters and params, which mean the same\nhint: keep one of them, and call it parameters",
            ),
            (
                json!({"description": "d", "params": [], "inputSchema": {"type": "object"}}),
                "error[bad_script]: tool has both params and inputSchema, which mean the same\nhint: keep one of them, and call it parameters",
            ),
            (
                json!({"name": 1, "output": 2, "parameters": [{"name": "a"}], "annotations": {"read_only": 1}}),
                "error[bad_script]: tool.output must be a JSON Schema; tool.parameters.a has no type (the types are string, integer, number, boolean, array, object); tool.annotations.read_only must be a boolean, got integer; tool.name must be a string, got integer",
            ),
            (
                json!({"description": "d", "annotations": {"readOnlyHint": true, "title": "T"}}),
                "Some(\"T\") false true\n",
            ),
            (
                json!({"description": "d", "annotations": {"audience": ["user"]}}),
                "None false false\nwarning: tool.annotations.audience means nothing\nhint: the annotations are read_only, destructive, idempotent, open_world",
            ),
            (
                json!({"description": "d", "annotations": {"readonly": true}}),
                "error[bad_script]: tool.annotations.readonly means nothing\nhint: did you mean read_only?",
            ),
            (
                json!({"description": "d", "annotations": {"readOnlyHint": "yes"}}),
                "error[bad_script]: tool.annotations.readOnlyHint must be a boolean, got string",
            ),
        ] {
            assert_eq!(read(fields), expected);
        }
    }
}
