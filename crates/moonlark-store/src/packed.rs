//! Arguments and answers as bytes, and back, with nothing lost: what a script is
//! given on replay is what it was given then.

use moonlark_core::content::{Answer, Content};
use moonlark_core::problem::Refusal;
use moonlark_core::value::Object;
use moonlark_core::{Code, Place, Problem, Result, Value};

pub(crate) fn pack(value: &Value) -> Result<Vec<u8>> {
    rmp_serde::to_vec(value)
        .map_err(|error| Problem::internal(format!("a value cannot be kept: {error}")))
}

pub(crate) fn unpack(bytes: &[u8]) -> Result<Value> {
    rmp_serde::from_slice(bytes)
        .map_err(|error| Problem::internal(format!("a value on record cannot be read: {error}")))
}

pub(crate) fn pack_answer(answer: &Result<Answer>) -> Result<Vec<u8>> {
    pack(&match answer {
        Ok(Answer::Value(value)) => Value::object([("value", value.clone())]),
        Ok(Answer::Raw(fields)) => Value::object([("raw", fields.clone().into())]),
        Ok(Answer::Content(content)) => Value::object([("content", of_content(content))]),
        Err(problem) => Value::object([("problem", of_problem(problem))]),
    })
}

pub(crate) fn unpack_answer(bytes: &[u8]) -> Result<Result<Answer>> {
    let Value::Object(fields) = unpack(bytes)? else { return Err(garbled()) };
    let Some((form, value)) = fields.into_iter().next() else { return Err(garbled()) };
    Ok(match (form.as_str(), value) {
        ("value", value) => Ok(Answer::Value(value)),
        ("raw", Value::Object(fields)) => Ok(Answer::Raw(fields)),
        ("content", Value::Object(fields)) => Ok(Answer::Content(content(fields)?)),
        ("problem", Value::Object(fields)) => Err(problem(fields)?),
        _ => return Err(garbled()),
    })
}

fn of_content(content: &Content) -> Value {
    let mut fields = Object::new();
    fields.insert("blocks".to_owned(), Value::Array(content.blocks.clone()));
    if let Some(structured) = &content.structured {
        fields.insert("structured".to_owned(), structured.clone());
    }
    fields.insert("extra".to_owned(), content.extra.clone().into());
    Value::Object(fields)
}

fn content(mut fields: Object) -> Result<Content> {
    let structured = fields.swap_remove("structured");
    match (fields.swap_remove("blocks"), fields.swap_remove("extra")) {
        (Some(Value::Array(blocks)), Some(Value::Object(extra))) => {
            Ok(Content { blocks, structured, extra })
        }
        _ => Err(garbled()),
    }
}

fn of_problem(problem: &Problem) -> Value {
    let mut fields = Object::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields.insert(key.to_owned(), value);
        }
    };
    put("code", Some(problem.code.as_str().into()));
    put("message", Some(problem.message.as_str().into()));
    put("retryable", Some(problem.retryable().into()));
    put("hint", problem.hint.as_deref().map(Value::from));
    put("retry_after", problem.retry_after.map(|it| Value::Int(it.into())));
    put("status", problem.status.map(Value::from));
    put("data", problem.data.as_deref().cloned());
    put("content", problem.content.as_deref().map(of_content));
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

fn problem(mut fields: Object) -> Result<Problem> {
    let word = fields.get("code").and_then(Value::as_str);
    let code = Code::ALL.iter().find(|code| Some(code.as_str()) == word).ok_or_else(garbled)?;
    let text = |value: Option<Value>| match value {
        Some(Value::Str(text)) => Some(text),
        _ => None,
    };
    let number = |value: Option<&Value>| match value {
        Some(Value::Int(number)) => u32::try_from(*number).ok(),
        _ => None,
    };
    let message = text(fields.swap_remove("message")).ok_or_else(garbled)?;
    let retryable = fields.get("retryable") == Some(&Value::Bool(true));
    let mut problem = Problem::new(*code, message);
    if retryable != code.retryable() {
        problem = problem.retryable_if(retryable);
    }
    problem.hint = text(fields.swap_remove("hint"));
    problem.retry_after = number(fields.get("retry_after"));
    problem.status = number(fields.get("status")).and_then(|it| u16::try_from(it).ok());
    problem.data = fields.swap_remove("data").map(Box::new);
    if let Some(Value::Object(fields)) = fields.swap_remove("content") {
        problem.content = Some(Box::new(content(fields)?));
    }
    if let Some(Value::Array(place)) = fields.swap_remove("place")
        && let [Value::Str(file), line, column] = place.as_slice()
    {
        let (line, column) = (number(Some(line)), number(Some(column)));
        problem.place = Some(Place { file: file.as_str().into(), line, column });
    }
    if let Some(Value::Array(refusal)) = fields.swap_remove("refusal")
        && let [Value::Int(code), Value::Str(message), data @ ..] = refusal.as_slice()
    {
        let (code, message, data) = (*code, message.clone(), data.first().cloned());
        problem.refusal = Some(Box::new(Refusal { code, message, data }));
    }
    Ok(problem)
}

fn garbled() -> Problem {
    Problem::internal("an answer on record cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: Result<Answer>) {
        let packed = pack_answer(&answer).unwrap();
        assert_eq!(unpack_answer(&packed).unwrap(), answer);
    }

    fn content() -> Content {
        let text = Value::object([("type", "text".into()), ("text", "hi".into())]);
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
            Value::object([("value", Value::Array(vec![Value::Bool(true), "ü".into()]))]),
        ] {
            check(Ok(Answer::Value(value)));
        }
        let nan = pack_answer(&Ok(Answer::Value(Value::Float(f64::NAN)))).unwrap();
        let Ok(Answer::Value(Value::Float(nan))) = unpack_answer(&nan).unwrap() else { panic!() };
        assert!(nan.is_nan());
        check(Ok(Answer::Content(content())));
        check(Ok(Answer::Raw([("x".to_owned(), Value::Int(1))].into_iter().collect())));
    }

    #[test]
    fn problems_come_back_with_all_that_a_script_can_see() {
        for code in Code::ALL {
            check(Err(Problem::new(*code, "m")));
            check(Err(Problem::new(*code, "m").retryable_if(!code.retryable())));
        }
        let mut problem = Problem::tool_error("went wrong").hint("do this").at(Place::line("a", 3));
        problem.retry_after = Some(7);
        problem.status = Some(503);
        problem.data = Some(Box::new(Value::object([("errors", vec!["x"].into())])));
        problem.content = Some(Box::new(content()));
        let data = Some(Value::Int(1));
        problem.refusal = Some(Box::new(Refusal { code: -32000, message: "no".into(), data }));
        check(Err(problem));
    }

    #[test]
    fn deep_values_are_kept_and_garbage_is_a_problem() {
        let mut deep = Value::Null;
        for _ in 0..moonlark_core::value::MAX_DEPTH {
            deep = Value::Array(vec![deep]);
        }
        check(Ok(Answer::Value(deep)));
        for garbage in [&b""[..], b"\x01", b"\x80", b"\x81\xa1x\x01", b"\xdf\xff\xff\xff\xff"] {
            assert!(unpack_answer(garbage).is_err());
        }
    }
}
