//! Limits on what a client says about itself and about its requests: such values are kept
//! for a session, for a subscription or for as long as a call waits.
//!
//! A message is measured as text, before anything of it is kept in memory. Arguments of
//! tools are not measured here; `limits.request_body` and `limits.value` are about those.

use std::fmt;
use std::sync::{Arc, OnceLock};

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use moonlark_core::limits::format_size;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage,
};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::mcp::malformed_request::{MAX_EXPLAINED_BYTES, explain_unread_body};

/// Text in the parameters of `initialize`, or in the `_meta` of a request.
const MAX_CLIENT_INFO_BYTES: usize = 64 * 1024;
/// Values there: each takes more memory than its text.
const MAX_CLIENT_INFO_VALUES: usize = 500;
/// The address of a resource, wherever a client sends one.
pub(in crate::mcp) const MAX_RESOURCE_URI_BYTES: usize = 8 * 1024;
/// Ids are repeated in answers, progress tokens in every notification.
const MAX_REQUEST_ID_BYTES: usize = 1024;

/// Messages that are not longer are within all limits.
const MAX_UNMEASURED_BYTES: usize = 900;

/// Why a message is refused, and to which request that is the answer.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::mcp) struct MessageRefusal {
    id: Option<RequestId>,
    error: ErrorData,
}

impl MessageRefusal {
    /// Why the SDK could not read a message, if that is known.
    pub(super) fn for_unread_body(body: &[u8]) -> Option<MessageRefusal> {
        explain_unread_body(body).map(|(id, error)| MessageRefusal { id, error })
    }

    pub(super) fn into_response(self) -> Response {
        // Whoever has sent no request reads no more than the status.
        let status = if self.id.is_some() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
        let message = ServerJsonRpcMessage::error(self.error, self.id);
        let Ok(message) = serde_json::to_vec(&message) else { return status.into_response() };
        let json = HeaderValue::from_static("application/json");
        (status, [(CONTENT_TYPE, json)], message).into_response()
    }
}

/// What was found out about a body while it was read.
#[derive(Clone, Default)]
pub(super) struct MeasuredBody {
    pub(super) refusal: Arc<OnceLock<MessageRefusal>>,
    /// All of it, if it is short enough to be explained.
    pub(super) message: Arc<OnceLock<Bytes>>,
}

/// The body, which ends with an error if its message is refused. Its length is limited by
/// whoever reads it.
pub(super) fn measure_body(body: Body, measured: MeasuredBody) -> Body {
    let frames = body.into_data_stream().map(Some).chain(futures::stream::iter([None]));
    let measuring = frames.scan(Vec::new(), move |seen: &mut Vec<Bytes>, frame| {
        let next = match frame {
            Some(Ok(bytes)) => {
                seen.push(bytes.clone());
                Some(Ok(bytes))
            }
            Some(Err(error)) => Some(Err(error)),
            None => {
                let message = match &seen[..] {
                    [only] => only.clone(),
                    _ => seen.concat().into(),
                };
                let refused = check_message(&message).err();
                if message.len() <= MAX_EXPLAINED_BYTES {
                    let _ = measured.message.set(message);
                }
                refused.map(|refused| {
                    let _ = measured.refusal.set(refused);
                    Err(axum::Error::new("the message is over a limit"))
                })
            }
        };
        std::future::ready(next)
    });
    Body::from_stream(measuring)
}

/// Whether the message is within all limits. What is no message is for others to refuse.
pub(in crate::mcp) fn check_message(message: &[u8]) -> Result<(), MessageRefusal> {
    if message.len() <= MAX_UNMEASURED_BYTES {
        return Ok(());
    }
    let mut outline = MessageOutline::default();
    let mut json = serde_json::Deserializer::from_slice(message);
    if MeasuredValue(&mut outline, MessagePlace::Message).deserialize(&mut json).is_err() {
        return Ok(());
    }
    match outline.find_excess() {
        None => Ok(()),
        Some(error) => Err(MessageRefusal { id: outline.id, error }),
    }
}

