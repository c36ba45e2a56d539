//! The state of a bridged session: what is needed to begin it again with another server.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::{Value as Json, json};

/// Requests that change nothing, or nothing but what the server tells the client:
/// they can be made again when nobody knows whether they were answered.
const REPEATABLE_METHODS: [&str; 15] = [
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "subscriptions/listen",
    "tasks/get",
    "tools/list",
];

#[derive(Default)]
pub(super) struct BridgedSession {
    /// How many servers there were before this one.
    generation: u32,
    /// Requests of the client without an answer, by their ids, in order.
    open: BTreeMap<u64, UnansweredRequest>,
    order: HashMap<String, u64>,
    next: u64,
    /// What an old client began its session with, once that was answered.
    initialize: Option<Vec<u8>>,
    /// What the server said to that.
    capabilities: Json,
    /// That the client is ready.
    initialized: Option<Vec<u8>>,
    /// The last request for a log level.
    log_level: Option<Vec<u8>>,
    /// The requests for what is watched, by its address.
    watched: BTreeMap<String, Vec<u8>>,
    /// Ids of requests that were made again, whose answers the client has.
    repeated: Vec<String>,
    /// Ids of what this server has asked the client.
    questions: Vec<String>,
}

struct UnansweredRequest {
    id: Json,
    method: String,
    message: Vec<u8>,
}

/// Whom a message of the server is for.
pub(super) enum ServerMessageRoute {
    ForClient(Vec<u8>),
    ForUs,
}

/// What is looked at of every message.
#[derive(Deserialize)]
struct JsonRpcOutline {
    id: Option<Json>,
    method: Option<String>,
}

#[derive(Deserialize)]
struct JsonRpcWithParams {
    params: TrackedParams,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TrackedParams {
    request_id: Option<Json>,
    uri: Option<String>,
}

impl BridgedSession {
    /// Whether the client waits for nothing.
    pub(super) fn has_no_open_requests(&self) -> bool {
        self.open.is_empty()
    }

    /// The message as the server gets it; none if it is not for this server.
    pub(super) fn track_client_message(&mut self, message: Vec<u8>) -> Option<Vec<u8>> {
        let Ok(outline) = serde_json::from_slice::<JsonRpcOutline>(&message) else {
            // The server says what is wrong with it.
            return Some(message);
        };
        match (outline.id, outline.method) {
            (Some(id), Some(method)) => self.track_request(id, method, &message),
            (None, Some(method)) => match method.as_str() {
                "notifications/initialized" => self.initialized = Some(message.clone()),
                "notifications/cancelled" => {
                    if let Some(id) = parse_params(&message).and_then(|it| it.request_id) {
                        self.close_request(&id);
                    }
                }
                _ => {}
            },
            (Some(id), None) => return self.route_client_answer(&id, message),
            (None, None) => {}
        }
        Some(message)
    }

    fn track_request(&mut self, id: Json, method: String, message: &[u8]) {
        let uri = || parse_params(message).and_then(|it| it.uri);
        match method.as_str() {
            "logging/setLevel" => self.log_level = Some(message.to_vec()),
            "resources/subscribe" => {
                self.watched.extend(uri().map(|uri| (uri, message.to_vec())));
            }
            "resources/unsubscribe" => {
                uri().map(|uri| self.watched.remove(&uri));
            }
            _ => {}
        }
        // Calls are not made again, so that they need not be kept.
        let message = if REPEATABLE_METHODS.contains(&method.as_str()) {
            message.to_vec()
        } else {
            Vec::new()
        };
        self.next += 1;
        self.order.insert(id.to_string(), self.next);
        self.open.insert(self.next, UnansweredRequest { id, method, message });
    }

    /// An answer to a question of this server, or of one that is gone.
    fn route_client_answer(&mut self, id: &Json, message: Vec<u8>) -> Option<Vec<u8>> {
        let id_text = id.to_string();
        let before = self.questions.iter().position(|open| *open == id_text)?;
        self.questions.swap_remove(before);
        if self.generation == 0 {
            return Some(message);
        }
        let text = id.as_str()?.strip_prefix(&self.request_id_prefix())?;
        with_message_id(&message, serde_json::from_str(text).ok()?)
    }

    /// Whom the message is for, and as what.
    pub(super) fn track_server_message(&mut self, message: Vec<u8>) -> ServerMessageRoute {
        let Ok(outline) = serde_json::from_slice::<JsonRpcOutline>(&message) else {
            return ServerMessageRoute::ForClient(message);
        };
        match (outline.id, outline.method) {
            (Some(id), None) => self.track_answer(&id, message),
            (Some(id), Some(_)) => self.track_server_request(&id, message),
            (None, _) => ServerMessageRoute::ForClient(message),
        }
    }

