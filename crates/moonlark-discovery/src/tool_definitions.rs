//! The three tools as agents see them. Every word here is in the context of
//! every agent, all the time.

use std::sync::Arc;

use moonlark_core::content::{Content, ToolAnswer};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{CallEffects, ToolListing};
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Tool, Value};
use moonlark_gateway::tool_body::ToolBody;
use serde_json::{Map, Value as Json, json};

use crate::index_cache::FunctionIndexCache;
use crate::{function_docs, function_list, function_search};

pub(crate) fn search_docs_tool(current: Arc<FunctionIndexCache>) -> Result<Tool> {
    let body = ToolBody::from_answering_fn(move |call, args| {
        let current = current.clone();
        async move { text_answer(function_search::search_docs(&call, &args, &current).await) }
    });
    build_tool(
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

pub(crate) fn list_functions_tool() -> Result<Tool> {
    build_tool(
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
        ToolBody::from_answering_fn(|call, args| async move {
            text_answer(function_list::list_functions(&call, &args))
        }),
    )
}

pub(crate) fn get_function_docs_tool() -> Result<Tool> {
    build_tool(
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
        ToolBody::from_answering_fn(|call, args| async move {
            text_answer(function_docs::get_function_docs(&call, &args))
        }),
    )
}

/// Text and nothing else: as a value it would be there twice for clients that
/// take values. What is not there is the agent's mistake, and it can mend that:
/// only a tool that is not there is one of the request.
fn text_answer(text: Result<String>) -> Result<ToolAnswer> {
    match text {
        Ok(text) => Ok(ToolAnswer::Content(Content {
            blocks: vec![Value::from_fields([("type", "text".into()), ("text", text.into())])],
            structured: None,
            extra: Object::new(),
        })),
        Err(mut problem) => {
            if problem.code == ProblemCode::NotFound {
                problem.code = ProblemCode::BadRequest;
            }
            Err(problem)
        }
    }
}

fn build_tool(name: &str, description: &str, input: Json, body: ToolBody) -> Result<Tool> {
    let described = json!({
        "name": name,
        "description": description,
        "inputSchema": input,
        // The others mean nothing beside it.
        "annotations": {"readOnlyHint": true},
    });
    let mut tool = Tool::new(name, crate::builtin_source(), compile_strict_schema(input)?, body);
    tool.description = description.to_owned();
    tool.effects = CallEffects::READ_ONLY;
    tool.shown = ToolListing::InCodeMode;
    tool.describes_sources = true;
    if let Value::Object(definition) = Value::from_json(described)? {
        tool.definition = Some(Arc::new(definition));
    }
    Ok(tool)
}

/// What is checked is more than what needs to be told: that there is nothing
/// else to say, and how much at most.
fn compile_strict_schema(mut input: Json) -> Result<Schema> {
    let bounds = [
        ("/properties/query", "maxLength", 10_000),
        ("/properties/limit", "minimum", 1),
        ("/properties/limit", "maximum", function_search::MAX_SEARCH_LIMIT as i64),
        ("/properties/names", "minItems", 1),
        ("/properties/names", "maxItems", function_docs::MAX_EXPLAINED_FUNCTIONS as i64),
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
    Schema::of_builtin_tool(Map::from_iter(input))
}