/// The same for a message that has been read, as over stdio; otherwise the answer to it.
/// Calls of tools are not looked at: nothing of them is kept when they end.
pub(crate) fn check_read_message(
    message: &ClientJsonRpcMessage,
) -> Result<(), Box<ServerJsonRpcMessage>> {
    if let ClientJsonRpcMessage::Request(request) = message
        && matches!(request.request, ClientRequest::CallToolRequest(_))
    {
        return Ok(());
    }
    let Ok(text) = serde_json::to_vec(message) else { return Ok(()) };
    check_message(&text)
        .map_err(|refused| Box::new(ServerJsonRpcMessage::error(refused.error, refused.id)))
}

/// Whether the address of a resource is within its limit.
pub(in crate::mcp) fn check_resource_uri(uri: &str) -> Result<(), ErrorData> {
    if uri.len() <= MAX_RESOURCE_URI_BYTES { Ok(()) } else { Err(resource_uri_error(uri.len())) }
}

fn resource_uri_error(bytes: usize) -> ErrorData {
    let limit = format_size(MAX_RESOURCE_URI_BYTES);
    let message = format!("the resource URI has {bytes} bytes; the limit is {limit}");
    ErrorData::invalid_params(message, None)
}

/// What a message has of what is limited.
#[derive(Default)]
struct MessageOutline {
    method: String,
    id: Option<RequestId>,
    id_size: JsonSize,
    params: JsonSize,
    meta: JsonSize,
    progress_token: JsonSize,
    longest_uri_bytes: usize,
}

#[derive(Default, Clone, Copy)]
struct JsonSize {
    /// Of texts and names of fields.
    text_bytes: usize,
    values: usize,
}

impl MessageOutline {
    fn find_excess(&self) -> Option<ErrorData> {
        if self.id_size.is_over_id_limit() {
            let limit = format_size(MAX_REQUEST_ID_BYTES);
            let message = format!("the id of the request is too long; the limit is {limit}");
            return Some(ErrorData::new(ErrorCode::INVALID_REQUEST, message, None));
        }
        let message = if self.method == "initialize" && self.params.is_over_info_limit() {
            self.params.describe_excess("the parameters of initialize are")
        } else if self.meta.is_over_info_limit() {
            self.meta.describe_excess("the _meta of the request is")
        } else if self.progress_token.is_over_id_limit() {
            let limit = format_size(MAX_REQUEST_ID_BYTES);
            format!("the progressToken is too long; the limit is {limit}")
        } else if self.longest_uri_bytes > MAX_RESOURCE_URI_BYTES {
            return Some(resource_uri_error(self.longest_uri_bytes));
        } else {
            return None;
        };
        Some(ErrorData::invalid_params(message, None))
    }

    /// Count text, and values with it, in all that this place is a part of.
    fn count(&mut self, place: MessagePlace, text_bytes: usize, values: usize) {
        let own = match place {
            MessagePlace::Id => Some(&mut self.id_size),
            MessagePlace::ProgressToken => Some(&mut self.progress_token),
            _ => None,
        };
        let meta = place.is_in_meta().then_some(&mut self.meta);
        let params = place.is_in_params().then_some(&mut self.params);
        for size in [own, meta, params].into_iter().flatten() {
            size.text_bytes += text_bytes;
            size.values += values;
        }
    }

    fn note_text(&mut self, place: MessagePlace, text: &str) {
        self.count(place, text.len(), 1);
        match place {
            MessagePlace::Method => text.clone_into(&mut self.method),
            MessagePlace::Id if text.len() <= MAX_REQUEST_ID_BYTES => {
                self.id = Some(RequestId::String(text.into()));
            }
            MessagePlace::ResourceUri => {
                self.longest_uri_bytes = self.longest_uri_bytes.max(text.len());
            }
            _ => {}
        }
    }
}

impl JsonSize {
    fn is_over_info_limit(self) -> bool {
        self.text_bytes > MAX_CLIENT_INFO_BYTES || self.values > MAX_CLIENT_INFO_VALUES
    }

