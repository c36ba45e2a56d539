//! The MCP client behind a call: what it can be asked, and what it sent.

#![expect(
    deprecated,
    reason = "old clients still get log messages; the SDK marks them for removal"
)]

use std::sync::{Arc, OnceLock};

use http::request::Parts;
use moonlark_core::client::{Client, Envelope, Question};
use moonlark_core::problem::Refusal;
use moonlark_core::tool::BoxFuture;
use moonlark_core::value::Object;
use moonlark_core::visible_text::visible_line;
use moonlark_core::{Caller, Code, Problem, Result, Value};
use rmcp::RoleServer;
use rmcp::model::{ErrorCode, Extensions, InputResponses, LoggingLevel, ProtocolVersion};
use rmcp::service::RequestContext;
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, oneshot};

use crate::who::Who;

/// A question on its way to the client, and where the answer goes.
pub(crate) struct Asked {
    pub(crate) question: Question,
    pub(crate) answer: oneshot::Sender<Result<Value>>,
}

/// What a request may carry to finish an earlier one.
#[derive(Default)]
pub(crate) struct Sequel {
    pub(crate) state: Option<String>,
    pub(crate) responses: Option<InputResponses>,
}

/// What is the same for all requests of one client.
#[derive(Default)]
pub(crate) struct Session {
    /// Tells clients apart, as far as there are connections.
    pub(crate) owner: u64,
    /// Who began it.
    pub(crate) who: Who,
    /// What an old client said at the beginning.
    capabilities: OnceLock<Value>,
    info: OnceLock<Value>,
}

impl Session {
    pub(crate) fn new(owner: u64, who: Who) -> Self {
        Self { owner, who, ..Self::default() }
    }

    /// Who makes this request. Those of one session may be made by several.
    pub(crate) fn who(&self, extensions: &Extensions) -> Who {
        match extensions.get::<Parts>() {
            Some(parts) => Who::of(&parts.extensions),
            None => self.who.clone(),
        }
    }
}

pub(crate) struct McpClient {
    context: Arc<RequestContext<RoleServer>>,
    session: Arc<Session>,
    sequel: Sequel,
    /// The log messages it wants.
    level: Option<LoggingLevel>,
    questions: mpsc::UnboundedSender<Asked>,
    envelope: OnceLock<Envelope>,
}

impl McpClient {
    pub(crate) fn new(
        context: Arc<RequestContext<RoleServer>>,
        session: Arc<Session>,
        sequel: Sequel,
        level: Option<LoggingLevel>,
    ) -> (Self, mpsc::UnboundedReceiver<Asked>) {
        // Bounded by how many calls may be in flight: each waits for its answer.
        let (questions, asked) = mpsc::unbounded_channel();
        let envelope = OnceLock::new();
        (Self { context, session, sequel, level, questions, envelope }, asked)
    }

    /// What the request says itself, under this key.
    fn said(&self, key: &str) -> Option<Value> {
        self.context.meta.0.0.get(key).cloned().and_then(|it| Value::from_json(it).ok())
    }

    /// The answer that came with the request: a client may know by its name what
    /// it will be asked.
    fn given(&self, question: &Question) -> Option<Value> {
        let responses = self.sequel.responses.as_ref()?;
        let response = responses.get(question.name.as_ref()?)?;
        if !answers(&question.method, response) {
            return None;
        }
        Value::from_json(response.clone()).ok()
    }
}

/// Whether a response is of the kind that is asked for.
pub(crate) fn answers(method: &str, response: &Json) -> bool {
    match method {
        "elicitation/create" => response["action"].is_string(),
        "sampling/createMessage" => response.get("content").is_some(),
        "roots/list" => response["roots"].is_array(),
        _ => true,
    }
}

impl Client for McpClient {
    fn can(&self, question: &Question) -> bool {
        let declared = &self.envelope().capabilities;
        let mode = question.params.get("mode").and_then(Value::as_str);
        match question.method.as_str() {
            "elicitation/create" => declared.get("elicitation").is_some_and(|it| match mode {
                Some("url") => it.get("url").is_some(),
                // Said nothing more: forms, as it was before there were others.
                _ => it.get("form").is_some() || it.get("url").is_none(),
            }),
            "sampling/createMessage" => declared.get("sampling").is_some(),
            "roots/list" => declared.get("roots").is_some(),
            _ => false,
        }
    }

