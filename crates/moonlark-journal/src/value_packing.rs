//! Serialization of arguments and answers without loss: what a script is given on replay
//! is what it was given then.

use moonlark_core::content::{Content, ToolAnswer};
use moonlark_core::problem::ProtocolError;
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, SourceLocation, Value};

pub(crate) fn pack_value(value: &Value) -> Result<Vec<u8>> {
    rmp_serde::to_vec(value)
        .map_err(|error| Problem::internal(format!("a value cannot be kept: {error}")))
}

pub(crate) fn unpack_value(bytes: &[u8]) -> Result<Value> {
    rmp_serde::from_slice(bytes).map_err(|error| {
        Problem::internal(format!("a value in the journal cannot be read: {error}"))
    })
}

pub(crate) fn pack_answer(answer: &Result<ToolAnswer>) -> Result<Vec<u8>> {
    pack_value(&match answer {
        Ok(ToolAnswer::Value(value)) => Value::from_fields([("value", value.clone())]),
        Ok(ToolAnswer::Raw(fields)) => Value::from_fields([("raw", fields.clone().into())]),
        Ok(ToolAnswer::Content(content)) => {
            Value::from_fields([("content", content_to_value(content))])
        }
        Err(problem) => Value::from_fields([("problem", problem_to_value(problem))]),
    })
}

pub(crate) fn unpack_answer(bytes: &[u8]) -> Result<Result<ToolAnswer>> {
    let Value::Object(fields) = unpack_value(bytes)? else { return Err(garbled_answer_problem()) };
    let Some((form, value)) = fields.into_iter().next() else {
        return Err(garbled_answer_problem());
    };
    Ok(match (form.as_str(), value) {
        ("value", value) => Ok(ToolAnswer::Value(value)),
        ("raw", Value::Object(fields)) => Ok(ToolAnswer::Raw(fields)),
        ("content", Value::Object(fields)) => Ok(ToolAnswer::Content(content_from_fields(fields)?)),
        ("problem", Value::Object(fields)) => Err(problem_from_fields(fields)?),
        _ => return Err(garbled_answer_problem()),
    })
}

fn content_to_value(content: &Content) -> Value {
    let mut fields = Object::new();
    fields.insert("blocks".to_owned(), Value::Array(content.blocks.clone()));
    if let Some(structured) = &content.structured {
        fields.insert("structured".to_owned(), structured.clone());
    }
    fields.insert("extra".to_owned(), content.extra.clone().into());
    Value::Object(fields)
}

fn content_from_fields(mut fields: Object) -> Result<Content> {
    let structured = fields.swap_remove("structured");
    match (fields.swap_remove("blocks"), fields.swap_remove("extra")) {
        (Some(Value::Array(blocks)), Some(Value::Object(extra))) => {
            Ok(Content { blocks, structured, extra })
        }
        _ => Err(garbled_answer_problem()),
    }
}

fn problem_to_value(problem: &Problem) -> Value {
    let mut fields = Object::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(key.to_owned(), value);
        }
    };
    put("code", Some(problem.code.as_str().into()));
    put("message", Some(problem.message.as_str().into()));
    put("retryable", Some(problem.is_retryable().into()));
    put("hint", problem.hint.as_deref().map(Value::from));
    put("retry_after", problem.retry_after.map(|it| Value::Int(it.into())));
    put("status", problem.status.map(Value::from));
    put("data", problem.data.as_deref().cloned());
    put("content", problem.content.as_deref().map(content_to_value));
    put(
        "place",
        problem.place.as_ref().map(|place| {
            let number = |it: Option<u32>| it.map(|it| Value::Int(it.into())).into();
            Value::Array(vec![(&*place.file).into(), number(place.line), number(place.column)])
        }),
    );
    put(
        "refusal",
        problem.refusal.as_deref().map(|refusal| {
            let mut fields = vec![Value::Int(refusal.code), refusal.message.as_str().into()];
            fields.extend(refusal.data.clone());
            Value::Array(fields)
        }),
    );
    Value::Object(fields)
}

