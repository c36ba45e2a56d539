//! The MCP client behind a call: what it can be asked, and what it sent.

#![expect(
    deprecated,
    reason = "old clients still get log messages; the SDK marks them for removal"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use http::request::Parts;
use moonlark_core::problem::ProtocolError;
use moonlark_core::tool::BoxFuture;
use moonlark_core::value::Object;
use moonlark_core::visible_text::visible_line;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::Caller;
use moonlark_gateway::call_client::{CallClient, ClientQuestion, RequestEnvelope};
use rmcp::RoleServer;
use rmcp::model::{ErrorCode, Extensions, InputResponses, LoggingLevel, ProtocolVersion};
use rmcp::service::RequestContext;
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, oneshot};

use crate::principal::Principal;

/// A question on its way to the client, and where the answer goes.
pub(crate) struct PendingClientQuestion {
    pub(crate) question: ClientQuestion,
    pub(crate) answer: oneshot::Sender<Result<Value>>,
}

/// What a request may carry to finish an earlier one.
#[derive(Default)]
pub(crate) struct CallContinuation {
    pub(crate) state: Option<String>,
    pub(crate) responses: Option<InputResponses>,
}

/// What is the same for all requests of one client.
#[derive(Default)]
pub(crate) struct McpClientSession {
    /// Tells clients apart, as far as there are connections.
    pub(crate) owner: u64,
    /// Who began it.
    pub(crate) who: Principal,
    /// What an old client said at the beginning.
    capabilities: OnceLock<Value>,
    info: OnceLock<Value>,
}

impl McpClientSession {
    /// With a number that no other client has.
    pub(crate) fn new(who: Principal) -> Self {
        static NEXT_CLIENT_NUMBER: AtomicU64 = AtomicU64::new(1);
        let owner = NEXT_CLIENT_NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { owner, who, ..Self::default() }
    }

    /// Who makes this request. Those of one session may be made by several.
    pub(crate) fn principal_of(&self, extensions: &Extensions) -> Principal {
        match extensions.get::<Parts>() {
            Some(parts) => Principal::from_extensions(&parts.extensions),
            None => self.who.clone(),
        }
    }
}

pub(crate) struct McpCaller {
    context: Arc<RequestContext<RoleServer>>,
    session: Arc<McpClientSession>,
    sequel: CallContinuation,
    /// The log messages it wants.
    level: Option<LoggingLevel>,
    questions: mpsc::UnboundedSender<PendingClientQuestion>,
    envelope: OnceLock<RequestEnvelope>,
}

impl McpCaller {
    pub(crate) fn new(
        context: Arc<RequestContext<RoleServer>>,
        session: Arc<McpClientSession>,
        sequel: CallContinuation,
        level: Option<LoggingLevel>,
    ) -> (Self, mpsc::UnboundedReceiver<PendingClientQuestion>) {
        // Bounded by how many calls may be in flight: each waits for its answer.
        let (questions, asked) = mpsc::unbounded_channel();
        let envelope = OnceLock::new();
        (Self { context, session, sequel, level, questions, envelope }, asked)
    }

    /// What the request says itself, under this key.
    fn request_meta(&self, key: &str) -> Option<Value> {
        self.context.meta.0.0.get(key).cloned().and_then(|it| Value::from_json(it).ok())
    }

    /// The answer that came with the request: a client may know by its name what
    /// it will be asked.
    fn supplied_answer(&self, question: &ClientQuestion) -> Option<Value> {
        let responses = self.sequel.responses.as_ref()?;
        let response = responses.get(question.name.as_ref()?)?;
        if !is_answer_to(&question.method, response) {
            return None;
        }
        Value::from_json(response.clone()).ok()
    }
}

/// Whether a response is of the kind that is asked for.
pub(crate) fn is_answer_to(method: &str, response: &Json) -> bool {
    match method {
        "elicitation/create" => response["action"].is_string(),
        "sampling/createMessage" => response.get("content").is_some(),
        "roots/list" => response["roots"].is_array(),
        _ => true,
    }
}