    fn is_over_id_limit(self) -> bool {
        self.text_bytes > MAX_REQUEST_ID_BYTES
    }

    fn describe_excess(self, what: &str) -> String {
        let limit = format_size(MAX_CLIENT_INFO_BYTES);
        format!(
            "{what} too large: {} bytes of text and {} values; the limits are {limit} and \
             {MAX_CLIENT_INFO_VALUES} values",
            self.text_bytes, self.values
        )
    }
}

/// Where in a message a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MessagePlace {
    Message,
    Id,
    Method,
    Params,
    /// `params.ref`, of a completion.
    Reference,
    /// `params.notifications`, of a subscription.
    Notifications,
    ResourceUri,
    Meta,
    ProgressToken,
    InMeta,
    InParams,
    /// Not limited here.
    Elsewhere,
}

impl MessagePlace {
    fn is_in_meta(self) -> bool {
        matches!(self, MessagePlace::Meta | MessagePlace::ProgressToken | MessagePlace::InMeta)
    }

    fn is_in_params(self) -> bool {
        self.is_in_meta()
            || matches!(
                self,
                MessagePlace::Params
                    | MessagePlace::Reference
                    | MessagePlace::Notifications
                    | MessagePlace::ResourceUri
                    | MessagePlace::InParams
            )
    }

    /// The place of a field of the value that is here.
    fn field(self, name: &str) -> MessagePlace {
        match (self, name) {
            (MessagePlace::Message, "id") => MessagePlace::Id,
            (MessagePlace::Message, "method") => MessagePlace::Method,
            (MessagePlace::Message, "params") => MessagePlace::Params,
            (MessagePlace::Message, _) => MessagePlace::Elsewhere,
            (MessagePlace::Params, "_meta") => MessagePlace::Meta,
            (MessagePlace::Params, "ref") => MessagePlace::Reference,
            (MessagePlace::Params, "notifications") => MessagePlace::Notifications,
            (MessagePlace::Params | MessagePlace::Reference, "uri") => MessagePlace::ResourceUri,
            (MessagePlace::Notifications, "resourceSubscriptions") => MessagePlace::ResourceUri,
            (MessagePlace::Meta, "progressToken") => MessagePlace::ProgressToken,
            (MessagePlace::Params | MessagePlace::Reference | MessagePlace::Notifications, _) => {
                MessagePlace::InParams
            }
            (MessagePlace::Meta, _) => MessagePlace::InMeta,
            (inside, _) => inside,
        }
    }
}

/// Reads a value without keeping it.
struct MeasuredValue<'a>(&'a mut MessageOutline, MessagePlace);

impl<'de> DeserializeSeed<'de> for MeasuredValue<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.1 == MessagePlace::Elsewhere {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(drop);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MeasuredValue<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.0.count(self.1, 0, 1);
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<(), E> {
        if self.1 == MessagePlace::Id {
            self.0.id = Some(RequestId::Number(number));
        }
        self.visit_unit()
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => self.visit_unit(),
        }
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.0.note_text(self.1, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let MeasuredValue(outline, place) = self;
        outline.count(place, 0, 1);
        while items.next_element_seed(MeasuredValue(outline, place))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let MeasuredValue(outline, place) = self;
        outline.count(place, 0, 1);
        while let Some(inside) = fields.next_key_seed(MeasuredName(outline, place))? {
            fields.next_value_seed(MeasuredValue(outline, inside))?;
        }
        Ok(())
    }
}

/// Reads the name of a field without keeping it.
struct MeasuredName<'a>(&'a mut MessageOutline, MessagePlace);

