//! The short way of the commonest request: a modern client calls a tool and
//! wants to hear nothing but the answer.
//!
//! The SDK serves every request by tasks and channels of its own, for what may
//! be said before the answer. Where nothing can be, its handler runs right here,
//! over HTTP in the task of the connection, and ends with it. Whatever is unusual
//! about a request, or wrong, is the SDK's to answer: it gets the request as it
//! came. Over pipes, `stdio/stdio_fast_path.rs` is in front of the SDK. Calls of clients
//! that have a session have a short way of their own, in `session_call.rs`.

use std::convert::Infallible;
use std::sync::OnceLock;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use rmcp::model::{
    CallToolResponse, ClientCapabilities, ErrorCode, ErrorData, ProtocolVersion,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::{RequestContext, RxJsonRpcMessage, TxJsonRpcMessage, serve_directly};
use rmcp::transport::Transport;
use rmcp::{Peer, RoleServer};

use super::McpServer;
use super::plain_call::{CALL_TOOL_METHOD, PlainCall, PlainCallClient, parse_plain_call};
use super::plain_request::{
    MCP_SESSION_HEADER, PROTOCOL_VERSION_HEADER, is_plain_post, single_header,
};
use crate::principal::Principal;
use crate::request_trace;

pub(super) const MCP_METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
const MCP_NAME_HEADER: HeaderName = HeaderName::from_static("mcp-name");

pub(crate) struct McpFastPath {
    mcp: McpServer,
    /// Largest request body, in bytes.
    most: usize,
    nobody: OnceLock<Peer<RoleServer>>,
}

impl McpFastPath {
    pub(crate) fn new(mcp: McpServer, most: usize) -> Self {
        Self { mcp, most, nobody: OnceLock::new() }
    }

    /// Answer the request, or give it back.
    pub(crate) async fn try_serve(&self, request: Request) -> Result<Response, Request> {
        let Some(name) = self.plain_tool_name(&request) else { return Err(request) };
        let who = Principal::from_extensions(request.extensions());
        let (parts, body) = request.into_parts();
        let Ok(body) = to_bytes(body, self.most).await else {
            // It broke off: nobody is there to read this.
            return Ok(StatusCode::BAD_REQUEST.into_response());
        };
        let Some((mut call, knows_tasks)) = parse_modern_call(&body, &name) else {
            return Err(Request::from_parts(parts, Body::from(body)));
        };
        request_trace::copy_trace_to_meta(&mut call.meta, &parts.headers);
        let mcp = self.mcp.for_request(who);
        let (status, message) = self.answer_call(&mcp, call, knows_tasks).await;
        let Some(message) = message else { return Ok(status.into_response()) };
        let mut response = Response::new(Body::from(message));
        *response.status_mut() = status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        Ok(response)
    }

    /// The tool that is called, by the headers alone.
    fn plain_tool_name(&self, request: &Request) -> Option<String> {
        let headers = request.headers();
        let modern = ProtocolVersion::V_2026_07_28.as_str();
        let plain = single_header(headers, &PROTOCOL_VERSION_HEADER)? == modern
            && single_header(headers, &MCP_METHOD_HEADER)? == CALL_TOOL_METHOD
            && !headers.contains_key(MCP_SESSION_HEADER)
            && is_plain_post(request, self.most);
        let name = single_header(headers, &MCP_NAME_HEADER).filter(|_| plain)?;
        // Arguments that travel in headers too are compared with them.
        let whose = Principal::from_extensions(request.extensions()).to_caller("mcp");
        self.mcp
            .listing_for_caller(&whose)
            .tool_with_headers(name)
            .is_none()
            .then(|| name.to_owned())
    }

    /// The status, for HTTP, and the message.
    pub(crate) async fn answer_call(
        &self,
        mcp: &McpServer,
        call: PlainCall,
        knows_tasks: bool,
    ) -> (StatusCode, Option<Vec<u8>>) {
        let PlainCall { id, name, args, sequel, meta, .. } = call;
        let mut context = RequestContext::new(id.clone(), self.silent_peer().clone());
        context.meta = meta;
        let answer = mcp.call_named_tool(name, Ok(args), sequel, context).await;
        // The SDK's way to this has room for every other request too.
        let (status, answer) = match check_answer(answer, knows_tasks) {
            Ok(result) => (StatusCode::OK, ServerJsonRpcMessage::response(result, id)),
            Err(error) => (error_status(error.code), ServerJsonRpcMessage::error(error, Some(id))),
        };
        match serde_json::to_vec(&answer) {
            Ok(message) => (status, Some(message)),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, None),
        }
    }

    /// The SDK's handler needs somebody to talk to. Requests that get here want
    /// to be told nothing.
    fn silent_peer(&self) -> &Peer<RoleServer> {
        self.nobody
            .get_or_init(|| serve_directly(self.mcp.clone(), ClosedTransport, None).peer().clone())
    }
}