impl CallClient for McpCaller {
    fn can_answer(&self, question: &ClientQuestion) -> bool {
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
    fn missing_capability(&self, question: &ClientQuestion) -> Option<ProtocolError> {
        let needed = match question.method.as_str() {
            "elicitation/create" => match question.params.get("mode").and_then(Value::as_str) {
                Some("url") => json!({"elicitation": {"url": {}}}),
                _ => json!({"elicitation": {}}),
            },
            "sampling/createMessage" => json!({"sampling": {}}),
            "roots/list" => json!({"roots": {}}),
            _ => return None,
        };
        is_modern(&self.context).then(|| ProtocolError {
            code: ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY.0.into(),
            message: format!("{} is needed, which the client does not declare", question.method),
            data: Value::from_json(json!({ "requiredCapabilities": needed })).ok(),
        })
    }

    fn ask_question(&self, question: ClientQuestion) -> BoxFuture<Result<Value>> {
        if let Some(answer) = self.supplied_answer(&question) {
            return Box::pin(std::future::ready(Ok(answer)));
        }
        let (answer, answered) = oneshot::channel();
        let sent = self.questions.send(PendingClientQuestion { question, answer });
        Box::pin(async move {
            let gone = || Problem::new(ProblemCode::Cancelled, "the client went away");
            sent.map_err(|_| gone())?;
            answered.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn envelope(&self) -> &RequestEnvelope {
        self.envelope.get_or_init(|| {
            let (context, session) = (&self.context, &self.session);
            let rest =
                context.meta.0.0.iter().filter(|(key, _)| !key.starts_with(RESERVED_META_PREFIX));
            let first = |what: &OnceLock<Value>, say: &dyn Fn() -> Json| {
                what.get_or_init(|| value_from_json(say())).clone()
            };
            let capabilities = self.request_meta(CAPABILITIES_META_KEY).unwrap_or_else(|| {
                first(&session.capabilities, &|| json!(context.client_capabilities()))
            });
            let info = self
                .request_meta(CLIENT_INFO_META_KEY)
                .unwrap_or_else(|| first(&session.info, &|| json!(context.client_info())));
            RequestEnvelope {
                modern: is_modern(context),
                meta: rest
                    .filter_map(|(key, _)| Some((key.clone(), self.request_meta(key)?)))
                    .collect(),
                capabilities: match capabilities {
                    Value::Object(declared) => declared,
                    _ => Object::new(),
                },
                info: Some(info).filter(|info| *info != Value::Null),
                log_level: self.level.map(|level| value_from_json(json!(level))),
                request_state: self.sequel.state.as_deref().map(Value::from),
                input_responses: self
                    .sequel
                    .responses
                    .as_ref()
                    .map(|it| value_from_json(json!(it))),
            }
        })
    }

    fn owner_id(&self) -> u64 {
        self.session.owner
    }
}

/// What the protocol keeps for itself in `_meta`.
const RESERVED_META_PREFIX: &str = "io.modelcontextprotocol/";
pub(crate) const CAPABILITIES_META_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const PROTOCOL_VERSION_META_KEY: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const LOG_LEVEL_META_KEY: &str = "io.modelcontextprotocol/logLevel";
const CLIENT_INFO_META_KEY: &str = "io.modelcontextprotocol/clientInfo";

/// What a client sent was of bounded depth already.
fn value_from_json(json: Json) -> Value {
    Value::from_json(json).unwrap_or_default()
}

/// Who makes the request.
pub(crate) fn caller_from_request(
    context: &RequestContext<RoleServer>,
    session: &McpClientSession,
) -> Caller {
    let said = context
        .meta
        .0
        .0
        .get(CLIENT_INFO_META_KEY)
        .and_then(|info| info.get("name"))
        .and_then(Json::as_str);
    let client = said.map(str::to_owned).or_else(|| Some(context.client_info()?.name));
    let client = client.as_deref().map(visible_line);
    Caller { client, ..session.principal_of(&context.extensions).to_caller("mcp") }
}

/// Whether the request stands by itself, as under 2026-07-28.
pub(crate) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    match context.meta.0.0.get(PROTOCOL_VERSION_META_KEY).and_then(Json::as_str) {
        // Versions are dates: their order is that of their letters.
        Some(version) => version >= ProtocolVersion::V_2026_07_28.as_str(),
        None => context.protocol_version().is_some_and(|it| it >= ProtocolVersion::V_2026_07_28),
    }
}
