//! `client`: ask whoever made the call for what only it has: a decision of its
//! user, a text of its model, its folders.
//!
//! Here stand the functions and what they have in common. [`elicit`] and
//! [`sample`] turn arguments into questions and answers into values, and
//! [`several`] does so for many at once. How a question travels, and whether the
//! caller can be asked at all, is the business of `Call::ask`.

mod elicit;
mod sample;
mod several;
#[cfg(test)]
mod tests;

use moonlark_core::client::Question;
use moonlark_core::value::{Object, shorten};
use moonlark_core::{Call, Module, Problem, Result, Value};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::args::{Nothing, Table};
use elicit::{Elicit, Elicited};
use sample::{Sample, Sampled};
use several::Questions;

pub(crate) fn module() -> Module {
    let nobody = "which it does not offer";
    Module::new(
        "client",
        "Ask whoever made the call. Only MCP clients can be asked, and each says what it offers. \
         The time they take does not count against the call's deadline.",
    )
    .waiting("elicit", "Ask the user, with a form to fill in or a page to visit.", ask_user)
    .fails(json!({"message": "Delete it?"}), nobody)
    .fails(json!({"message": "Who?", "schema": {"type": "string"}}), "schema must describe")
    .fails(json!({"message": "Sign in.", "url": "example.com"}), "url must be an address")
    .waiting("sample", "Have the caller's model write something.", ask_model)
    .fails(json!({"messages": "Write a haiku.", "max_tokens": 100}), nobody)
    .fails(json!({"messages": [{"role": "poet", "content": "Oh"}]}), "messages[0].role must be")
    .waiting("roots", "The folders that the caller works on.", ask_roots)
    .fails(json!({}), nobody)
    .waiting(
        "ask",
        "Ask several things at once; the answers have the questions' names.",
        ask_several,
    )
    .fails(json!({"questions": {"name": {"elicit": "Who?"}, "on": {"roots": true}}}), nobody)
    .fails(json!({"questions": {"name": {}}}), "name must have one of elicit, sample and roots")
    .function("can", "Whether the caller can be asked this.", can)
    .example(json!({"what": "sampling"}), json!(false))
    .fails(json!({"what": "money"}), "what")
}

async fn ask_user(call: Call, args: Elicit) -> Result<Elicited> {
    let question = args.question()?;
    args.answer(ask(&call, question).await?)
}

async fn ask_model(call: Call, args: Sample) -> Result<Sampled> {
    let question = args.question()?;
    sample::answer(ask(&call, question).await?)
}

async fn ask_roots(call: Call, _: Nothing) -> Result<Vec<Root>> {
    roots(ask(&call, roots_question()).await?)
}

async fn ask_several(call: Call, args: Questions) -> Result<Table> {
    several::ask_all(&call, args).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Can {
    /// One of `elicitation`, `sampling` and `roots`.
    what: Capability,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Capability {
    Elicitation,
    Sampling,
    Roots,
}

fn can(call: &Call, args: Can) -> Result<bool> {
    let question = match args.what {
        Capability::Elicitation => question("elicitation/create", Object::new()),
        Capability::Sampling => question("sampling/createMessage", Object::new()),
        Capability::Roots => roots_question(),
    };
    Ok(call.can_ask(&question))
}

/// A folder of the caller.
#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct Root {
    /// Where it is, such as `file:///home/ann/project`.
    uri: String,
    /// What the caller calls it, if it does.
    name: Option<String>,
}

impl From<Root> for Value {
    fn from(root: Root) -> Self {
        let mut fields = Object::new();
        fields.insert("uri".to_owned(), root.uri.into());
        fields.extend(root.name.map(|name| ("name".to_owned(), name.into())));
        Value::Object(fields)
    }
}

#[derive(Deserialize)]
struct Roots {
    roots: Vec<Root>,
}

fn roots_question() -> Question {
    question("roots/list", Object::new())
}

fn roots(answer: Value) -> Result<Vec<Root>> {
    read::<Roots>(answer).map(|answer| answer.roots)
}

fn question(method: &str, params: Object) -> Question {
    Question { method: method.to_owned(), params, name: None }
}

/// Ask, and keep to ourselves what results keep to themselves, too.
async fn ask(call: &Call, mut question: Question) -> Result<Value> {
    let params = call.scope().secrets.redact_result(Value::Object(question.params));
    question.params = match params {
        Value::Object(params) => params,
        _ => Object::new(),
    };
    call.ask(question).await
}

/// An answer as it must be. It comes from outside.
fn read<T: DeserializeOwned>(answer: Value) -> Result<T> {
    answer.read().map_err(|error| {
        let at = if error.path == "." { String::new() } else { format!("{}: ", error.path) };
        Problem::tool_error(format!(
            "the caller answered with something else than asked: {at}{}",
            shorten(&error.message)
        ))
    })
}