/// The call of this tool in a message of a modern client, and whether the client knows tasks.
fn parse_modern_call(message: &[u8], name: &str) -> Option<(PlainCall, bool)> {
    let call = parse_plain_call(message).filter(|call| call.name == name)?;
    match call.client {
        PlainCallClient::Modern { knows_tasks } => Some((call, knows_tasks)),
        PlainCallClient::Session => None,
    }
}

/// What the SDK sees to before it hands an answer on to a modern client.
fn check_answer(
    answer: Result<CallToolResponse, ErrorData>,
    knows_tasks: bool,
) -> Result<ServerResult, ErrorData> {
    match answer {
        // Who did not say that it knows tasks could make nothing of one.
        Ok(CallToolResponse::Task(_)) if !knows_tasks => {
            let needed = ClientCapabilities::builder().enable_tasks().build();
            Err(ErrorData::missing_required_client_capability(needed))
        }
        Ok(answer) => Ok(ServerResult::from(answer)),
        Err(mut error) => {
            if error.code == ErrorCode::RESOURCE_NOT_FOUND {
                error.code = ErrorCode::INVALID_PARAMS;
            }
            Err(error)
        }
    }
}

/// As the SDK has it for modern clients.
fn error_status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
        | ErrorCode::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
        ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        _ => StatusCode::OK,
    }
}

/// The other end of a connection that was closed before anything was said.
struct ClosedTransport;

impl Transport<RoleServer> for ClosedTransport {
    type Error = Infallible;