    /// Only modern clients know this error; others get the Problem.
    fn lacks(&self, question: &Question) -> Option<Refusal> {
        let needed = match question.method.as_str() {
            "elicitation/create" => match question.params.get("mode").and_then(Value::as_str) {
                Some("url") => json!({"elicitation": {"url": {}}}),
                _ => json!({"elicitation": {}}),
            },
            "sampling/createMessage" => json!({"sampling": {}}),
            "roots/list" => json!({"roots": {}}),
            _ => return None,
        };
        is_modern(&self.context).then(|| Refusal {
            code: ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY.0.into(),
            message: format!("{} is needed, which the client does not declare", question.method),
            data: Value::from_json(json!({ "requiredCapabilities": needed })).ok(),
        })
    }

    fn ask(&self, question: Question) -> BoxFuture<Result<Value>> {
        if let Some(answer) = self.given(&question) {
            return Box::pin(std::future::ready(Ok(answer)));
        }
        let (answer, answered) = oneshot::channel();
        let sent = self.questions.send(Asked { question, answer });
        Box::pin(async move {
            let gone = || Problem::new(Code::Cancelled, "the client went away");
            sent.map_err(|_| gone())?;
            answered.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn envelope(&self) -> &Envelope {
        self.envelope.get_or_init(|| {
            let (context, session) = (&self.context, &self.session);
            let rest = context.meta.0.0.iter().filter(|(key, _)| !key.starts_with(RESERVED));
            let first = |what: &OnceLock<Value>, say: &dyn Fn() -> Json| {
                what.get_or_init(|| value(say())).clone()
            };
            let capabilities = self.said(CAPABILITIES).unwrap_or_else(|| {
                first(&session.capabilities, &|| json!(context.client_capabilities()))
            });
            let info = self
                .said(INFO)
                .unwrap_or_else(|| first(&session.info, &|| json!(context.client_info())));
            Envelope {
                modern: is_modern(context),
                meta: rest.filter_map(|(key, _)| Some((key.clone(), self.said(key)?))).collect(),
                capabilities: match capabilities {
                    Value::Object(declared) => declared,
                    _ => Object::new(),
                },
                info: Some(info).filter(|info| *info != Value::Null),
                log_level: self.level.map(|level| value(json!(level))),
                request_state: self.sequel.state.as_deref().map(Value::from),
                input_responses: self.sequel.responses.as_ref().map(|it| value(json!(it))),
            }
        })
    }

    fn owner(&self) -> u64 {
        self.session.owner
    }
}

/// What the protocol keeps for itself in `_meta`.
const RESERVED: &str = "io.modelcontextprotocol/";
pub(crate) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const LEVEL: &str = "io.modelcontextprotocol/logLevel";
const INFO: &str = "io.modelcontextprotocol/clientInfo";

/// What a client sent was of bounded depth already.
fn value(json: Json) -> Value {
    Value::from_json(json).unwrap_or_default()
}

/// Who makes the request.
pub(crate) fn caller_of(context: &RequestContext<RoleServer>, session: &Session) -> Caller {
    let said = context.meta.0.0.get(INFO).and_then(|info| info.get("name")).and_then(Json::as_str);
    let client = said.map(str::to_owned).or_else(|| Some(context.client_info()?.name));
    let client = client.as_deref().map(visible_line);
    Caller { client, ..session.who(&context.extensions).caller("mcp") }
}

/// Whether the request stands by itself, as under 2026-07-28.
pub(crate) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    match context.meta.0.0.get(VERSION).and_then(Json::as_str) {
        // Versions are dates: their order is that of their letters.
        Some(version) => version >= ProtocolVersion::V_2026_07_28.as_str(),
        None => context.protocol_version().is_some_and(|it| it >= ProtocolVersion::V_2026_07_28),
    }
}
