//! The three tools as agents see them. Every word here is in the context of
//! every agent, all the time.

use std::sync::Arc;

use moonlark_core::content::{Answer, Content};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Body, Effects, Shown};
use moonlark_core::value::Object;
use moonlark_core::{Code, Problem, Result, Tool, Value};
use serde_json::{Map, Value as Json, json};

use crate::current::Current;
use crate::{docs, list, search};

pub(crate) fn search_docs(current: Arc<Current>) -> Result<Tool> {
    let body = Body::answering(move |call, args| {
        let current = current.clone();
        async move { answer(search::search_docs(&call, &args, &current).await) }
    });
    tool(
        "search_docs",
        "Find functions by what they do. Answers signatures to call from execute.",
        json!({
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "source": {"type": "string", "description": "Only this source; knowledge for documents; or artifact:HANDLE"},
                "limit": {"type": "integer"},
            },
            "required": ["query"],
        }),
        body,
    )
}

pub(crate) fn list_functions() -> Result<Tool> {
    tool(
        "list_functions",
        "The sources; with source or tag, their functions.",
        json!({
            "type": "object",
            "properties": {
                "source": {"type": "string"},
                "tag": {"type": "string"},
                "cursor": {"type": "string"},
            },
        }),
        Body::answering(|call, args| async move { answer(list::list_functions(&call, &args)) }),
    )
}

pub(crate) fn get_function_docs() -> Result<Tool> {
    tool(
        "get_function_docs",
        "Signature, all types and an example of functions.",
        json!({
            "type": "object",
            "properties": {"names": {
                "type": "array",
                "items": {"type": "string"},
                "description": "As source.function",
            }},
            "required": ["names"],
        }),
        Body::answering(|call, args| async move { answer(docs::get_function_docs(&call, &args)) }),
    )
}

/// Text and nothing else: as a value it would be there twice for clients that
/// take values. What is not there is the agent's mistake, and it can mend that:
/// only a tool that is not there is one of the request.
fn answer(text: Result<String>) -> Result<Answer> {
    match text {
        Ok(text) => Ok(Answer::Content(Content {
            blocks: vec![Value::object([("type", "text".into()), ("text", text.into())])],
            structured: None,
            extra: Object::new(),
        })),
        Err(mut problem) => {
            if problem.code == Code::NotFound {
                problem.code = Code::BadRequest;
            }
            Err(problem)
        }
    }
}

fn tool(name: &str, description: &str, input: Json, body: Body) -> Result<Tool> {
    let described = json!({
        "name": name,
        "description": description,
        "inputSchema": input,
        // The others mean nothing beside it.
        "annotations": {"readOnlyHint": true},
    });
    let mut tool = Tool::new(name, crate::source(), strict(input)?, body);
    tool.description = description.to_owned();
    tool.effects = Effects::READ;
    tool.shown = Shown::InCodeMode;
    tool.describes_sources = true;
    if let Value::Object(definition) = Value::from_json(described)? {
        tool.definition = Some(Arc::new(definition));
    }
    Ok(tool)
}

/// What is checked is more than what needs to be told: that there is nothing
/// else to say, and how much at most.
fn strict(mut input: Json) -> Result<Schema> {
    let bounds = [
        ("/properties/query", "maxLength", 10_000),
        ("/properties/limit", "minimum", 1),
        ("/properties/limit", "maximum", search::MOST as i64),
        ("/properties/names", "minItems", 1),
        ("/properties/names", "maxItems", docs::MOST as i64),
    ];
    for (property, keyword, bound) in bounds {
        if let Some(Json::Object(property)) = input.pointer_mut(property) {
            property.insert(keyword.to_owned(), bound.into());
        }
    }
    let Json::Object(mut input): Json = input else {
        return Err(Problem::internal("a tool takes an object"));
    };
    input.insert("additionalProperties".to_owned(), false.into());
    Schema::compile(Map::from_iter(input))
}