impl<'de> DeserializeSeed<'de> for MeasuredName<'_> {
    type Value = MessagePlace;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<MessagePlace, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for MeasuredName<'_> {
    type Value = MessagePlace;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<MessagePlace, E> {
        // A part of the value that it is in.
        self.0.count(self.1, name.len(), 0);
        Ok(self.1.field(name))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn check(method: &str, params: Json) -> Result<(), String> {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        check_message(message.to_string().as_bytes()).map_err(|refused| {
            assert_eq!(refused.id, Some(RequestId::Number(7)));
            refused.error.message.into_owned()
        })
    }

    #[test]
    fn what_a_client_says_about_itself_is_limited_in_text_and_in_values() {
        let initialize = |experimental: Json, name: &str| {
            let client = json!({"name": name, "version": "1", "icons": []});
            let capabilities = json!({"experimental": {"x": {"y": experimental}}});
            let params = json!({"capabilities": capabilities, "clientInfo": client});
            check("initialize", params)
        };
        assert_eq!(initialize(json!(["a".repeat(60_000)]), "ü"), Ok(()));
        assert_eq!(initialize(json!(vec![0; 480]), "ü"), Ok(()));
        let values = initialize(json!(vec![0; 5000]), "ü").unwrap_err();
        assert_eq!(
            values,
            "the parameters of initialize are too large: 55 bytes of text and 5009 values; \
             the limits are 64 KB and 500 values"
        );
        let text = initialize(json!(null), &"ü".repeat(40_000)).unwrap_err();
        assert!(text.contains("80053 bytes of text"), "{text}");
        let names: serde_json::Map<String, Json> =
            (0..100).map(|n| (format!("{n}{}", "x".repeat(1000)), Json::Null)).collect();
        assert!(initialize(names.into(), "ü").is_err());

        let call = |meta: Json| {
            let arguments = json!({"many": vec![0; 5000], "uri": "x".repeat(100_000)});
            check("tools/call", json!({"name": "x", "arguments": arguments, "_meta": meta}))
        };
        let client = "io.modelcontextprotocol/clientInfo";
        assert_eq!(call(json!({client: {"name": "x"}, "progressToken": 1})), Ok(()));
        assert!(call(json!({client: {"name": "x".repeat(70_000)}})).is_err());
        assert!(call(json!({client: vec![0; 600]})).is_err());
        assert_eq!(
            call(json!({"progressToken": "x".repeat(2000)})),
            Err("the progressToken is too long; the limit is 1 KB".to_owned())
        );
    }

    #[test]
    fn resource_uris_are_limited_wherever_a_client_sends_them() {
        let long = "x".repeat(9000);
        let refused = Err("the resource URI has 9000 bytes; the limit is 8 KB".to_owned());
        for (method, params) in [
            ("resources/subscribe", json!({"uri": long})),
            ("resources/unsubscribe", json!({"uri": long})),
            ("resources/read", json!({"_meta": {}, "uri": long})),
            ("completion/complete", json!({"ref": {"type": "ref/resource", "uri": long}})),
            (
                "subscriptions/listen",
                json!({"notifications": {"resourceSubscriptions": ["a:b", long]}}),
            ),
        ] {
            assert_eq!(check(method, params), refused, "{method}");
        }
        assert_eq!(check("resources/read", json!({"uri": "x".repeat(8000)})), Ok(()));
    }

    #[test]
    fn ids_are_limited_and_what_is_sent_twice_is_measured_twice() {
        let message = json!({"jsonrpc": "2.0", "id": "x".repeat(2000), "method": "ping"});
        let refused = check_message(message.to_string().as_bytes()).unwrap_err();
        assert_eq!(refused.id, None);
        assert_eq!(refused.error.message, "the id of the request is too long; the limit is 1 KB");
        let zeros = vec!["0"; 5000].join(",");
        let twice =
            format!(r#"{{"params":[{zeros}],"method":"initialize","id":"a","params":{{}}}}"#);
        let refused = check_message(twice.as_bytes()).unwrap_err();
        assert_eq!(refused.id, Some(RequestId::String("a".into())));
        // The SDK says what is wrong with these.
        for other in [format!("[{zeros}]"), zeros, "x".repeat(2000)] {
            assert_eq!(check_message(other.as_bytes()), Ok(()));
        }
    }
}
