//! The tools `search`, `get_document` and `list_sources`.

use std::sync::Arc;

use moonlark_core::schema::Schema;
use moonlark_core::tool::{Body, Effects, Source, SourceKind};
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Tool, Value};
use moonlark_knowledge::{Filter, Mode, Query};
use serde_json::{Value as Json, json};

use super::{KnowledgeBase, Known, time};

/// What scripts find them under: `sdk.knowledge.search`.
const SOURCE: &str = "knowledge";

impl KnowledgeBase {
    /// The tools; the same for as long as there is the knowledge base.
    pub(crate) fn tools(&self) -> Result<Vec<Arc<Tool>>> {
        let base = self.clone();
        let search = Body::later(move |_, args| {
            let base = base.clone();
            async move { base.search(args).await }
        });
        let base = self.clone();
        let get = Body::later(move |_, args| {
            let base = base.clone();
            async move { base.get(&args).await }
        });
        let base = self.clone();
        let sources = Body::later(move |_, _| {
            let base = base.clone();
            async move { base.list().await }
        });
        let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
        Ok(vec![
            tool("search", None, "Search indexed documents", [query(), hits()], search)?,
            tool(
                "get_document",
                Some("get"),
                "Retrieve full document by ID",
                [by_id(), document()],
                get,
            )?,
            tool(
                "list_sources",
                Some("sources"),
                "List configured data sources",
                [nothing, known()],
                sources,
            )?,
        ])
    }

    async fn search(&self, args: Value) -> Result<Value> {
        let query = read_query(&args)?;
        let knowledge = self.open_to_read("search").await?;
        Ok(knowledge.search(query).await?.to_value())
    }

    async fn get(&self, args: &Value) -> Result<Value> {
        let id = args.get("id").and_then(Value::as_str).unwrap_or_default();
        let knowledge = self.open_to_read("get_document").await?;
        Ok(knowledge.get(id).await?.to_value())
    }

    async fn list(&self) -> Result<Value> {
        if !self.is_configured() {
            self.open_to_read("list_sources").await?;
        }
        let known = self.known().await?;
        let sources = known.iter().map(Known::to_value).collect();
        Ok(Value::object([("sources", Value::Array(sources))]))
    }
}

impl Known {
    pub(crate) fn to_value(&self) -> Value {
        let mut fields: Object = self.stats.to_object();
        let healthy = self.configured && self.problem.is_none();
        fields.insert("configured".to_owned(), self.configured.into());
        fields.insert("healthy".to_owned(), healthy.into());
        fields.insert("problem".to_owned(), self.problem.clone().into());
        let set = |(_, value): &(String, Value)| *value != Value::Null;
        Value::Object(fields.into_iter().filter(set).collect())
    }
}

/// The arguments of `search`, which have passed its schema.
fn read_query(args: &Value) -> Result<Query> {
    let text = |name: &str| args.get(name).and_then(Value::as_str);
    let mut query = Query::new(text("query").unwrap_or_default());
    if let Some(word) = text("mode") {
        let mode = Mode::ALL.into_iter().find(|mode| mode.as_str() == word);
        query.mode = mode.ok_or_else(|| Problem::bad_request(format!("no mode {word}")))?;
    }
    if let Some(Value::Int(limit)) = args.get("limit") {
        query.limit = usize::try_from(*limit).unwrap_or(Query::LIMIT);
    }
    query.explain = args.get("explain") == Some(&Value::Bool(true));
    query.filter = Filter {
        sources: match args.get("source") {
            Some(Value::Str(one)) => vec![one.clone()],
            Some(Value::Array(all)) => {
                all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        },
        since: text("since").map(time::since).transpose()?,
        until: text("until").map(time::until).transpose()?,
        metadata: args.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default(),
    };
    Ok(query)
}

fn tool(
    name: &str,
    alias: Option<&str>,
    description: &str,
    [input, output]: [Json; 2],
    body: Body,
) -> Result<Arc<Tool>> {
    let schema = |json| match json {
        Json::Object(json) => Schema::compile(json),
        _ => Err(Problem::internal("not an object schema")),
    };
    let source = Arc::new(Source { kind: SourceKind::Builtin, name: SOURCE.to_owned() });
    let mut tool = Tool::new(name, source, schema(input)?, body);
    tool.output = Some(schema(output)?);
    tool.aliases = alias.map(str::to_owned).into_iter().collect();
    tool.description = description.to_owned();
    tool.effects = Effects::READ;
    Ok(Arc::new(tool))
}

fn query() -> Json {
    json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Search query"},
            "mode": {"type": "string", "enum": ["keyword", "semantic", "hybrid"], "default": Mode::default().as_str()},
            "limit": {"type": "integer", "minimum": 1, "maximum": Query::MOST, "default": Query::LIMIT},
            "source": {
                "type": ["string", "array"], "items": {"type": "string"},
                "description": "Only documents of this source, or of one of these",
            },
            "since": {"type": "string", "description": "Only documents updated then or later, such as 2026-01-31"},
            "until": {"type": "string", "description": "Only documents updated then or earlier"},
            "metadata": {
                "type": "object",
                "description": "Only documents with these values in their metadata; a list means any of its values",
            },
            "explain": {"type": "boolean", "description": "Say how each score came about"},
        },
        "required": ["query"],
        "additionalProperties": false,
    })
}

fn by_id() -> Json {
    json!({
        "type": "object",
        "properties": {"id": {"type": "string", "description": "The document's ID"}},
        "required": ["id"],
        "additionalProperties": false,
    })
}

fn hits() -> Json {
    json!({
        "type": "object",
        "properties": {
            "results": {"type": "array", "description": "Best first", "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "score": {"type": "number", "description": "From 0 to 1"},
                    "title": {"type": "string"},
                    "snippet": {"type": "string", "description": "Around the match, its words in **"},
                    "source": {"type": "string"},
                    "source_id": {"type": "string"},
                    "source_url": {"type": "string"},
                    "updated_at": {"type": "string"},
                    "heading": {"type": "string"},
                    "chunk": {"type": "integer"},
                    "metadata": {"type": "object"},
                },
                "required": ["id", "score", "title", "snippet", "source", "source_id", "chunk"],
            }},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["results"],
    })
}

fn document() -> Json {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "title": {"type": "string"},
            "body": {"type": "string"},
            "chunks": {"type": "array", "items": {
                "type": "object",
                "properties": {
                    "index": {"type": "integer"},
                    "heading": {"type": ["string", "null"]},
                    "text": {"type": "string"},
                },
                "required": ["index", "text"],
            }},
            "source": {"type": "string"},
            "source_id": {"type": "string"},
            "source_url": {"type": ["string", "null"]},
            "author": {"type": ["string", "null"]},
            "created_at": {"type": ["string", "null"]},
            "updated_at": {"type": ["string", "null"]},
            "content_type": {"type": ["string", "null"]},
            "metadata": {"type": ["object", "null"]},
        },
        "required": ["id", "title", "body", "chunks", "source", "source_id"],
    })
}

fn known() -> Json {
    json!({
        "type": "object",
        "properties": {
            "sources": {"type": "array", "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "kind": {"type": "string"},
                    "configured": {"type": "boolean"},
                    "healthy": {"type": "boolean"},
                    "documents": {"type": "integer"},
                    "chunks": {"type": "integer"},
                    "last_sync": {"type": "string"},
                    "problem": {"type": "string"},
                },
                "required": ["name", "kind", "configured", "healthy", "documents", "chunks"],
            }},
        },
        "required": ["sources"],
    })
}
