//! Results made of content: text, images, audio, resources, as MCP has them.
//!
//! A script that returns `{content: […], isError}` answers with exactly that
//! over MCP; whoever wants one value (REST, the terminal, another script) gets
//! the plain one inside it.

use crate::problem::{Problem, Result, cut_message};
use crate::value::{Object, Value, shorten_text};

/// What a tool answered.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolAnswer {
    Value(Value),
    Content(Content),
    /// Whatever the caller's protocol makes of it, passed on as it is.
    Raw(Object),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// Objects with a `type`: see [`CONTENT_KINDS`].
    pub blocks: Vec<Value>,
    /// The result as a value, where the tool gave one beside the content.
    pub structured: Option<Value>,
    /// What else came with it.
    pub extra: Object,
}

/// The types of content, and the fields each needs.
const CONTENT_KINDS: [(&str, &[&str]); 5] = [
    ("text", &["text"]),
    ("image", &["data", "mimeType"]),
    ("audio", &["data", "mimeType"]),
    ("resource", &["resource"]),
    ("resource_link", &["uri", "name"]),
];

impl ToolAnswer {
    /// Recognise content in what a script returned. Content that says it is an
    /// error is the tool's own Problem.
    pub fn from_script_result(value: Value) -> Result<ToolAnswer> {
        let Value::Object(mut fields) = value else { return Ok(ToolAnswer::Value(value)) };
        if !is_content(&fields) {
            return Ok(ToolAnswer::Value(Value::Object(fields)));
        }
        let Some(Value::Array(blocks)) = fields.swap_remove("content") else {
            return Ok(ToolAnswer::Value(Value::Object(fields)));
        };
        for (index, block) in blocks.iter().enumerate() {
            check_block(block, &format!("result.content[{index}]"))?;
        }
        let structured = fields.swap_remove("structuredContent").filter(|it| *it != Value::Null);
        let failed = fields.swap_remove("isError") == Some(Value::Bool(true));
        Content { blocks, structured, extra: fields }.into_answer(failed)
    }

    /// The one value: what the tool gave as such, else its text, else its
    /// content as a list in which texts are plain.
    pub fn into_plain_value(self) -> Value {
        let Content { mut blocks, structured, .. } = match self {
            ToolAnswer::Value(value) => return value,
            ToolAnswer::Raw(fields) => return Value::Object(fields),
            ToolAnswer::Content(content) => content,
        };
        if let Some(structured) = structured {
            return structured;
        }
        blocks.iter_mut().for_each(|block| {
            if let Some(text) = block_text(block) {
                *block = Value::from(text.to_owned());
            }
        });
        match <[Value; 1]>::try_from(blocks) {
            Ok([only]) => only,
            Err(blocks) => Value::Array(blocks),
        }
    }
}

impl Content {
    /// Whether it only shows how a value begins that was too long, and where the whole is.
    pub fn is_artifact_preview(&self) -> bool {
        let Some(Value::Object(fields)) = &self.structured else { return false };
        let handle = fields.get("artifact").and_then(Value::as_str);
        fields.len() == 4
            && handle.is_some_and(|handle| handle.starts_with("art_"))
            && ["size", "shape", "preview"].iter().all(|key| fields.contains_key(*key))
    }

    /// An answer, or the tool's own Problem if it says it has failed.
    pub fn into_answer(self, failed: bool) -> Result<ToolAnswer> {
        if !failed {
            return Ok(ToolAnswer::Content(self));
        }
        let text = self.joined_text();
        let message =
            if text.is_empty() { "the tool failed".to_owned() } else { cut_message(&text) };
        let mut problem = Problem::tool_error(message);
        problem.content = Some(Box::new(self));
        Err(problem)
    }

    fn joined_text(&self) -> String {
        self.blocks.iter().filter_map(block_text).collect::<Vec<_>>().join("\n")
    }
}

fn block_text(block: &Value) -> Option<&str> {
    match block {
        Value::Object(fields) if fields.get("type").and_then(Value::as_str) == Some("text") => {
            fields.get("text").and_then(Value::as_str)
        }
        _ => None,
    }
}

