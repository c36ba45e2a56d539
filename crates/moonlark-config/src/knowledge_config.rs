//! `[knowledge]`: how documents are searched, and when sources are read again.

use std::borrow::Cow;

use moonlark_core::Problem;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{RedactedString, TimeoutSeconds, web_address_fault};

/// Indexing and search of the knowledge base. Its sources are in `[connectors]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KnowledgeConfig {
    /// Embedding model: `"builtin"` is part of Moonlark; the name of a model that
    /// `moonlark model add` has added; or a table that configures a service. After a change, the next sync embeds all documents again; until then the old vectors are
    /// used.
    pub embedder: EmbedderConfig,
    /// Chunk size: about how many characters are indexed and returned as one piece.
    #[schemars(range(min = 200, max = 20_000))]
    pub chunk: u32,
    /// When all sources are read while serving: `"manual"` only by
    /// `moonlark sync`, `"start"` once at the start. Folders with `watch` are
    /// followed in any case.
    pub sync: SyncTrigger,
    /// Seconds after which all sources are read again while serving.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TimeoutSeconds")]
    pub interval: Option<TimeoutSeconds>,
    /// Variables and files that it needs and that are not there.
    #[serde(skip)]
    pub outage: Vec<Problem>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum SyncTrigger {
    // Only by command.
    #[default]
    Manual,
    // When a server starts.
    Start,
}

/// The model that is part of Moonlark, one that was added, or a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EmbedderConfig {
    Named(String),
    Service(RemoteEmbedderConfig),
}

/// A service that turns text into vectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct RemoteEmbedderConfig {
    /// The style of its API: `"openai"`, as many services have it, or `"ollama"`.
    pub kind: RemoteEmbedderKind,
    /// Its address, without the path of the operation.
    #[schemars(length(min = 1), example = &"http://127.0.0.1:11434")]
    pub url: String,
    /// The model.
    #[schemars(length(min = 1), example = &"nomic-embed-text")]
    pub model: String,
    /// The API key, sent as a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"${OPENAI_API_KEY}")]
    pub api_key: Option<RedactedString>,
    /// The number of dimensions of a vector, for models that let one choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 16_384), example = 768)]
    pub dimensions: Option<u32>,
    /// Texts in one request.
    #[serde(default = "default_embedding_batch")]
    #[schemars(range(min = 1, max = 2048))]
    pub batch: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum RemoteEmbedderKind {
    Openai,
    Ollama,
}

pub const BUILTIN_EMBEDDER_NAME: &str = "builtin";

fn default_embedding_batch() -> u32 {
    64
}

impl Default for KnowledgeConfig {
    fn default() -> Self {
        Self {
            embedder: EmbedderConfig::Named(BUILTIN_EMBEDDER_NAME.to_owned()),
            chunk: 1200,
            sync: SyncTrigger::default(),
            interval: None,
            outage: Vec::new(),
        }
    }
}

impl JsonSchema for EmbedderConfig {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Embedder".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = RemoteEmbedderConfig::json_schema(generator);
        schema.insert("type".into(), json!(["string", "object"]));
        schema
    }
}

impl KnowledgeConfig {
    /// What no schema says. The key, and what is wrong.
    pub fn find_faults(&self) -> Vec<(&'static str, String)> {
        match &self.embedder {
            EmbedderConfig::Named(name) if name.trim().is_empty() => {
                let message = "must be \"builtin\", the name of a model that was added, or a table with kind, url and model";
                vec![("embedder", message.to_owned())]
            }
            EmbedderConfig::Service(service) => {
                let fault = web_address_fault(&service.url);
                Vec::from_iter(fault.map(|message| ("embedder.url", message)))
            }
            EmbedderConfig::Named(_) => Vec::new(),
        }
    }
}
