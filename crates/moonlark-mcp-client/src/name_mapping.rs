//! Names of one source among many: URIs as `mcp://docs/file:///a`, prompts as
//! `docs/summarise`, tasks as `docs:17`. A source that is alone may go without.
//!
//! Outwards is towards our callers. Only places that the protocol defines as
//! URIs are changed, never text that merely looks like one.

use moonlark_core::Value;
use moonlark_core::value::Object;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameMapping {
    pub(crate) source: String,
    pub(crate) uris: String,
    pub(crate) prompts: String,
}

impl NameMapping {
    pub(crate) fn with_prefixes(source: &str) -> Self {
        Self {
            source: source.to_owned(),
            uris: format!("mcp://{source}/"),
            prompts: format!("{source}/"),
        }
    }

    /// The source speaks for itself: nothing stands before its names.
    pub(crate) fn without_prefixes(source: &str) -> Self {
        Self { source: source.to_owned(), uris: String::new(), prompts: String::new() }
    }

    /// Whether there is anything to change.
    pub(crate) fn is_transparent(&self) -> bool {
        self.uris.is_empty() && self.prompts.is_empty()
    }

    pub(crate) fn uri_to_upstream<'a>(&self, uri: &'a str) -> &'a str {
        uri.strip_prefix(&self.uris).unwrap_or(uri)
    }

    pub(crate) fn uri_to_caller(&self, uri: &str) -> String {
        if is_app_uri(uri) { uri.to_owned() } else { format!("{}{uri}", self.uris) }
    }

    pub(crate) fn prompt_to_upstream<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(&self.prompts).unwrap_or(name)
    }

    pub(crate) fn prompt_to_caller(&self, name: &str) -> String {
        format!("{}{name}", self.prompts)
    }

    /// Which part of which source says something.
    pub(crate) fn logger_to_caller(&self, logger: Option<String>) -> Option<String> {
        match logger {
            _ if self.is_transparent() => logger,
            Some(logger) => Some(format!("{}/{logger}", self.source)),
            None => Some(self.source.clone()),
        }
    }

    pub(crate) fn task_id_to_upstream<'a>(&self, id: &'a str) -> &'a str {
        let rest = id.strip_prefix(&self.source).and_then(|rest| rest.strip_prefix(':'));
        rest.unwrap_or(id)
    }

    pub(crate) fn task_id_to_caller(&self, id: &str) -> String {
        format!("{}:{id}", self.source)
    }

    /// The parameters of a request, as the source knows the things in it.
    pub(crate) fn params_to_upstream(&self, method: &str, params: &mut Object) {
        match method {
            "prompts/get" => {
                edit_text_field(params, "name", |name| self.prompt_to_upstream(name).to_owned())
            }
            "completion/complete" => {
                let Some(Value::Object(reference)) = params.get_mut("ref") else { return };
                edit_text_field(reference, "name", |name| self.prompt_to_upstream(name).to_owned());
                edit_text_field(reference, "uri", |uri| self.uri_to_upstream(uri).to_owned());
            }
            "tasks/get" | "tasks/update" | "tasks/cancel" => {
                edit_text_field(params, "taskId", |id| self.task_id_to_upstream(id).to_owned());
            }
            _ => edit_text_field(params, "uri", |uri| self.uri_to_upstream(uri).to_owned()),
        }
    }

    /// An answer, as callers know the things in it.
    pub(crate) fn answer_to_caller(&self, answer: &mut Object) {
        edit_text_field(answer, "taskId", |id| self.task_id_to_caller(id));
        // The result of a task stands inside its state.
        if let Some(Value::Object(result)) = answer.get_mut("result") {
            self.blocks_to_caller(result);
        }
        self.blocks_to_caller(answer);
    }

    fn blocks_to_caller(&self, answer: &mut Object) {
        if self.uris.is_empty() {
            return;
        }
        for key in ["content", "contents", "messages"] {
            if let Some(Value::Array(items)) = answer.get_mut(key) {
                items.iter_mut().for_each(|item| self.block_to_caller(item));
            }
        }
    }

    /// A block of content, a resource that was read, or a message of a prompt.
    pub(crate) fn block_to_caller(&self, block: &mut Value) {
        let Value::Object(fields) = block else { return };
        self.resource_uris_to_caller(fields);
        self.app_uri_to_caller(fields);
        // Blocks hold no blocks, so this goes one level down.
        let inner = match fields.get_mut("content") {
            Some(Value::Array(items)) => items.as_mut_slice(),
            Some(one) => std::slice::from_mut(one),
            None => return,
        };
        for item in inner {
            if let Value::Object(content) = item {
                self.resource_uris_to_caller(content);
            }
        }
    }

    /// What is at a URI, or embeds what is.
    fn resource_uris_to_caller(&self, fields: &mut Object) {
        edit_text_field(fields, "uri", |uri| self.uri_to_caller(uri));
        if let Some(Value::Object(resource)) = fields.get_mut("resource") {
            edit_text_field(resource, "uri", |uri| self.uri_to_caller(uri));
        }
    }

    /// The page that shows a tool's results, as a definition names it.
    pub(crate) fn app_uri_to_caller(&self, definition: &mut Object) {
        if self.uris.is_empty() {
            return;
        }
        let Some(Value::Object(meta)) = definition.get_mut("_meta") else { return };
        edit_text_field(meta, LEGACY_APP_URI_KEY, |uri| self.uri_to_caller(uri));
        if let Some(Value::Object(ui)) = meta.get_mut("ui") {
            edit_text_field(ui, "resourceUri", |uri| self.uri_to_caller(uri));
        }
    }

    /// The data of an error may name what is missing.
    pub(crate) fn error_data_to_caller(&self, data: &mut Option<Value>) {
        if let Some(Value::Object(fields)) = data {
            edit_text_field(fields, "uri", |uri| self.uri_to_caller(uri));
        }
    }
}

