//! What a connector script calls an item, as the knowledge base takes it.

use moonlark_core::nearest::nearest_name;
use moonlark_core::problem::cut_message;
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Problem, Result, Value};
use moonlark_knowledge::{ItemContent, ScanFinding, SourceItem};

use crate::knowledge_base::timestamps;
use crate::scripts::wrong_kind_problem;

const ITEM_FIELDS: [&str; 10] = [
    "source_id",
    "title",
    "body",
    "source_url",
    "content_type",
    "author",
    "created_at",
    "updated_at",
    "metadata",
    "deleted",
];

/// Read one item. The Problem says what is wrong with it; beside it the name of
/// the document that it was to be, if that much can be read.
pub(crate) fn read_item(value: Value) -> Result<ScanFinding, (Option<String>, Box<Problem>)> {
    let Value::Object(mut fields) = value else {
        let problem = wrong_kind_problem("an item is a table of fields", &value);
        return Err((None, Box::new(problem)));
    };
    let source_id = take_source_id(&mut fields).map_err(|problem| (None, Box::new(problem)))?;
    match read_item_fields(source_id.clone(), fields) {
        Ok(found) => Ok(found),
        Err(problem) => Err((Some(source_id), Box::new(problem))),
    }
}

fn take_source_id(fields: &mut Object) -> Result<String> {
    match fields.swap_remove("source_id") {
        Some(Value::Str(id)) if !id.is_empty() => Ok(id),
        // Many systems number what they have.
        Some(Value::Int(number)) => Ok(number.to_string()),
        Some(Value::Str(_)) => Err(Problem::tool_error("source_id is empty")),
        Some(other) if other != Value::Null => {
            Err(wrong_kind_problem("source_id must be a string", &other))
        }
        _ => Err(misspelt_field_problem(fields).unwrap_or_else(|| {
            Problem::tool_error("the item has no source_id")
                .with_hint("what the source calls it: a key, a path, a number")
        })),
    }
}

fn read_item_fields(source_id: String, mut fields: Object) -> Result<ScanFinding> {
    match fields.swap_remove("deleted") {
        Some(Value::Bool(true)) => return Ok(ScanFinding::Gone(source_id)),
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(other) => return Err(wrong_kind_problem("deleted must be a boolean", &other)),
    }
    let content = match fields.swap_remove("body") {
        Some(Value::Str(text)) => ItemContent::Text(text),
        Some(Value::Bytes(bytes)) => ItemContent::Bytes(bytes.into()),
        None | Some(Value::Null) => {
            let problem = || {
                Problem::tool_error("the item has no body")
                    .with_hint("its text; for one that is gone: deleted = true")
            };
            return Err(misspelt_field_problem(&fields).unwrap_or_else(problem));
        }
        Some(other) => return Err(wrong_kind_problem("body must be a string", &other)),
    };
    let metadata = match fields.swap_remove("metadata").unwrap_or_default() {
        Value::Null => Value::Null,
        Value::Object(metadata) => Value::Object(metadata),
        // An empty table may have been meant as either.
        Value::Array(items) if items.is_empty() => Value::Null,
        other => return Err(wrong_kind_problem("metadata must be a table of fields", &other)),
    };
    let mut text = |field: &str| match fields.swap_remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Str(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
        Some(other) => Err(wrong_kind_problem(&format!("{field} must be a string"), &other)),
    };
    let (title, content_type) = (text("title")?, text("content_type")?);
    let (source_url, author) = (text("source_url")?, text("author")?);
    let mut moment = |field: &str| match fields.swap_remove(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Str(text)) if text.is_empty() => Ok(None),
        Some(value) => timestamps::read_timestamp(&value).map(Some).ok_or_else(|| {
            let given = cut_message(&shorten_text(&value.to_json_lossy().to_string()));
            Problem::tool_error(format!("{field} is not a time: {given}"))
                .with_hint("write 2026-01-31T12:00:00Z, a date, or seconds since 1970")
        }),
    };
    let (created_at, updated_at) = (moment("created_at")?, moment("updated_at")?);
    if let Some(problem) = misspelt_field_problem(&fields) {
        return Err(problem);
    }
    Ok(ScanFinding::Item(Box::new(SourceItem {
        source_id,
        title,
        content,
        content_type,
        source_url,
        author,
        created_at,
        updated_at,
        metadata,
        stamp: None,
    })))
}

