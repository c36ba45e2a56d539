//! Asking the caller's model: a conversation, and what it says next.

use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::call_client::ClientQuestion;
use schemars::JsonSchema;
use serde::Deserialize;

use super::build_question;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientSampleArgs {
    /// What to answer: a text, or the messages so far, each with `role` (`user`
    /// or `assistant`) and `content` (a text, or content as MCP has it).
    pub(super) messages: Value,
    /// What the model is told beforehand.
    pub(super) system: Option<String>,
    /// How long the answer may become.
    #[serde(default = "default_max_tokens")]
    pub(super) max_tokens: u32,
    /// How much the model may vary.
    pub(super) temperature: Option<f64>,
    /// Texts that end the answer.
    pub(super) stop: Option<Vec<String>>,
    /// A model to prefer, or a part of its name; the caller decides.
    pub(super) model: Option<String>,
}

pub(super) fn default_max_tokens() -> u32 {
    1000
}

/// What the model said.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientSampled {
    /// Whose message it is: `assistant`.
    role: String,
    /// What it says, as MCP has content: `{ type = "text", text = … }`, or a
    /// list of such.
    content: Value,
    /// The model that said it.
    model: String,
    /// Why it ended, if the caller says so: `endTurn`, `maxTokens`, ….
    stop_reason: Option<String>,
}

impl From<ClientSampled> for Value {
    fn from(sampled: ClientSampled) -> Self {
        let mut fields = Object::new();
        fields.insert("role".to_owned(), sampled.role.into());
        fields.insert("content".to_owned(), sampled.content);
        fields.insert("model".to_owned(), sampled.model.into());
        fields.extend(sampled.stop_reason.map(|why| ("stopReason".to_owned(), why.into())));
        Value::Object(fields)
    }
}

impl ClientSampleArgs {
    pub(super) fn to_question(&self) -> Result<ClientQuestion> {
        let temperature = self.temperature;
        if temperature.is_some_and(|number| !number.is_finite() || number < 0.0) {
            return Err(Problem::bad_request("temperature must be a number that is 0 or more"));
        }
        if self.max_tokens == 0 {
            return Err(Problem::bad_request("max_tokens must be at least 1"));
        }
        let mut params = Object::new();
        let mut insert = |key: &str, value: Value| params.insert(key.to_owned(), value);
        insert("messages", Value::Array(parse_messages(&self.messages)?));
        insert("maxTokens", Value::Int(self.max_tokens.into()));
        if let Some(system) = &self.system {
            insert("systemPrompt", system.clone().into());
        }
        if let Some(temperature) = temperature {
            insert("temperature", temperature.into());
        }
        if let Some(stop) = self.stop.as_ref().filter(|stop| !stop.is_empty()) {
            insert("stopSequences", stop.clone().into());
        }
        if let Some(model) = &self.model {
            let hint = Value::from_fields([("name", model.clone().into())]);
            insert("modelPreferences", Value::from_fields([("hints", vec![hint].into())]));
        }
        Ok(build_question("sampling/createMessage", params))
    }
}

fn parse_messages(given: &Value) -> Result<Vec<Value>> {
    let messages = match given {
        Value::Str(text) => return Ok(vec![build_message("user", text_block(text))]),
        Value::Array(messages) if !messages.is_empty() => messages,
        other => {
            return Err(Problem::bad_request(format!(
                "messages must be a text or a list of messages, got {}",
                other.kind()
            )));
        }
    };
    let message = |(index, given): (usize, &Value)| {
        let role = given.get("role").and_then(Value::as_str).unwrap_or_default();
        if !matches!(role, "user" | "assistant") {
            return Err(Problem::bad_request(format!(
                "messages[{index}].role must be user or assistant"
            )));
        }
        match given.get("content") {
            Some(Value::Str(text)) => Ok(build_message(role, text_block(text))),
            Some(content @ (Value::Object(_) | Value::Array(_))) => {
                Ok(build_message(role, content.clone()))
            }
            _ => Err(Problem::bad_request(format!(
                "messages[{index}].content must be a text or content"
            ))),
        }
    };
    messages.iter().enumerate().map(message).collect()
}

fn build_message(role: &str, content: Value) -> Value {
    Value::from_fields([("role", role.into()), ("content", content)])
}

fn text_block(text: &str) -> Value {
    Value::from_fields([("type", "text".into()), ("text", text.into())])
}
