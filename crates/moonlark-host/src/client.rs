//! `client`: ask the caller: a decision of its user, a text of its model, its folders.
//!
//! Here stand the functions and what they have in common. [`elicit`] and
//! [`sample`] turn arguments into questions and answers into values, and
//! [`question_batch`] does so for many at once. How a question travels, and whether the
//! caller can be asked at all, is the business of `Call::ask`.

mod elicit;
mod question_batch;
mod sample;
#[cfg(test)]
mod tests;

use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Module, Problem, Result, Value};
use moonlark_gateway::Call;
use moonlark_gateway::call_client::ClientQuestion;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::args::{NoArgs, ScriptTable};
use elicit::{ClientElicitArgs, ClientElicited};
use question_batch::ClientAskArgs;
use sample::{ClientSampleArgs, ClientSampled};

pub(crate) fn module() -> Module {
    let nobody = "which it does not offer";
    Module::new(
        "client",
        "Ask the caller. Only MCP clients can be asked, and each says what it offers. \
         The time they take does not count against the call's deadline.",
    )
    .async_function("elicit", "Ask the user, with a form to fill in or a page to visit.", ask_user)
    .mocked_example(
        json!({
            "message": "Who is the ticket for?",
            "schema": {"type": "object", "properties": {"name": {"type": "string"}}},
        }),
        json!({"action": "accept", "content": {"name": "Ann"}}),
    )
    .fails(json!({"message": "Delete it?"}), nobody)
    .fails(json!({"message": "Who?", "schema": {"type": "string"}}), "schema must describe")
    .fails(json!({"message": "Sign in.", "url": "example.com"}), "url must be an address")
    .async_function("sample", "Have the caller's model write something.", ask_model)
    .mocked_example(
        json!({"messages": "Summarize: the disk is full.", "max_tokens": 100}),
        json!({
            "role": "assistant",
            "content": {"type": "text", "text": "No space left."},
            "model": "claude-sonnet",
            "stopReason": "endTurn",
        }),
    )
    .fails(json!({"messages": "Write a haiku.", "max_tokens": 100}), nobody)
    .fails(json!({"messages": [{"role": "poet", "content": "Oh"}]}), "messages[0].role must be")
    .async_function("roots", "The folders that the caller works on.", ask_roots)
    .mocked_example(json!({}), json!([{"uri": "file:///home/ann/project", "name": "project"}]))
    .fails(json!({}), nobody)
    .async_function(
        "ask",
        "Ask several things at once; the answers have the questions' names.",
        ask_several,
    )
    .mocked_example(
        json!({"questions": {"sure": {"elicit": "Delete it?"}, "folders": {"roots": true}}}),
        json!({
            "sure": {"action": "accept", "content": {}},
            "folders": [{"uri": "file:///home/ann/project"}],
        }),
    )
    .fails(json!({"questions": {"name": {"elicit": "Who?"}, "on": {"roots": true}}}), nobody)
    .fails(json!({"questions": {"name": {}}}), "name must have one of elicit, sample and roots")
    .function("can", "Whether the caller can be asked this.", can)
    .example(json!({"what": "sampling"}), json!(false))
    .fails(json!({"what": "money"}), "what")
}

async fn ask_user(call: Call, args: ClientElicitArgs) -> Result<ClientElicited> {
    let question = args.to_question()?;
    args.check_answer(ask_caller(&call, question).await?)
}

async fn ask_model(call: Call, args: ClientSampleArgs) -> Result<ClientSampled> {
    let question = args.to_question()?;
    parse_answer(ask_caller(&call, question).await?)
}

async fn ask_roots(call: Call, _: NoArgs) -> Result<Vec<ClientRoot>> {
    parse_roots(ask_caller(&call, roots_question()).await?)
}

async fn ask_several(call: Call, args: ClientAskArgs) -> Result<ScriptTable> {
    question_batch::ask_all(&call, args).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ClientCanArgs {
    /// One of `elicitation`, `sampling` and `roots`.
    what: ClientCapability,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum ClientCapability {
    Elicitation,
    Sampling,
    Roots,
}

fn can(call: &Call, args: ClientCanArgs) -> Result<bool> {
    let question = match args.what {
        ClientCapability::Elicitation => build_question("elicitation/create", Object::new()),
        ClientCapability::Sampling => build_question("sampling/createMessage", Object::new()),
        ClientCapability::Roots => roots_question(),
    };
    Ok(call.can_ask_caller(&question))
}

/// A folder of the caller.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ClientRoot {
    /// Where it is, such as `file:///home/ann/project`.
    uri: String,
    /// What the caller calls it, if it does.
    name: Option<String>,
}

impl From<ClientRoot> for Value {
    fn from(root: ClientRoot) -> Self {
        let mut fields = Object::new();
        fields.insert("uri".to_owned(), root.uri.into());
        fields.extend(root.name.map(|name| ("name".to_owned(), name.into())));
        Value::Object(fields)
    }
}

#[derive(Deserialize)]
struct ListRootsResult {
    roots: Vec<ClientRoot>,
}

fn roots_question() -> ClientQuestion {
    build_question("roots/list", Object::new())
}

fn parse_roots(answer: Value) -> Result<Vec<ClientRoot>> {
    parse_answer::<ListRootsResult>(answer).map(|answer| answer.roots)
}

fn build_question(method: &str, params: Object) -> ClientQuestion {
    ClientQuestion { method: method.to_owned(), params, name: None }
}

/// Ask, and keep to ourselves what results keep to themselves, too.
async fn ask_caller(call: &Call, mut question: ClientQuestion) -> Result<Value> {
    let params = call.scope().secrets.redact_result(Value::Object(question.params));
    question.params = match params {
        Value::Object(params) => params,
        _ => Object::new(),
    };
    call.ask_caller(question).await
}

/// An answer as it must be. It comes from outside.
fn parse_answer<T: DeserializeOwned>(answer: Value) -> Result<T> {
    answer.deserialize_into().map_err(|error| {
        let at = if error.path == "." { String::new() } else { format!("{}: ", error.path) };
        Problem::tool_error(format!(
            "the caller answered with something else than asked: {at}{}",
            shorten_text(&error.message)
        ))
    })
}
