//! Which kinds of content a client knows, by the version it speaks.
//!
//! Fields that a version does not have are passed over by its clients. A kind of content
//! that it does not have makes them refuse the whole answer, so it is sent as one that
//! says the same.

use moonlark_core::Value;
use moonlark_core::value::Object;
use rmcp::RoleServer;
use rmcp::model::ProtocolVersion;
use rmcp::service::RequestContext;

use super::mcp_caller::is_modern;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentKinds {
    knows_resource_links: bool,
    knows_audio: bool,
}

impl ContentKinds {
    pub(crate) fn known_to_client(context: &RequestContext<RoleServer>) -> ContentKinds {
        if is_modern(context) {
            return ContentKinds::ALL_KINDS;
        }
        let version = context.protocol_version();
        let since = |first| version.as_ref().is_none_or(|version| *version >= first);
        ContentKinds {
            knows_resource_links: since(ProtocolVersion::V_2025_06_18),
            knows_audio: since(ProtocolVersion::V_2025_03_26),
        }
    }

    /// Of a client that knows everything.
    const ALL_KINDS: ContentKinds = ContentKinds { knows_resource_links: true, knows_audio: true };

    /// The blocks as this client knows them.
    pub(crate) fn adapt_blocks(self, blocks: Vec<Value>) -> Vec<Value> {
        if self == ContentKinds::ALL_KINDS {
            return blocks;
        }
        blocks.into_iter().map(|block| self.adapt_block(block)).collect()
    }

    fn adapt_block(self, block: Value) -> Value {
        let Value::Object(fields) = &block else { return block };
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        match text("type") {
            Some("resource_link") if !self.knows_resource_links => {
                let uri = text("uri").unwrap_or_default();
                let name = text("title").or(text("name")).unwrap_or("resource");
                let described = text("description").map(|it| format!("\n{it}")).unwrap_or_default();
                text_block(format!("{name}: {uri}{described}"))
            }
            Some("audio") if !self.knows_audio => {
                let kind = text("mimeType").unwrap_or("audio/*").to_owned();
                let Some(data) = fields.get("data").cloned() else { return block };
                let resource = Value::from_fields([
                    ("uri", "moonlark://content/audio".into()),
                    ("mimeType", kind.into()),
                    ("blob", data),
                ]);
                Value::from_fields([("type", "resource".into()), ("resource", resource)])
            }
            _ => block,
        }
    }

    /// The same for the messages of a prompt.
    pub(crate) fn adapt_messages(self, result: &mut Object) {
        let Some(Value::Array(messages)) = result.get_mut("messages") else { return };
        for message in messages {
            if let Value::Object(message) = message
                && let Some(content) = message.get_mut("content")
            {
                *content = self.adapt_block(std::mem::take(content));
            }
        }
    }
}

fn text_block(text: String) -> Value {
    Value::from_fields([("type", "text".into()), ("text", text.into())])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_that_a_version_does_not_have_is_sent_as_what_it_has() {
        let link = json!({"type": "resource_link", "uri": "file:///b.txt", "name": "b", "description": "A file"});
        let audio = json!({"type": "audio", "data": "bm8=", "mimeType": "audio/wav"});
        let image = json!({"type": "image", "data": "bm8=", "mimeType": "image/png"});
        let as_text = json!({"type": "text", "text": "b: file:///b.txt\nA file"});
        let as_resource = json!({"type": "resource", "resource": {
            "uri": "moonlark://content/audio", "mimeType": "audio/wav", "blob": "bm8=",
        }});
        let kinds =
            |knows_resource_links, knows_audio| ContentKinds { knows_resource_links, knows_audio };
        for (kinds, block, expected) in [
            (kinds(false, false), &link, &as_text),
            (kinds(false, false), &audio, &as_resource),
            (kinds(false, false), &image, &image),
            (kinds(false, true), &audio, &audio),
            (kinds(true, true), &link, &link),
            (ContentKinds::ALL_KINDS, &link, &link),
        ] {
            let adapted = kinds.adapt_block(Value::from_json(block.clone()).unwrap());
            assert_eq!(&adapted.to_json_lossy(), expected);
        }
        let prompt = json!({"messages": [{"role": "user", "content": link}]});
        let Value::Object(mut prompt) = Value::from_json(prompt).unwrap() else { unreachable!() };
        kinds(false, false).adapt_messages(&mut prompt);
        let expected = json!({"messages": [{"role": "user", "content": as_text}]});
        assert_eq!(Value::Object(prompt).to_json_lossy(), expected);
    }
}