    fn track_answer(&mut self, id: &Json, message: Vec<u8>) -> ServerMessageRoute {
        let text = id.to_string();
        if let Some(index) = self.repeated.iter().position(|it| *it == text) {
            self.repeated.swap_remove(index);
            return ServerMessageRoute::ForUs;
        }
        if let Some(request) = self.close_request(id)
            && request.method == "initialize"
            && let Ok(mut answer) = serde_json::from_slice::<Json>(&message)
        {
            let said = answer.pointer_mut("/result/capabilities");
            self.capabilities = said.map(Json::take).unwrap_or_default();
            self.initialize = Some(request.message);
        }
        ServerMessageRoute::ForClient(message)
    }

    /// Ids of two servers may be the same: those of all but the first get a mark.
    fn track_server_request(&mut self, id: &Json, message: Vec<u8>) -> ServerMessageRoute {
        if self.generation == 0 {
            self.questions.push(id.to_string());
            return ServerMessageRoute::ForClient(message);
        }
        let marked = Json::String(format!("{}{id}", self.request_id_prefix()));
        self.questions.push(marked.to_string());
        match with_message_id(&message, marked) {
            Some(message) => ServerMessageRoute::ForClient(message),
            None => ServerMessageRoute::ForUs,
        }
    }

    fn request_id_prefix(&self) -> String {
        format!("moonlark-{}:", self.generation)
    }

    fn close_request(&mut self, id: &Json) -> Option<UnansweredRequest> {
        let place = self.order.remove(&id.to_string())?;
        self.open.remove(&place)
    }

    /// The server is gone: what the client is told at once.
    pub(super) fn end_server_generation(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for question in std::mem::take(&mut self.questions) {
            let id: Json = serde_json::from_str(&question).unwrap_or_default();
            let params = json!({"requestId": id, "reason": "the server has ended"});
            told.push(
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}),
            );
        }
        let lost: Vec<u64> =
            self.open.iter().filter(|it| it.1.message.is_empty()).map(|it| *it.0).collect();
        for place in lost {
            let Some(request) = self.open.remove(&place) else { continue };
            self.order.remove(&request.id.to_string());
            told.push(json!({"jsonrpc": "2.0", "id": request.id, "error": {
                "code": -32603,
                "message": format!(
                    "the Moonlark server has ended while {} was in progress: it may have happened, and was not repeated",
                    request.method
                ),
            }}));
        }
        self.generation += 1;
        self.repeated.clear();
        told.into_iter().map(|message| message.to_string()).collect()
    }

    /// What the next server is told first, for the session to be as it was.
    pub(super) fn session_restart_messages(&mut self) -> Vec<String> {
        let mut messages: Vec<&Vec<u8>> = Vec::new();
        messages.extend(&self.initialize);
        messages.extend(self.initialize.as_ref().and(self.initialized.as_ref()));
        messages.extend(&self.log_level);
        messages.extend(self.watched.values());
        // Answered before, or asked for again below.
        let is_open = |message: &&Vec<u8>| self.open.values().any(|it| it.message == **message);
        messages.retain(|message| !is_open(message));
        let ids = messages
            .iter()
            .filter_map(|message| serde_json::from_slice::<JsonRpcOutline>(message).ok()?.id);
        self.repeated = ids.map(|id| id.to_string()).collect();
        messages.extend(self.open.values().map(|request| &request.message));
        messages.into_iter().map(|message| String::from_utf8_lossy(message).into_owned()).collect()
    }

    /// What an old client is told when there is another server: its lists may differ.
    pub(super) fn list_changed_notifications(&self) -> Vec<String> {
        if self.initialized.is_none() {
            return Vec::new();
        }
        let changes = ["tools", "resources", "prompts"].into_iter();
        let told = changes.filter(|list| self.capabilities[list]["listChanged"] == true);
        let message = |list| json!({"jsonrpc": "2.0", "method": format!("notifications/{list}/list_changed")});
        told.map(|list| message(list).to_string()).collect()
    }
}

fn parse_params(message: &[u8]) -> Option<TrackedParams> {
    serde_json::from_slice::<JsonRpcWithParams>(message).ok().map(|it| it.params)
}

/// The same message under another id.
fn with_message_id(message: &[u8], id: Json) -> Option<Vec<u8>> {
    let mut message: Json = serde_json::from_slice(message).ok()?;
    *message.get_mut("id")? = id;
    serde_json::to_vec(&message).ok()
}
