//! Answers and Problems as the SDK has them.

use moonlark_core::content::{Content, ToolAnswer};
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData, MetaObject,
};
use rmcp::service::RequestContext;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

use super::content_kinds::ContentKinds;
use super::mcp_caller::{CAPABILITIES_META_KEY, is_modern};

/// What `_meta` of an answer says about the run of a script, to whom it is of use:
/// some clients hand all of `_meta` to their model.
const RUN_META_KEY: &str = "moonlark/run";

/// What a client can take, and what it asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerForm {
    /// Results that are no object.
    pub(crate) any_structure: bool,
    /// How a run went, in `_meta`.
    pub(crate) run_details: bool,
    kinds: ContentKinds,
}

impl AnswerForm {
    /// A request asks by `"moonlark/run": true` in its own `_meta`; a client that
    /// always wants it declares the experimental capability of that name.
    pub(crate) fn for_request(context: &RequestContext<RoleServer>) -> Self {
        let in_request = || context.meta.get(RUN_META_KEY) == Some(&Json::Bool(true));
        let declared = || match context.meta.get(CAPABILITIES_META_KEY) {
            Some(said) => said.get("experimental").is_some_and(|it| it.get(RUN_META_KEY).is_some()),
            None => (context.client_capabilities())
                .and_then(|said| said.experimental.clone())
                .is_some_and(|it| it.contains_key(RUN_META_KEY)),
        };
        Self {
            any_structure: is_modern(context),
            run_details: in_request() || declared(),
            kinds: ContentKinds::known_to_client(context),
        }
    }
}

/// The answer to `tools/call`.
pub(crate) fn tool_response(
    ended: Result<ToolAnswer>,
    form: AnswerForm,
) -> Result<CallToolResponse, ErrorData> {
    match ended.and_then(|answer| success_response(answer, form)) {
        Ok(response) => Ok(response),
        Err(problem) => match problem.refusal {
            Some(_) => Err(error_from_problem(problem)),
            // An unknown tool is a mistake in the request, not in the tool.
            None if problem.code == ProblemCode::NotFound => Err(error_from_problem(problem)),
            None => Ok(CallToolResponse::Complete(error_result(&problem, form))),
        },
    }
}

/// The answer to a request that is no tool's.
pub(crate) fn typed_response<T: DeserializeOwned>(
    ended: Result<ToolAnswer>,
) -> Result<T, ErrorData> {
    let fields = match ended.map_err(error_from_problem)? {
        ToolAnswer::Raw(fields) => fields,
        _ => return Err(ErrorData::internal_error("the source answered with no object", None)),
    };
    parse_result(fields).map_err(error_from_problem)
}

/// Whether the answer asks for input first.
pub(crate) fn requires_input(ended: &Result<ToolAnswer>) -> bool {
    matches!(ended, Ok(ToolAnswer::Raw(fields))
        if fields.get("resultType").and_then(Value::as_str) == Some("input_required"))
}

/// A Problem as an error of the protocol: in the words of whoever refused.
pub(crate) fn error_from_problem(problem: Problem) -> ErrorData {
    if let Some(refusal) = problem.refusal {
        let code = i32::try_from(refusal.code).unwrap_or(ErrorCode::INTERNAL_ERROR.0);
        let data = refusal.data.map(|data| data.to_json_lossy());
        return ErrorData::new(ErrorCode(code), refusal.message, data);
    }
    let code = match problem.code {
        ProblemCode::NotFound | ProblemCode::BadRequest => ErrorCode::INVALID_PARAMS,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    ErrorData::new(code, problem.to_line(), Some(problem.to_json()))
}

/// The result as text, and as structure where the client can take it.
fn success_response(answer: ToolAnswer, form: AnswerForm) -> Result<CallToolResponse> {
    let value = match answer {
        ToolAnswer::Value(value) => value,
        ToolAnswer::Content(content) => {
            return Ok(CallToolResponse::Complete(content_result(content, form)?));
        }
        ToolAnswer::Raw(fields) => {
            return match fields.get("resultType").and_then(Value::as_str) {
                Some("task") => parse_result(fields).map(CallToolResponse::Task),
                _ => parse_result(fields).map(CallToolResponse::InputRequired),
            };
        }
    };
    let text = match &value {
        Value::Str(text) => text.clone(),
        other => other.encode_json("result")?,
    };
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    if form.any_structure || matches!(value, Value::Object(_)) {
        result.structured_content = Some(value.into_json("result")?);
    }
    Ok(CallToolResponse::Complete(result))
}

fn content_result(content: Content, form: AnswerForm) -> Result<CallToolResult> {
    let Content { blocks, structured, extra } = content;
    let mut result = CallToolResult::success(typed_blocks(form.kinds.adapt_blocks(blocks))?);
    if let Some(value) = structured
        && (form.any_structure || matches!(value, Value::Object(_)))
    {
        result.structured_content = Some(value.into_json("result.structuredContent")?);
    }
    result.meta = result_meta(extra, form);
    Ok(result)
}

/// What a source said about its answer.
fn result_meta(mut extra: Object, form: AnswerForm) -> Option<MetaObject> {
    let Some(Value::Object(mut meta)) = extra.swap_remove("_meta") else { return None };
    if !form.run_details && meta.shift_remove(RUN_META_KEY).is_some() && meta.is_empty() {
        return None;
    }
    serde_json::from_value(Value::Object(meta).to_json_lossy()).ok()
}

/// Content as the SDK has it. What it does not know goes on as text, so that
/// nothing is lost.
fn typed_blocks(blocks: Vec<Value>) -> Result<Vec<ContentBlock>> {
    let block = |(index, mut block): (usize, Value)| {
        if let Some(text) = plain_text(&mut block) {
            return Ok(ContentBlock::text(text));
        }
        let json = block.into_json(&format!("result.content[{index}]"))?;
        Ok(serde_json::from_value(json.clone())
            .unwrap_or_else(|_| ContentBlock::text(json.to_string())))
    };
    blocks.into_iter().enumerate().map(block).collect()
}

/// The text of a block that has nothing else, which most are.
fn plain_text(block: &mut Value) -> Option<String> {
    let Value::Object(fields) = block else { return None };
    if fields.len() != 2 || fields.get("type").and_then(Value::as_str) != Some("text") {
        return None;
    }
    match fields.get_mut("text")? {
        Value::Str(text) => Some(std::mem::take(text)),
        _ => None,
    }
}

fn error_result(problem: &Problem, form: AnswerForm) -> CallToolResult {
    // A tool that says itself how it failed is passed on as it is.
    if let Some(content) = &problem.content
        && let Ok(mut result) =
            content_result((**content).clone(), AnswerForm { any_structure: true, ..form })
    {
        result.is_error = Some(true);
        return result;
    }
    let mut result = CallToolResult::error(vec![ContentBlock::text(problem.to_string())]);
    result.structured_content = Some(json!({ "error": problem.to_json() }));
    result
}

fn parse_result<T: DeserializeOwned>(fields: Object) -> Result<T> {
    serde_json::from_value(Value::Object(fields).into_json("result")?).map_err(|error| {
        Problem::tool_error(format!("the source answered with something else than asked: {error}"))
    })
}