/// Fields that mean nothing are fine; those that were meant to are not.
fn misspelt_field_problem(fields: &Object) -> Option<Problem> {
    let unknown = fields.keys().filter(|name| !ITEM_FIELDS.contains(&name.as_str()));
    let (name, near) =
        unknown.filter_map(|name| Some((name, nearest_name(name, ITEM_FIELDS)?))).next()?;
    let message = format!("the item has a field {}, which means nothing", shorten_text(name));
    Some(Problem::tool_error(message).with_hint(format!("did you mean {near}?")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str) -> Result<ScanFinding, (Option<String>, String)> {
        let value = Value::parse_json(json.as_bytes()).unwrap();
        read_item(value).map_err(|(name, problem)| (name, problem.message))
    }

    #[test]
    fn a_whole_item_is_taken_field_by_field() {
        let found = check(
            r#"{"source_id": "ENG-1", "title": "T", "body": "B", "source_url": "https://x/1",
                "content_type": "text/markdown", "author": "ann", "created_at": "2026-01-31",
                "updated_at": 1769860800, "metadata": {"labels": ["a"]}, "raw": 5}"#,
        );
        let Ok(ScanFinding::Item(item)) = found else { panic!("{found:?}") };
        let expected = SourceItem {
            source_id: "ENG-1".into(),
            title: Some("T".into()),
            content: ItemContent::Text("B".into()),
            content_type: Some("text/markdown".into()),
            source_url: Some("https://x/1".into()),
            author: Some("ann".into()),
            created_at: Some("2026-01-31T00:00:00Z".parse().unwrap()),
            updated_at: Some("2026-01-31T12:00:00Z".parse().unwrap()),
            metadata: Value::from_fields([("labels", Value::from(vec!["a"]))]),
            stamp: None,
        };
        assert_eq!(*item, expected);
    }

    #[test]
    fn little_is_enough_and_deleted_needs_only_the_name() {
        let Ok(ScanFinding::Item(item)) = check(r#"{"source_id": 42, "body": "", "title": null}"#)
        else {
            panic!()
        };
        assert_eq!((&*item.source_id, item.title), ("42", None));
        let gone = check(r#"{"source_id": "x", "deleted": true}"#);
        assert!(matches!(gone, Ok(ScanFinding::Gone(id)) if id == "x"));
    }

    #[test]
    fn what_is_wrong_with_an_item_is_said_of_it() {
        for (json, name, message) in [
            ("5", None, "an item is a table of fields, got integer"),
            (r#"["a"]"#, None, "an item is a table of fields, got array"),
            ("{}", None, "the item has no source_id"),
            (r#"{"source_id": "", "body": "b"}"#, None, "source_id is empty"),
            (
                r#"{"source_id": true, "body": "b"}"#,
                None,
                "source_id must be a string, got boolean",
            ),
            (
                r#"{"sourceid": "x", "body": "b"}"#,
                None,
                "the item has a field sourceid, which means nothing",
            ),
            (r#"{"source_id": "x"}"#, Some("x"), "the item has no body"),
            (r#"{"source_id": "x", "body": 5}"#, Some("x"), "body must be a string, got integer"),
            (
                r#"{"source_id": "x", "body": "b", "updated_at": "soon"}"#,
                Some("x"),
                "updated_at is not a time: \"soon\"",
            ),
            (
                r#"{"source_id": "x", "body": "b", "metadata": "m"}"#,
                Some("x"),
                "metadata must be a table of fields, got string",
            ),
            (
                r#"{"source_id": "x", "body": "b", "titel": "T"}"#,
                Some("x"),
                "the item has a field titel, which means nothing",
            ),
            (
                r#"{"source_id": "x", "deleted": 1}"#,
                Some("x"),
                "deleted must be a boolean, got integer",
            ),
        ] {
            let expected = (name.map(str::to_owned), message.to_owned());
            match check(json) {
                Err(wrong) => assert_eq!(wrong, expected, "{json}"),
                Ok(found) => panic!("{json}: {found:?}"),
            }
        }
    }
}
