//! What a tool answered, as the value that an agent's script gets, and back.
//!
//! Bytes of images, audio and other files stay outside the VM: the script has
//! everything about them and a handle, and where it returns that, the whole
//! comes back.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use moonlark_core::Result;
use moonlark_core::content::ToolAnswer;
use moonlark_core::value::{Object, Value};
use moonlark_gateway::Call;
use moonlark_gateway::artifacts::ArtifactContent;

/// What becomes of an answer that is one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerTextForm {
    /// It is a text.
    Plain,
    /// It is what it says, if it is JSON.
    Parsed,
}

/// The value of an answer: what the tool gave as such, else its text, else its
/// content as a list in which texts are plain.
pub(crate) fn value_from_answer(
    answer: ToolAnswer,
    form: AnswerTextForm,
    call: &Call,
    tool: &str,
) -> Result<Value> {
    let mut content = match answer {
        ToolAnswer::Content(content) => content,
        other => return Ok(other.into_plain_value()),
    };
    if content.structured.is_none() {
        for (number, block) in (0..).zip(&mut content.blocks) {
            store_block_bytes(block, number, call, tool)?;
        }
    }
    let one_text = content.structured.is_none() && content.blocks.len() == 1;
    let several = content.structured.is_none() && content.blocks.len() != 1;
    match ToolAnswer::Content(content).into_plain_value() {
        Value::Array(items) if several && items.iter().all(|it| it.as_str().is_some()) => {
            let list = Value::Array(items);
            call.run().inspect(|run| run.remember_text_list(&list));
            Ok(list)
        }
        Value::Str(text) if one_text && form == AnswerTextForm::Parsed => {
            Ok(parse_json_or_text(text))
        }
        value => Ok(value),
    }
}

fn parse_json_or_text(text: String) -> Value {
    match Value::parse_json(text.as_bytes()) {
        Ok(value) => value,
        Err(_) => Value::Str(text),
    }
}

/// The object that holds a block's bytes, and their name there.
fn find_bytes_holder(block: &mut Value) -> Option<(&mut Object, &'static str)> {
    let Value::Object(fields) = block else { return None };
    match fields.get("type").and_then(Value::as_str)? {
        "image" | "audio" => Some((fields, "data")),
        "resource" => match fields.get_mut("resource")? {
            Value::Object(resource) => Some((resource, "blob")),
            _ => None,
        },
        _ => None,
    }
}

/// Put the bytes of a block among the artifacts, and a handle in their place.
fn store_block_bytes(block: &mut Value, number: u64, call: &Call, tool: &str) -> Result<()> {
    let Some((fields, name)) = find_bytes_holder(block) else { return Ok(()) };
    let Some(Value::Str(data)) = fields.get(name) else { return Ok(()) };
    let (artifacts, limits) = (call.gateway().artifacts(), call.limits());
    let handle = call.new_artifact_handle(number)?;
    let of = (tool, call.caller());
    let bytes = BASE64_STANDARD.decode(data);
    // What would not come back the same stays as it was written.
    let (handle, size) = match bytes.ok().filter(|bytes| BASE64_STANDARD.encode(bytes) == *data) {
        Some(bytes) => {
            let mime = fields.get("mimeType").and_then(Value::as_str).unwrap_or_default();
            let size = bytes.len();
            (artifacts.put_bytes_as(handle, bytes, mime, of, limits)?, size)
        }
        None => {
            (artifacts.put_value_as(handle, Value::from(data.as_str()), of, limits)?, data.len())
        }
    };
    fields.shift_remove(name);
    fields.insert("size".to_owned(), Value::Int(size as i64));
    fields.insert("handle".to_owned(), Value::from(handle.as_str()));
    Ok(())
}

/// The block that bytes among the artifacts were, as far as that is known: it
/// can be returned like the first one.
pub(super) fn block_from_handle(handle: &str, mime: &str, size: usize) -> Value {
    let handle = handle.strip_prefix("artifact://").unwrap_or(handle);
    let uri = format!("artifact://{handle}");
    let [mime_type, size, handle] = [
        ("mimeType", Value::from(mime)),
        ("size", Value::Int(size as i64)),
        ("handle", Value::from(handle)),
    ];
    match mime.split('/').next() {
        Some(kind @ ("image" | "audio")) => {
            Value::from_fields([("type", kind.into()), mime_type, size, handle])
        }
        _ => {
            let resource = Value::from_fields([("uri", uri.into()), mime_type, size, handle]);
            Value::from_fields([("type", "resource".into()), ("resource", resource)])
        }
    }
}

/// A block with its bytes in the place of the handle; none if it has no handle.
pub(super) fn restore_block(block: &Value, call: &Call) -> Result<Option<Value>> {
    let mut block = block.clone();
    let Some((fields, name)) = find_bytes_holder(&mut block) else { return Ok(None) };
    let Some(handle) = fields.get("handle").and_then(Value::as_str).map(str::to_owned) else {
        return Ok(None);
    };
    let stored = call.gateway().artifacts().find_for_caller(&handle, call.caller())?;
    let data = match &stored.held {
        ArtifactContent::Bytes { bytes, .. } => BASE64_STANDARD.encode(bytes),
        ArtifactContent::Value(Value::Str(text)) => text.clone(),
        ArtifactContent::Value(_) => return Ok(None),
    };
    fields.shift_remove("handle");
    fields.shift_remove("size");
    fields.insert(name.to_owned(), Value::Str(data));
    Ok(Some(block))
}
