//! `[knowledge]`: how documents are searched, and when sources are read again.

use std::borrow::Cow;

use moonlark_core::Problem;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Hidden, Seconds};

/// How the knowledge base is kept and searched. What is in it, `[connectors]`
/// says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Knowledge {
    /// What turns text into vectors: `"builtin"` needs no network; a table names
    /// a service. After a change, documents are embedded anew in the background.
    pub embedder: Embedder,
    /// About how many characters of a document are searched, and found, as one
    /// piece.
    #[schemars(range(min = 200, max = 20_000))]
    pub chunk: u32,
    /// When all sources are read while serving: `"manual"` only by
    /// `moonlark sync`, `"start"` once at the start. Folders with `watch` are
    /// followed in any case.
    pub sync: SyncWhen,
    /// Seconds after which all sources are read again while serving.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Seconds")]
    pub interval: Option<Seconds>,
    /// Variables and files that it needs and that are not there.
    #[serde(skip)]
    pub outage: Vec<Problem>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum SyncWhen {
    // Only by command.
    #[default]
    Manual,
    // When a server starts.
    Start,
}

/// The model that is part of Moonlark, or a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Embedder {
    Named(String),
    Service(RemoteEmbedder),
}

/// A service that turns text into vectors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct RemoteEmbedder {
    /// What it speaks: `"openai"`, as many services do, or `"ollama"`.
    pub kind: EmbedderKind,
    /// Its address, without the path of the operation.
    #[schemars(length(min = 1), example = &"http://127.0.0.1:11434")]
    pub url: String,
    /// The model.
    #[schemars(length(min = 1), example = &"nomic-embed-text")]
    pub model: String,
    /// What it wants to see as a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", example = &"${OPENAI_API_KEY}")]
    pub api_key: Option<Hidden>,
    /// How many numbers a vector has, for models that let one choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 16_384), example = 768)]
    pub dimensions: Option<u32>,
    /// Texts in one request.
    #[serde(default = "batch")]
    #[schemars(range(min = 1, max = 2048))]
    pub batch: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum EmbedderKind {
    Openai,
    Ollama,
}

const BUILTIN: &str = "builtin";

fn batch() -> u32 {
    64
}

impl Default for Knowledge {
    fn default() -> Self {
        Self {
            embedder: Embedder::Named(BUILTIN.to_owned()),
            chunk: 1200,
            sync: SyncWhen::default(),
            interval: None,
            outage: Vec::new(),
        }
    }
}

impl JsonSchema for Embedder {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Embedder".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = RemoteEmbedder::json_schema(generator);
        schema.insert("type".into(), json!(["string", "object"]));
        schema
    }
}

impl Knowledge {
    /// What no schema says. The key, and what is wrong.
    pub(crate) fn faults(&self) -> Vec<(&'static str, String)> {
        match &self.embedder {
            Embedder::Named(name) if name != BUILTIN => {
                let message = "must be \"builtin\", or a table with kind, url and model";
                vec![("embedder", message.to_owned())]
            }
            Embedder::Service(service) => {
                let web = url::Url::parse(&service.url)
                    .is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
                let message = "must be an address that begins with http:// or https://";
                if web { Vec::new() } else { vec![("embedder.url", message.to_owned())] }
            }
            Embedder::Named(_) => Vec::new(),
        }
    }
}