fn problem_from_fields(mut fields: Object) -> Result<Problem> {
    let word = fields.get("code").and_then(Value::as_str);
    let code = ProblemCode::ALL_CODES
        .iter()
        .find(|code| Some(code.as_str()) == word)
        .ok_or_else(garbled_answer_problem)?;
    let text = |value: Option<Value>| match value {
        Some(Value::Str(text)) => Some(text),
        _ => None,
    };
    let number = |value: Option<&Value>| match value {
        Some(Value::Int(number)) => u32::try_from(*number).ok(),
        _ => None,
    };
    let message = text(fields.swap_remove("message")).ok_or_else(garbled_answer_problem)?;
    let retryable = fields.get("retryable") == Some(&Value::Bool(true));
    let mut problem = Problem::new(*code, message);
    if retryable != code.is_retryable() {
        problem = problem.with_retryable(retryable);
    }
    problem.hint = text(fields.swap_remove("hint"));
    problem.retry_after = number(fields.get("retry_after"));
    problem.status = number(fields.get("status")).and_then(|it| u16::try_from(it).ok());
    problem.data = fields.swap_remove("data").map(Box::new);
    if let Some(Value::Object(fields)) = fields.swap_remove("content") {
        problem.content = Some(Box::new(content_from_fields(fields)?));
    }
    if let Some(Value::Array(place)) = fields.swap_remove("place")
        && let [Value::Str(file), line, column] = place.as_slice()
    {
        let (line, column) = (number(Some(line)), number(Some(column)));
        problem.place = Some(SourceLocation { file: file.as_str().into(), line, column });
    }
    if let Some(Value::Array(refusal)) = fields.swap_remove("refusal")
        && let [Value::Int(code), Value::Str(message), data @ ..] = refusal.as_slice()
    {
        let (code, message, data) = (*code, message.clone(), data.first().cloned());
        problem.refusal = Some(Box::new(ProtocolError { code, message, data }));
    }
    Ok(problem)
}

fn garbled_answer_problem() -> Problem {
    Problem::internal("an answer in the journal cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: Result<ToolAnswer>) {
        let packed = pack_answer(&answer).unwrap();
        assert_eq!(unpack_answer(&packed).unwrap(), answer);
    }

    fn content() -> Content {
        let text = Value::from_fields([("type", "text".into()), ("text", "hi".into())]);
        let extra = [("_meta".to_owned(), Value::Null)].into_iter().collect();
        Content { blocks: vec![text], structured: Some(Value::Null), extra }
    }

    #[test]
    fn answers_come_back_as_they_were() {
        for value in [
            Value::Null,
            Value::Int(i64::MAX),
            Value::Int(-1),
            Value::Float(1.0),
            Value::Float(f64::INFINITY),
            Value::from(""),
            Value::Bytes(vec![0, 159, 146, 150]),
            Value::Array(vec![]),
            Value::Object(Object::new()),
            Value::from_fields([("value", Value::Array(vec![Value::Bool(true), "ü".into()]))]),
        ] {
            check(Ok(ToolAnswer::Value(value)));
        }
        let nan = pack_answer(&Ok(ToolAnswer::Value(Value::Float(f64::NAN)))).unwrap();
        let Ok(ToolAnswer::Value(Value::Float(nan))) = unpack_answer(&nan).unwrap() else {
            panic!()
        };
        assert!(nan.is_nan());
        check(Ok(ToolAnswer::Content(content())));
        check(Ok(ToolAnswer::Raw([("x".to_owned(), Value::Int(1))].into_iter().collect())));
    }

    #[test]
    fn problems_come_back_with_all_that_a_script_can_see() {
        for code in ProblemCode::ALL_CODES {
            check(Err(Problem::new(*code, "m")));
            check(Err(Problem::new(*code, "m").with_retryable(!code.is_retryable())));
        }
        let mut problem = Problem::tool_error("went wrong")
            .with_hint("do this")
            .at_location(SourceLocation::at_line("a", 3));
        problem.retry_after = Some(7);
        problem.status = Some(503);
        problem.data = Some(Box::new(Value::from_fields([("errors", vec!["x"].into())])));
        problem.content = Some(Box::new(content()));
        let data = Some(Value::Int(1));
        problem.refusal =
            Some(Box::new(ProtocolError { code: -32000, message: "no".into(), data }));
        check(Err(problem));
    }

    #[test]
    fn deep_values_are_kept_and_garbage_is_a_problem() {
        let mut deep = Value::Null;
        for _ in 0..moonlark_core::value::MAX_VALUE_DEPTH {
            deep = Value::Array(vec![deep]);
        }
        check(Ok(ToolAnswer::Value(deep)));
        for garbage in [&b""[..], b"\x01", b"\x80", b"\x81\xa1x\x01", b"\xdf\xff\xff\xff\xff"] {
            assert!(unpack_answer(garbage).is_err());
        }
    }
}
