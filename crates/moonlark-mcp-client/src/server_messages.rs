//! Notifications and requests of a server, routed to the call that they belong to.

use std::sync::Weak;

use futures::future::BoxFuture;
use moonlark_core::secret::Secrets;
use moonlark_core::source_resources::SourceEvent;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Value};
use moonlark_gateway::Call;
use moonlark_gateway::call_client::ClientQuestion;

use crate::connection::{ConnectionInbox, RequestListener};
use crate::json_rpc::RpcError;
use crate::listing::{PROMPTS_LIST_BIT, RESOURCES_LIST_BIT, TOOLS_LIST_BIT};
use crate::log_relay;
use crate::upstream_state::UpstreamState;

/// Progress, messages and questions that belong to one call.
pub(crate) struct CallListener(pub(crate) Call);

impl RequestListener for CallListener {
    fn on_notification(&self, method: &str, params: Object) {
        match method {
            "notifications/progress" => {
                let number = |key: &str| params.get(key).and_then(as_f64);
                let Some(done) = number("progress") else { return };
                let message = params.get("message").and_then(Value::as_str);
                self.0.report_progress(done, number("total"), message);
            }
            "notifications/message" => {
                let level = params.get("level").and_then(Value::as_str).unwrap_or("info");
                let logger = params.get("logger").and_then(Value::as_str);
                let data = params.get("data").cloned().unwrap_or_default();
                // Past the limit on log output the rest is not worth the call.
                let _ = self.0.relay_log(level, logger, data);
            }
            _ => {}
        }
    }

    fn on_request(
        &self,
        method: &str,
        mut params: Object,
    ) -> BoxFuture<'_, Result<Object, RpcError>> {
        // The token is one of ours, and means nothing to the caller.
        if let Some(Value::Object(meta)) = params.get_mut("_meta") {
            meta.swap_remove("progressToken");
            if meta.is_empty() {
                params.swap_remove("_meta");
            }
        }
        let question = ClientQuestion { method: method.to_owned(), params, name: None };
        Box::pin(async move {
            if is_unknown_method(&question.method) || !self.0.can_ask_caller(&question) {
                let message = format!("the caller does not offer {}", question.method);
                return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, message));
            }
            into_rpc_result(self.0.ask_caller(question).await)
        })
    }
}

/// What belongs to no call: changes, and questions about ourselves.
pub(crate) struct UpstreamInbox(pub(crate) Weak<UpstreamState>);

impl ConnectionInbox for UpstreamInbox {
    fn secrets(&self) -> Secrets {
        self.0.upgrade().map(|shared| shared.settings.scope.secrets.clone()).unwrap_or_default()
    }
}

impl RequestListener for UpstreamInbox {
    fn on_notification(&self, method: &str, params: Object) {
        let Some(shared) = self.0.upgrade() else { return };
        match method {
            "notifications/tools/list_changed" => shared.stale.mark_stale(TOOLS_LIST_BIT),
            "notifications/prompts/list_changed" => shared.stale.mark_stale(PROMPTS_LIST_BIT),
            "notifications/resources/list_changed" => shared.stale.mark_stale(RESOURCES_LIST_BIT),
            "notifications/resources/updated" => {
                let uri = params.get("uri").and_then(Value::as_str);
                if let Some(uri) = uri.filter(|uri| uri.len() <= MAX_UPDATED_URI_BYTES) {
                    shared.gateway.announce_event(SourceEvent::Updated(
                        shared.names.uri_to_caller(uri).into(),
                    ));
                }
            }
            "notifications/message" => log_relay::relay_log_message(&shared, params),
            _ => {}
        }
    }

    fn on_request(&self, method: &str, _params: Object) -> BoxFuture<'_, Result<Object, RpcError>> {
        let answer = match (method, self.0.upgrade()) {
            ("ping", _) => Ok(Object::new()),
            // The folders the operator named: nobody else is there to ask.
            ("roots/list", Some(shared)) => {
                let root = |uri: &String| Value::from_fields([("uri", uri.as_str().into())]);
                let roots = shared.settings.roots.iter().map(root).collect();
                let mut answer = Object::new();
                answer.insert("roots".to_owned(), Value::Array(roots));
                Ok(answer)
            }
            _ => {
                let message = format!("{method} belongs to no call that is in progress");
                Err(RpcError::new(RpcError::METHOD_NOT_FOUND, message))
            }
        };
        Box::pin(std::future::ready(answer))
    }
}

/// Longer ones nobody has asked to watch; see how many are kept in the gateway.
const MAX_UPDATED_URI_BYTES: usize = 16 * 1024;

fn is_unknown_method(method: &str) -> bool {
    !matches!(method, "elicitation/create" | "sampling/createMessage" | "roots/list")
}

fn into_rpc_result(answer: Result<Value, Problem>) -> Result<Object, RpcError> {
    let internal = |message: String| Err(RpcError::new(RpcError::INTERNAL_ERROR, message));
    match answer {
        Ok(Value::Object(answer)) => Ok(answer),
        Ok(_) => internal("the caller answered with no object".to_owned()),
        Err(Problem { refusal: Some(refusal), .. }) => {
            Err(RpcError { code: refusal.code, message: refusal.message, data: refusal.data })
        }
        Err(problem) => internal(problem.to_line()),
    }
}

fn as_f64(value: &Value) -> Option<f64> {
    match value {
        Value::Int(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}
