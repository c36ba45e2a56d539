//! Resources and prompts of a source.
//!
//! Definitions are kept as the source wrote them, under the names that callers
//! use. Nothing is reached from here: whoever wants something calls the
//! source's [`door`](Offers::door), which is a tool like any other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::problem::Problem;
use crate::tool::{Source, Tool};
use crate::value::{Object, Value};

#[derive(Clone)]
pub struct SourceResources {
    pub source: Arc<Source>,
    /// What stands before its URIs, such as `mcp://docs/`; empty if nothing does.
    pub uris: String,
    /// Addresses of its app pages, which nothing stands before: `ui://…`, or templates
    /// of them.
    pub app_uris: Arc<BTreeSet<String>>,
    /// What stands before the names of its prompts, such as `docs/`.
    pub names: String,
    pub resources: Arc<Vec<Object>>,
    pub templates: Arc<Vec<Object>>,
    pub prompts: Arc<Vec<Object>>,
    /// What it says it can do, in the protocol's words.
    pub capabilities: Arc<Object>,
    /// What it tells its users about itself.
    pub instructions: Option<String>,
    /// Takes `{method, params}` and answers as the source does. A request to
    /// watch a resource has a `lease` beside them, the number of one.
    pub door: Arc<Tool>,
    pub watcher: Arc<dyn ResourceWatcher>,
}

/// A source whose resources can be watched. It is asked to by its door; here it
/// is only told that somebody no longer does.
pub trait ResourceWatcher: Send + Sync {
    /// There may never have been one of this number.
    fn release_lease(&self, lease: u64);
}

/// The right to watch one resource, from before the source is asked until it is
/// dropped: whatever becomes of the request, nothing is watched for nobody.
pub struct WatchLease {
    watcher: Arc<dyn ResourceWatcher>,
    number: u64,
}

impl WatchLease {
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for WatchLease {
    fn drop(&mut self) {
        self.watcher.release_lease(self.number);
    }
}

/// What a source says that is part of no call.
#[derive(Debug, Clone, PartialEq)]
pub enum SourceEvent {
    /// A resource has changed: its URI, as callers know it.
    Updated(Arc<str>),
    Said(Arc<SourceLogMessage>),
}

/// A message for whoever wants to know, in the words of the source's protocol.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceLogMessage {
    /// Whose words they are.
    pub source: Arc<Source>,
    pub level: String,
    /// Which part of which source.
    pub logger: Option<String>,
    pub data: Value,
}

impl SourceResources {
    /// For a request to watch one of its resources.
    pub fn new_watch_lease(&self) -> WatchLease {
        static NEXT_LEASE_NUMBER: AtomicU64 = AtomicU64::new(1);
        WatchLease {
            watcher: self.watcher.clone(),
            number: NEXT_LEASE_NUMBER.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Whether it lists a resource at `uri`.
    fn lists_resource(&self, uri: &str) -> bool {
        self.resources.iter().any(|it| text_field(it, "uri") == Some(uri))
    }

    /// Whether it has the app page at `uri`, or a template that may make it.
    fn has_app_page(&self, uri: &str) -> bool {
        let may_make =
            |it: &String| it.split_once('{').is_some_and(|(fixed, _)| uri.starts_with(fixed));
        self.app_uris.contains(uri) || self.app_uris.iter().any(may_make)
    }

    fn has_prompt(&self, name: &str) -> bool {
        self.prompts.iter().any(|it| text_field(it, "name") == Some(name))
    }

    fn can_read_resources(&self) -> bool {
        self.capabilities.contains_key("resources") || !self.resources.is_empty()
    }
}

/// Whose a URI is: the source it is named after, the one that lists it, or the
/// only one left that names nothing after itself.
pub fn resources_for_uri<'a>(
    all: &'a [Arc<SourceResources>],
    uri: &str,
) -> Option<&'a Arc<SourceResources>> {
    let named = |it: &&Arc<SourceResources>| !it.uris.is_empty() && uri.starts_with(&it.uris);
    all.iter()
        .find(named)
        .or_else(|| all.iter().find(|it| it.has_app_page(uri)))
        .or_else(|| all.iter().find(|it| it.uris.is_empty() && it.lists_resource(uri)))
        .or_else(|| all.iter().find(|it| it.uris.is_empty() && it.can_read_resources()))
}

/// The same for the name of a prompt.
pub fn resources_for_prompt<'a>(
    all: &'a [Arc<SourceResources>],
    name: &str,
) -> Option<&'a Arc<SourceResources>> {
    all.iter()
        .find(|it| it.has_prompt(name))
        .or_else(|| all.iter().find(|it| !it.names.is_empty() && name.starts_with(&it.names)))
}

fn text_field<'a>(definition: &'a Object, key: &str) -> Option<&'a str> {
    definition.get(key).and_then(Value::as_str)
}

/// Whether a source that connects can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SourceState {
    #[default]
    Connecting,
    Ready,
    Failed,
    /// It is started when somebody needs it.
    Stopped,
}

impl SourceState {
    pub fn as_str(self) -> &'static str {
        match self {
            SourceState::Connecting => "connecting",
            SourceState::Ready => "ready",
            SourceState::Failed => "failed",
            SourceState::Stopped => "stopped",
        }
    }
}

/// How a source that connects is doing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SourceHealth {
    pub source: String,
    pub state: SourceState,
    /// The version of the protocol that is spoken.
    pub protocol: Option<String>,
    /// What the server calls itself.
    pub server: Option<String>,
    pub tools: usize,
    pub resources: usize,
    pub prompts: usize,
    /// What it has is known from an earlier time only.
    pub is_remembered: bool,
    /// Why it is not connected.
    pub problem: Option<Problem>,
    /// What it offers that cannot be used as it is.
    pub flaws: Vec<Problem>,
}
