//! What is to be known of a client's session to begin it again with another server.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::{Value as Json, json};

/// Requests that change nothing, or nothing but what the server tells the client:
/// they can be made again when nobody knows whether they were answered.
const REPEATABLE: [&str; 15] = [
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
pub(super) struct SessionMemory {
    /// How many servers there were before this one.
    generation: u32,
    /// Requests of the client without an answer, by their ids, in order.
    open: BTreeMap<u64, OpenRequest>,
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

struct OpenRequest {
    id: Json,
    method: String,
    message: Vec<u8>,
}

/// Whom a message of the server is for.
pub(super) enum FromServer {
    ForClient(Vec<u8>),
    ForUs,
}

/// What is looked at of every message.
#[derive(Deserialize)]
struct Outline {
    id: Option<Json>,
    method: Option<String>,
}

#[derive(Deserialize)]
struct WithParams {
    params: Params,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    request_id: Option<Json>,
    uri: Option<String>,
}

impl SessionMemory {
    /// Whether the client waits for nothing.
    pub(super) fn has_no_open_requests(&self) -> bool {
        self.open.is_empty()
    }

    /// The message as the server gets it; none if it is not for this server.
    pub(super) fn note_from_client(&mut self, message: Vec<u8>) -> Option<Vec<u8>> {
        let Ok(outline) = serde_json::from_slice::<Outline>(&message) else {
            // The server says what is wrong with it.
            return Some(message);
        };
        match (outline.id, outline.method) {
            (Some(id), Some(method)) => self.note_request(id, method, &message),
            (None, Some(method)) => match method.as_str() {
                "notifications/initialized" => self.initialized = Some(message.clone()),
                "notifications/cancelled" => {
                    if let Some(id) = params(&message).and_then(|it| it.request_id) {
                        self.close(&id);
                    }
                }
                _ => {}
            },
            (Some(id), None) => return self.answer_of_client(&id, message),
            (None, None) => {}
        }
        Some(message)
    }

    fn note_request(&mut self, id: Json, method: String, message: &[u8]) {
        let uri = || params(message).and_then(|it| it.uri);
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
        let message = match REPEATABLE.contains(&method.as_str()) {
            true => message.to_vec(),
            false => Vec::new(),
        };
        self.next += 1;
        self.order.insert(id.to_string(), self.next);
        self.open.insert(self.next, OpenRequest { id, method, message });
    }

    /// An answer to a question of this server, or of one that is gone.
    fn answer_of_client(&mut self, id: &Json, message: Vec<u8>) -> Option<Vec<u8>> {
        let id_text = id.to_string();
        let before = self.questions.iter().position(|open| *open == id_text)?;
        self.questions.swap_remove(before);
        if self.generation == 0 {
            return Some(message);
        }
        let text = id.as_str()?.strip_prefix(&self.mark())?;
        with_id(&message, serde_json::from_str(text).ok()?)
    }

    /// Whom the message is for, and as what.
    pub(super) fn note_from_server(&mut self, message: Vec<u8>) -> FromServer {
        let Ok(outline) = serde_json::from_slice::<Outline>(&message) else {
            return FromServer::ForClient(message);
        };
        match (outline.id, outline.method) {
            (Some(id), None) => self.note_answer(&id, message),
            (Some(id), Some(_)) => self.note_question(&id, message),
            (None, _) => FromServer::ForClient(message),
        }
    }

    fn note_answer(&mut self, id: &Json, message: Vec<u8>) -> FromServer {
        let text = id.to_string();
        if let Some(index) = self.repeated.iter().position(|it| *it == text) {
            self.repeated.swap_remove(index);
            return FromServer::ForUs;
        }
        if let Some(request) = self.close(id)
            && request.method == "initialize"
            && let Ok(mut answer) = serde_json::from_slice::<Json>(&message)
        {
            let said = answer.pointer_mut("/result/capabilities");
            self.capabilities = said.map(Json::take).unwrap_or_default();
            self.initialize = Some(request.message);
        }
        FromServer::ForClient(message)
    }

    /// Ids of two servers may be the same: those of all but the first get a mark.
    fn note_question(&mut self, id: &Json, message: Vec<u8>) -> FromServer {
        if self.generation == 0 {
            self.questions.push(id.to_string());
            return FromServer::ForClient(message);
        }
        let marked = Json::String(format!("{}{id}", self.mark()));
        self.questions.push(marked.to_string());
        match with_id(&message, marked) {
            Some(message) => FromServer::ForClient(message),
            None => FromServer::ForUs,
        }
    }

    fn mark(&self) -> String {
        format!("moonlark-{}:", self.generation)
    }

    fn close(&mut self, id: &Json) -> Option<OpenRequest> {
        let place = self.order.remove(&id.to_string())?;
        self.open.remove(&place)
    }

    /// The server is gone: what the client is told at once.
    pub(super) fn lose_server(&mut self) -> Vec<String> {
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
    pub(super) fn begin_again(&mut self) -> Vec<String> {
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
            .filter_map(|message| serde_json::from_slice::<Outline>(message).ok()?.id);
        self.repeated = ids.map(|id| id.to_string()).collect();
        messages.extend(self.open.values().map(|request| &request.message));
        messages.into_iter().map(|message| String::from_utf8_lossy(message).into_owned()).collect()
    }

    /// What an old client is told when there is another server: its lists may differ.
    pub(super) fn what_may_have_changed(&self) -> Vec<String> {
        if self.initialized.is_none() {
            return Vec::new();
        }
        let changes = ["tools", "resources", "prompts"].into_iter();
        let told = changes.filter(|list| self.capabilities[list]["listChanged"] == true);
        let message = |list| json!({"jsonrpc": "2.0", "method": format!("notifications/{list}/list_changed")});
        told.map(|list| message(list).to_string()).collect()
    }
}

fn params(message: &[u8]) -> Option<Params> {
    serde_json::from_slice::<WithParams>(message).ok().map(|it| it.params)
}

/// The same message under another id.
fn with_id(message: &[u8], id: Json) -> Option<Vec<u8>> {
    let mut message: Json = serde_json::from_slice(message).ok()?;
    *message.get_mut("id")? = id;
    serde_json::to_vec(&message).ok()
}
