//! Asking the user: a form or a page, and what they did with it.

use moonlark_core::schema::Schema;
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::call_client::ClientQuestion;
use schemars::JsonSchema;
use serde::Deserialize;
use url::Url;

use super::{build_question, parse_answer};
use crate::args::ScriptTable;

/// What a field of a form can be; a list is one of choices.
const FORM_FIELD_TYPES: [&str; 5] = ["string", "number", "integer", "boolean", "array"];

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientElicitArgs {
    /// What the user reads.
    pub(super) message: String,
    /// What to fill in, as a JSON Schema of an object whose properties are
    /// texts, numbers, booleans and choices. Without one the user can only agree
    /// or not.
    pub(super) schema: Option<ScriptTable>,
    /// A page that the user is to visit, instead of a form: for what must not
    /// pass through the caller, such as a password.
    pub(super) url: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum ElicitAction {
    Accept,
    Decline,
    Cancel,
}

/// What the user did.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct ClientElicited {
    /// `accept`, `decline`, or `cancel` where they did neither.
    action: ElicitAction,
    /// What they filled in, if they accepted; it fits the schema.
    content: Option<ScriptTable>,
}

impl From<ClientElicited> for Value {
    fn from(elicited: ClientElicited) -> Self {
        let action = match elicited.action {
            ElicitAction::Accept => "accept",
            ElicitAction::Decline => "decline",
            ElicitAction::Cancel => "cancel",
        };
        let mut fields = Object::new();
        fields.insert("action".to_owned(), action.into());
        fields.extend(elicited.content.map(|content| ("content".to_owned(), content.into())));
        Value::Object(fields)
    }
}

impl ClientElicitArgs {
    pub(super) fn to_question(&self) -> Result<ClientQuestion> {
        let message = ("message", self.message.clone().into());
        let params = match (&self.url, &self.schema) {
            (None, _) => Value::from_fields([
                message,
                ("requestedSchema", Value::Object(self.form_schema()?)),
            ]),
            (Some(url), None) => Value::from_fields([
                ("mode", "url".into()),
                message,
                ("url", check_web_url(url)?.into()),
                ("elicitationId", uuid::Uuid::new_v4().to_string().into()),
            ]),
            (Some(_), Some(_)) => {
                return Err(Problem::bad_request("give a schema or a url, not both"));
            }
        };
        let params = params.as_object().cloned().unwrap_or_default();
        Ok(build_question("elicitation/create", params))
    }

    /// What the user did. What they filled in is held to the schema: a caller
    /// may have let anything through.
    pub(super) fn check_answer(&self, answer: Value) -> Result<ClientElicited> {
        let mut elicited: ClientElicited = parse_answer(answer)?;
        if !matches!(elicited.action, ElicitAction::Accept) {
            elicited.content = None;
        }
        if self.url.is_none() && matches!(elicited.action, ElicitAction::Accept) {
            let content = Value::Object(elicited.content.unwrap_or_default().0);
            let schema = compile_schema(self.form_schema()?)?;
            schema.find_violations(&content, "field").map_err(|wrong| {
                Problem::tool_error(format!("the caller's answer does not fit the form: {wrong}"))
            })?;
            elicited.content = Some(ScriptTable(content.as_object().cloned().unwrap_or_default()));
        }
        Ok(elicited)
    }

    /// The schema as the protocol has it: of a flat object.
    fn form_schema(&self) -> Result<Object> {
        let bad = |what: String| {
            Problem::bad_request(what).with_hint(
                "write { type = \"object\", properties = { name = { type = \"string\" } } }",
            )
        };
        let mut schema = match &self.schema {
            Some(schema) => schema.0.clone(),
            None => Object::new(),
        };
        let kind = schema.get("type").and_then(Value::as_str).unwrap_or("object");
        let fields = match schema.get("properties") {
            None if self.schema.is_none() => Object::new(),
            Some(Value::Object(fields)) if kind == "object" => fields.clone(),
            // Luau writes an empty list and an empty object alike.
            Some(Value::Array(items)) if items.is_empty() && kind == "object" => Object::new(),
            _ => return Err(bad("schema must describe an object with properties".to_owned())),
        };
        for (name, field) in &fields {
            let kind = field.get("type").and_then(Value::as_str).unwrap_or_default();
            if !FORM_FIELD_TYPES.contains(&kind) {
                return Err(bad(format!(
                    "schema.properties.{}.type must be one of {}",
                    shorten_text(name),
                    FORM_FIELD_TYPES.join(", ")
                )));
            }
        }
        let is_empty = |value: &Value| match value {
            Value::Object(fields) => fields.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        };
        if schema.get("required").is_some_and(is_empty) {
            schema.shift_remove("required");
        }
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), Value::Object(fields));
        compile_schema(schema.clone())?;
        Ok(schema)
    }
}

fn compile_schema(schema: Object) -> Result<Schema> {
    let json = Value::Object(schema).into_json("schema")?;
    let map = json.as_object().cloned().unwrap_or_default();
    Schema::compile(map).map_err(|problem| Problem::bad_request(problem.message))
}

fn check_web_url(text: &str) -> Result<String> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(text.to_owned()),
        _ => {
            Err(Problem::bad_request("url must be an address that begins with http:// or https://"))
        }
    }
}