/// How a definition named its page before there was `ui`.
const LEGACY_APP_URI_KEY: &str = "ui/resourceUri";

/// The address of a page that clients show. They know it by its scheme, so it stays
/// what it is.
pub(crate) fn is_app_uri(uri: &str) -> bool {
    uri.starts_with("ui://")
}

/// The page that shows a tool's results, in either of the known spellings.
pub(crate) fn tool_app_uri(definition: &Object) -> Option<&str> {
    let meta = definition.get("_meta")?;
    let nested = meta.get("ui").and_then(|ui| ui.get("resourceUri"));
    nested.or_else(|| meta.get(LEGACY_APP_URI_KEY))?.as_str()
}

fn edit_text_field(fields: &mut Object, key: &str, edit: impl Fn(&str) -> String) {
    if let Some(Value::Str(text)) = fields.get_mut(key) {
        *text = edit(text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn object(json: Json) -> Object {
        let Value::Object(object) = Value::from_json(json).unwrap() else { unreachable!() };
        object
    }

    fn shown(object: Object) -> Json {
        Value::Object(object).to_json_lossy()
    }

    #[test]
    fn uris_in_answers_are_named_after_their_source() {
        let mut answer = object(json!({
            "content": [
                {"type": "text", "text": "file:///a"},
                {"type": "resource_link", "uri": "file:///a", "name": "a"},
                {"type": "resource", "resource": {"uri": "file:///b", "text": "x"}},
            ],
            "contents": [{"uri": "file:///c", "text": "file:///c"}],
            "messages": [{"role": "user", "content": {"type": "resource_link", "uri": "u:d"}}],
            "taskId": "17",
        }));
        NameMapping::with_prefixes("docs").answer_to_caller(&mut answer);
        assert_eq!(
            shown(answer),
            json!({
                "content": [
                    {"type": "text", "text": "file:///a"},
                    {"type": "resource_link", "uri": "mcp://docs/file:///a", "name": "a"},
                    {"type": "resource", "resource": {"uri": "mcp://docs/file:///b", "text": "x"}},
                ],
                "contents": [{"uri": "mcp://docs/file:///c", "text": "file:///c"}],
                "messages": [
                    {"role": "user", "content": {"type": "resource_link", "uri": "mcp://docs/u:d"}}
                ],
                "taskId": "docs:17",
            })
        );
    }

    #[test]
    fn addresses_of_pages_stay_what_they_are() {
        let page = json!({"_meta": {"ui": {"resourceUri": "ui://x/page"}, "ui/resourceUri": "ui://x/page"}});
        let mut definition = object(page.clone());
        NameMapping::with_prefixes("docs").app_uri_to_caller(&mut definition);
        assert_eq!(tool_app_uri(&definition), Some("ui://x/page"));
        assert_eq!(shown(definition), page);
        let old = object(json!({"_meta": {"ui/resourceUri": "ui://x/old"}}));
        assert_eq!(tool_app_uri(&old), Some("ui://x/old"));
        assert_eq!(tool_app_uri(&object(json!({"_meta": {"ui": {}}}))), None);
        let answer = json!({
            "contents": [{"uri": "ui://x/page", "text": ""}],
            "content": [{"type": "resource", "resource": {"uri": "ui://x/page", "text": ""}}],
        });
        let mut read = object(answer.clone());
        NameMapping::with_prefixes("docs").answer_to_caller(&mut read);
        assert_eq!(shown(read), answer);
        assert_eq!(
            NameMapping::with_prefixes("docs").uri_to_upstream("ui://x/page"),
            "ui://x/page"
        );
    }

    #[test]
    fn requests_name_things_as_the_source_does() {
        for (method, params, expected) in [
            ("resources/read", json!({"uri": "mcp://docs/u:a"}), json!({"uri": "u:a"})),
            ("resources/read", json!({"uri": "u:a"}), json!({"uri": "u:a"})),
            ("prompts/get", json!({"name": "docs/sum"}), json!({"name": "sum"})),
            (
                "completion/complete",
                json!({"ref": {"type": "ref/prompt", "name": "docs/sum"}}),
                json!({"ref": {"type": "ref/prompt", "name": "sum"}}),
            ),
            ("tasks/get", json!({"taskId": "docs:1:2"}), json!({"taskId": "1:2"})),
        ] {
            let mut params = object(params);
            NameMapping::with_prefixes("docs").params_to_upstream(method, &mut params);
            assert_eq!(shown(params), expected, "{method}");
        }
    }

    #[test]
    fn a_transparent_source_keeps_its_names() {
        let names = NameMapping::without_prefixes("docs");
        let mut answer = object(json!({"contents": [{"uri": "u:c", "text": ""}]}));
        names.answer_to_caller(&mut answer);
        assert_eq!(shown(answer), json!({"contents": [{"uri": "u:c", "text": ""}]}));
        assert_eq!(
            (names.uri_to_upstream("u:c"), names.prompt_to_caller("p").as_str()),
            ("u:c", "p")
        );
    }
}
