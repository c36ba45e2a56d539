//! Recorded answers as JSON, and back.

use moonlark_core::content::{Content, ToolAnswer};
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Value};

/// What a call was answered. A Problem if JSON cannot say it: bytes, or no number.
pub(super) fn encode_answer(answer: &Result<ToolAnswer>) -> Result<Value> {
    let encoded = match answer {
        Ok(ToolAnswer::Value(value)) => Value::from_fields([("value", value.clone())]),
        Ok(ToolAnswer::Raw(fields)) => Value::from_fields([("raw", Value::Object(fields.clone()))]),
        Ok(ToolAnswer::Content(content)) => encode_content(content),
        Err(problem) => {
            let mut error = Object::new();
            let mut add = |name: &str, value: Value| error.insert(name.to_owned(), value);
            add("code", problem.code.as_str().into());
            add("message", problem.message.as_str().into());
            if let Some(hint) = &problem.hint {
                add("hint", hint.as_str().into());
            }
            if problem.is_retryable() != problem.code.is_retryable() {
                add("retryable", Value::Bool(problem.is_retryable()));
            }
            if let Some(status) = problem.status {
                add("status", Value::Int(i64::from(status)));
            }
            if let Some(data) = &problem.data {
                add("data", (**data).clone());
            }
            if let Some(content) = &problem.content {
                add("content", encode_content(content));
            }
            Value::from_fields([("error", Value::Object(error))])
        }
    };
    encoded.clone().into_json("answer")?;
    Ok(encoded)
}

fn encode_content(content: &Content) -> Value {
    let mut fields = Object::new();
    fields.insert("content".to_owned(), Value::Array(content.blocks.clone()));
    if let Some(structured) = &content.structured {
        fields.insert("structured".to_owned(), structured.clone());
    }
    if !content.extra.is_empty() {
        fields.insert("extra".to_owned(), Value::Object(content.extra.clone()));
    }
    Value::Object(fields)
}

/// The answer that a file has for a call; none if that is not one.
pub(super) fn decode_answer(encoded: &Value) -> Option<Result<ToolAnswer>> {
    if let Some(value) = encoded.get("value") {
        return Some(Ok(ToolAnswer::Value(value.clone())));
    }
    if let Some(Value::Object(raw)) = encoded.get("raw") {
        return Some(Ok(ToolAnswer::Raw(raw.clone())));
    }
    if let Some(error) = encoded.get("error") {
        return Some(Err(decode_problem(error)?));
    }
    Some(Ok(ToolAnswer::Content(decode_content(encoded)?)))
}

fn decode_content(encoded: &Value) -> Option<Content> {
    let Value::Array(blocks) = encoded.get("content")? else { return None };
    let extra = encoded.get("extra").and_then(Value::as_object).cloned().unwrap_or_default();
    let structured = encoded.get("structured").cloned();
    Some(Content { blocks: blocks.clone(), structured, extra })
}

fn decode_problem(error: &Value) -> Option<Problem> {
    let text = |name: &str| error.get(name).and_then(Value::as_str);
    let code = ProblemCode::ALL_CODES.iter().find(|code| Some(code.as_str()) == text("code"))?;
    let mut problem =
        Problem::new(*code, text("message")?).with_optional_hint(text("hint").map(str::to_owned));
    if let Some(Value::Bool(retryable)) = error.get("retryable") {
        problem = problem.with_retryable(*retryable);
    }
    if let Some(Value::Int(status)) = error.get("status") {
        problem.status = u16::try_from(*status).ok();
    }
    problem.data = error.get("data").cloned().map(Box::new);
    problem.content = error.get("content").and_then(decode_content).map(Box::new);
    Some(problem)
}
