//! The listing cache: what a server offered the last time, for when it is lazy or takes
//! long to start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::Value;
use moonlark_core::value::Object;
use moonlark_state::write_private_file;
use sha2::{Digest, Sha256};

use crate::listing::{MCP_LIST_KINDS, McpLists, UpstreamOffering};
use crate::upstream_settings::UpstreamSettings;
use crate::upstream_target::McpTransportConfig;

pub(crate) struct UpstreamListingCache {
    /// Where the lists are.
    file: PathBuf,
    fingerprint: String,
}

/// What a server offered an earlier time.
pub(crate) struct RememberedLists {
    pub(crate) lists: McpLists,
    /// It took so long to connect that clients did not wait for it.
    pub(crate) was_slow: bool,
}

impl UpstreamListingCache {
    pub(crate) fn for_settings(settings: &UpstreamSettings) -> Self {
        Self {
            file: listing_file_path(&settings.state, settings.name()),
            fingerprint: transport_fingerprint(&settings.target.transport),
        }
    }

    /// The lists, if they are of the same server.
    pub(crate) fn load_lists(&self) -> Option<RememberedLists> {
        let mut kept = read_listing_file(&self.file, &self.fingerprint)?;
        let was_slow = kept.get(SLOW_START_KEY) == Some(&Value::Bool(true));
        let mut lists = McpLists::default();
        for (list, (.., key)) in lists.each_mut().into_iter().zip(MCP_LIST_KINDS) {
            if let Some(Value::Array(entries)) = kept.swap_remove(key) {
                *list = Some(Arc::new(objects_only(entries)));
            }
        }
        Some(RememberedLists { lists, was_slow })
    }

    /// From the next start on nobody waits for it: what it offered is known.
    pub(crate) fn remember_slow_start(&self) {
        let (file, fingerprint) = (self.file.clone(), self.fingerprint.clone());
        tokio::task::spawn_blocking(move || {
            let Some(mut kept) = read_listing_file(&file, &fingerprint) else { return };
            kept.insert(SLOW_START_KEY.to_owned(), Value::Bool(true));
            write_listing_file(&file, kept);
        });
    }

    /// Keep them for the next time, and whether clients had to do without them this
    /// time. Failing that, it is started once more.
    pub(crate) fn remember_lists(&self, offered: &UpstreamOffering, was_slow: bool) {
        let file = self.file.clone();
        let lists = offered.lists.clone();
        let fingerprint = self.fingerprint.clone();
        tokio::task::spawn_blocking(move || {
            let mut kept = Object::new();
            kept.insert(FINGERPRINT_KEY.to_owned(), fingerprint.into());
            kept.insert(SLOW_START_KEY.to_owned(), Value::Bool(was_slow));
            for (list, (.., key)) in lists.each().into_iter().zip(MCP_LIST_KINDS) {
                let entries = list.iter().flat_map(|list| list.iter().cloned());
                let entries = entries.map(Value::Object).collect();
                kept.insert(key.to_owned(), Value::Array(entries));
            }
            write_listing_file(&file, kept);
        });
    }
}

const FINGERPRINT_KEY: &str = "fingerprint";
const SLOW_START_KEY: &str = "slow";

/// What is in the file, if it is of the same server.
fn read_listing_file(file: &Path, fingerprint: &str) -> Option<Object> {
    let text = std::fs::read(file).ok()?;
    let Value::Object(kept) = Value::parse_json(&text).ok()? else { return None };
    let same = kept.get(FINGERPRINT_KEY).and_then(Value::as_str) == Some(fingerprint);
    same.then_some(kept)
}

fn write_listing_file(file: &Path, kept: Object) {
    let text = Value::Object(kept).to_json_lossy().to_string();
    if let Err(error) = write_private_file(file, text) {
        tracing::warn!(target: "upstream", "{}: {error}", file.display());
    }
}

/// Where the lists of a server are kept.
pub fn listing_file_path(state: &Path, server: &str) -> PathBuf {
    state.join("upstreams").join(format!("{server}.json"))
}

/// Tells one server from another, without telling its secrets.
fn transport_fingerprint(transport: &McpTransportConfig) -> String {
    let text = match transport {
        McpTransportConfig::Stdio { command, args, cwd, env } => {
            format!("{command}\n{args:?}\n{cwd:?}\n{:?}", env.keys())
        }
        McpTransportConfig::Http { url, headers } | McpTransportConfig::Sse { url, headers } => {
            format!("{url}\n{:?}", headers.keys())
        }
    };
    format!("{:x}", Sha256::digest(text))
}

fn objects_only(entries: Vec<Value>) -> Vec<Object> {
    let object = |entry| match entry {
        Value::Object(object) => Some(object),
        _ => None,
    };
    entries.into_iter().filter_map(object).collect()
}