/// A list named `content`, and beside it nothing but what belongs to it. Any
/// other object is a value that happens to have such a field.
fn is_content(fields: &Object) -> bool {
    let typed = |item: &Value| matches!(item, Value::Object(item) if item.contains_key("type"));
    matches!(fields.get("content"), Some(Value::Array(items)) if items.iter().all(typed))
        && fields.keys().all(|key| {
            matches!(key.as_str(), "content" | "isError" | "structuredContent" | "_meta")
        })
        && matches!(fields.get("isError"), None | Some(Value::Null | Value::Bool(_)))
}

/// Whether a value is one piece of content.
pub fn is_content_block(value: &Value) -> bool {
    value.get("type").is_some() && check_block(value, "").is_ok()
}

fn check_block(block: &Value, at: &str) -> Result<()> {
    let Value::Object(fields) = block else { return Ok(()) };
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    let Some((_, needed)) = CONTENT_KINDS.iter().find(|(known, _)| *known == kind) else {
        let kinds: Vec<&str> = CONTENT_KINDS.iter().map(|(kind, _)| *kind).collect();
        return Err(Problem::tool_error(format!(
            "{at}.type is {:?}, which is none of {}",
            shorten_text(kind),
            kinds.join(", ")
        )));
    };
    for field in *needed {
        let there = match fields.get(*field) {
            Some(Value::Object(resource)) if *field == "resource" => resource
                .get("uri")
                .is_some_and(|uri| uri.as_str().is_some())
                .then(|| resource.contains_key("text") || resource.contains_key("blob")),
            Some(Value::Str(_)) => Some(true),
            _ => None,
        };
        if there != Some(true) {
            let what = if *field == "resource" { "with uri, and text or blob" } else { "as text" };
            return Err(Problem::tool_error(format!(
                "{at} is of type {kind} and needs {field} {what}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plain(value: serde_json::Value) -> String {
        match ToolAnswer::from_script_result(Value::from_json(value).unwrap()) {
            Ok(answer) => answer.into_plain_value().encode_json("result").unwrap(),
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn content_has_one_plain_value() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        assert_eq!(plain(json!({"content": [text("a")]})), "\"a\"");
        assert_eq!(plain(json!({"content": [text("a"), text("b")]})), r#"["a","b"]"#);
        assert_eq!(plain(json!({"content": []})), "[]");
        assert_eq!(
            plain(json!({"content": [text("a")], "structuredContent": {"n": 1}})),
            r#"{"n":1}"#
        );
        assert_eq!(
            plain(json!({"content": [text("a"), image]})),
            r#"["a",{"type":"image","data":"aGk=","mimeType":"image/png"}]"#
        );
        assert_eq!(
            plain(json!({"content": [text("no such branch")], "isError": true})),
            "error[tool_error]: no such branch"
        );
        assert_eq!(
            plain(json!({"content": [], "isError": true})),
            "error[tool_error]: the tool failed"
        );
    }

    #[test]
    fn what_only_looks_like_content_is_a_value() {
        for same in [
            json!({"content": "text"}),
            json!({"content": ["a"]}),
            json!({"content": [{"type": "text", "text": "a"}], "title": "b"}),
            json!({"isError": true}),
            json!([1]),
        ] {
            assert_eq!(plain(same.clone()), same.to_string());
        }
    }

    #[test]
    fn malformed_content_says_where() {
        assert_eq!(
            plain(json!({"content": [{"type": "imag"}]})),
            "error[tool_error]: result.content[0].type is \"imag\", which is none of text, image, audio, resource, resource_link"
        );
        assert_eq!(
            plain(json!({"content": [{"type": "image", "data": "aGk="}]})),
            "error[tool_error]: result.content[0] is of type image and needs mimeType as text"
        );
        assert_eq!(
            plain(json!({"content": [{"type": "resource", "resource": {"uri": "a:b"}}]})),
            "error[tool_error]: result.content[0] is of type resource and needs resource with uri, and text or blob"
        );
    }
}