    fn send(
        &mut self,
        _item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        std::future::ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        None
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use moonlark_core::schema::Schema;
    use moonlark_core::tool::{Source, SourceKind};
    use moonlark_core::{Catalog, Problem, Tool, Value};
    use moonlark_gateway::Gateway;
    use moonlark_gateway::tool_body::ToolBody;
    use serde_json::{Value as Json, json};
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt;

    use super::*;
    use crate::router::{HttpApp, HttpServerOptions, build_http_app};

    fn gateway() -> Gateway {
        let source = Arc::new(Source { kind: SourceKind::Script, name: "a".to_owned() });
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let Json::Object(schema) = schema else { unreachable!("an object") };
        let (input, _) = Schema::from_foreign(schema);
        let body = ToolBody::from_fn(|_, args| match args.get("n") {
            Some(Value::Int(0)) => Err(Problem::tool_error("not with zero")),
            _ => Ok(args),
        });
        let tool = Arc::new(Tool::new("same", source, input, body));
        Gateway::new(Catalog::new(Arc::default(), vec![tool], &[], vec![]), 10)
    }

    fn served() -> HttpApp {
        let options = HttpServerOptions {
            allowed_hosts: vec![],
            allowed_origins: vec![],
            request_body: 500,
            callers: crate::router::CallerIdentification::Anybody,
            sessions: crate::SessionVault::in_memory(),
        };
        build_http_app(gateway(), options, CancellationToken::new())
    }

    fn message(name: &str, arguments: Json) -> Json {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": name, "arguments": arguments, "_meta": meta});
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
    }

    fn request(name: &str, body: Body) -> Request {
        Request::post("/mcp")
            .header("host", "localhost")
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", name)
            .body(body)
            .unwrap()
    }

    fn is_short(request: &Request, message: &Json) -> bool {
        let name = McpFastPath::new(McpServer::new(gateway(), Principal::default()), 500)
            .plain_tool_name(request);
        name.is_some_and(|name| parse_modern_call(message.to_string().as_bytes(), &name).is_some())
    }

    async fn answered(request: Request) -> (StatusCode, Option<String>, String) {
        let response = served().oneshot(request).await.unwrap();
        let kind = response.headers().get(CONTENT_TYPE);
        let kind = kind.map(|kind| kind.to_str().unwrap().to_owned());
        let status = response.status();
        let body = to_bytes(response.into_body(), 100_000).await.unwrap();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    /// A body of unknown length is never taken the short way.
    fn of_unknown_length(text: String) -> Body {
        Body::from_stream(futures::stream::iter([Ok::<_, Infallible>(text)]))
    }

    #[tokio::test]
    async fn the_short_way_answers_as_the_sdk_does() {
        let without = |key: &str| {
            let mut changed = message("same", json!({}));
            changed["params"]["_meta"].as_object_mut().unwrap().remove(key);
            changed
        };
        let with = |place: &str, value: Json| {
            let mut changed = message("same", json!({}));
            *changed.pointer_mut(place).unwrap() = value;
            changed
        };
        let version = "/params/_meta/io.modelcontextprotocol~1protocolVersion";
        for (short, name, message) in [
            (true, "same", message("same", json!({"n": 1, "x": [1.5, "ü", null]}))),
            (false, "same", message("same", json!({"n": 12345678901234567890_u64}))),
            (true, "same", message("same", json!({"n": 0}))),
            (true, "same", message("same", json!({"n": "one"}))),
            (true, "same", with("/params/arguments", Json::Null)),
            (true, "same", with("/id", json!("seven"))),
            (true, "none", message("none", json!({}))),
            (false, "other", message("same", json!({}))),
            (false, "same", with("/method", json!("tools/list"))),
            (false, "same", with("/jsonrpc", json!("1.0"))),
            (false, "same", with("/id", json!({}))),
            (false, "same", with("/params/arguments", json!([]))),
            (false, "same", with(version, json!("2030-01-01"))),
            (false, "same", without("io.modelcontextprotocol/protocolVersion")),
            (false, "same", without("io.modelcontextprotocol/clientCapabilities")),
            (false, "same", json!([])),
            (false, "same", message("same", json!({"n": "long".repeat(200)}))),
        ] {
            let text = message.to_string();
            let straight = request(name, Body::from(text.clone()));
            assert_eq!(is_short(&straight, &message), short, "{text}");
            let by_sdk = answered(request(name, of_unknown_length(text.clone()))).await;
            assert_eq!(answered(straight).await, by_sdk, "{text}");
        }
    }

    #[test]
    fn who_wants_to_hear_more_than_the_answer_goes_the_long_way() {
        for (key, value) in
            [("progressToken", json!(1)), ("io.modelcontextprotocol/logLevel", json!("info"))]
        {
            let mut message = message("same", json!({}));
            message["params"]["_meta"][key] = value;
            assert!(
                !is_short(&request("same", Body::from(message.to_string())), &message),
                "{key}"
            );
        }
    }

    #[test]
    fn only_plain_headers_go_the_short_way() {
        let message = message("same", json!({}));
        let plain = || request("same", Body::from(message.to_string()));
        assert!(is_short(&plain(), &message));
        for (name, value) in [
            ("mcp-session-id", "1"),
            ("mcp-name", "same"),
            ("mcp-method", "tools/list"),
            ("accept", "*/*"),
        ] {
            let mut request = plain();
            request.headers_mut().append(name, value.parse().unwrap());
            assert!(!is_short(&request, &message), "{name}");
        }
    }
}
