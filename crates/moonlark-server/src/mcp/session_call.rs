//! Plain calls of clients that have a session, without the SDK's tasks and channels.
//!
//! They have what the SDK would give them: the same handler, the session's peer for what is
//! said outside of the request, and the same last look at the answer. Over pipes, that is
//! all. Over HTTP, what is said before an answer belongs to the stream of its request, which
//! only the SDK can address. Such a call is interrupted, and goes on where it is in the
//! SDK's own task for that request.

use std::sync::Arc;

use moonlark_core::Value;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResponse, ClientCapabilities,
    ClientJsonRpcMessage, ClientRequest, ErrorData, Extensions, GetMeta, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};

use super::McpServer;
use super::mcp_caller::{CallContinuation, caller_from_request};
use super::plain_call::PlainCall;
use super::resumable_call::{McpCallee, QuietCallEnd, ResumableCall, begin_call};
use super::tool_result::{AnswerForm, tool_response};

/// How far a call over HTTP came without the SDK.
pub(super) enum SessionCallEnd {
    Answer(ServerJsonRpcMessage),
    /// The request for the SDK, by which the call goes on.
    Interrupted(ClientJsonRpcMessage),
}

/// A call in progress, on its way to the task that goes on with it.
#[derive(Clone)]
pub(super) struct InterruptedCall(Arc<Mutex<Option<ResumableCall>>>);

impl InterruptedCall {
    fn new(call: ResumableCall) -> Self {
        Self(Arc::new(Mutex::new(Some(call))))
    }

    /// The call that this request goes on with.
    pub(super) fn take_from(extensions: &Extensions) -> Option<ResumableCall> {
        extensions.get::<Self>()?.0.lock().take()
    }
}

impl McpServer {
    /// The answer to a call over pipes, where everything may be said at any time.
    pub(crate) async fn answer_session_call(&self, call: PlainCall) -> Option<Vec<u8>> {
        let PlainCall { id, name, args, sequel, meta, .. } = call;
        let mut context = RequestContext::new(id.clone(), self.peer.get()?.clone());
        context.meta = meta;
        let said = context.meta.client_capabilities();
        let answer = self.call_named_tool(name, Ok(args), sequel, context).await;
        serde_json::to_vec(&self.session_answer(answer, said, id)).ok()
    }

    /// Run a call over HTTP for as long as nothing but the answer has to be said.
    pub(super) async fn run_session_call(
        &self,
        name: String,
        args: Value,
        context: RequestContext<RoleServer>,
    ) -> SessionCallEnd {
        let (form, said) = (AnswerForm::for_request(&context), context.meta.client_capabilities());
        let wants = self.requested_notifications(&context);
        let caller = caller_from_request(&context, &self.session);
        let context = Arc::new(context);
        let (callee, sequel) = (McpCallee::Named(name.clone()), CallContinuation::default());
        let begun = begin_call(
            &self.gateway,
            (callee, args),
            sequel,
            &context,
            caller,
            &wants,
            &self.session,
        );
        let ended = match begun.await {
            Ok(call) => match call.run_quietly(&context, &wants).await {
                QuietCallEnd::Ended(ended) => ended,
                QuietCallEnd::Interrupted(call) => {
                    return SessionCallEnd::Interrupted(resuming_request(name, &context, call));
                }
            },
            Err(problem) => Err(problem),
        };
        let answer = tool_response(ended, form);
        SessionCallEnd::Answer(self.session_answer(answer, said, context.id.clone()))
    }

    /// Go on with a call in the SDK's task.
    pub(super) async fn finish_call(
        &self,
        call: ResumableCall,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let form = AnswerForm::for_request(&context);
        let wants = self.requested_notifications(&context);
        tool_response(call.run_until_answer(&context, wants, None).await, form)
    }

    /// What the SDK makes of an answer before it hands it on to the client of a session.
    fn session_answer(
        &self,
        answer: Result<CallToolResponse, ErrorData>,
        said_in_request: Option<ClientCapabilities>,
        id: RequestId,
    ) -> ServerJsonRpcMessage {
        let knows_tasks = || match said_in_request {
            Some(said) => said.supports_tasks(),
            None => (self.peer.get().and_then(Peer::peer_info))
                .is_some_and(|info| info.capabilities.supports_tasks()),
        };
        let error = match answer {
            Err(error) => error,
            Ok(CallToolResponse::Task(_)) if !knows_tasks() => {
                let needed = ClientCapabilities::builder().enable_tasks().build();
                ErrorData::missing_required_client_capability(needed)
            }
            Ok(CallToolResponse::InputRequired(_)) => {
                let message = "InputRequiredResult requires negotiated protocol version 2026-07-28 \
                               or newer";
                ErrorData::invalid_request(message, None)
            }
            Ok(answer) => {
                let mut result = ServerResult::from(answer);
                result.strip_result_type_for_legacy_peer();
                return ServerJsonRpcMessage::response(result, id);
            }
        };
        ServerJsonRpcMessage::error(error, Some(id))
    }
}

/// The same request once more, with the call that it has begun.
fn resuming_request(
    name: String,
    context: &RequestContext<RoleServer>,
    call: ResumableCall,
) -> ClientJsonRpcMessage {
    let mut request = CallToolRequest::new(CallToolRequestParams::new(name));
    request.extensions = context.extensions.clone();
    request.extensions.insert(InterruptedCall::new(call));
    let mut request = ClientRequest::CallToolRequest(request);
    *request.get_meta_mut() = context.meta.clone();
    ClientJsonRpcMessage::request(request, context.id.clone())
}

#[cfg(test)]
pub(crate) mod tests;
