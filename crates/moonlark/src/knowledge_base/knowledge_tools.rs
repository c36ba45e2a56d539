//! The tools `search`, `get_document` and `list_sources`.

use std::sync::Arc;

use moonlark_core::schema::Schema;
use moonlark_core::tool::{CallEffects, Source, SourceKind};
use moonlark_core::value::Object;
use moonlark_core::visible_text::visible_text;
use moonlark_core::{Problem, Result, Tool, Value};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_knowledge::{
    ExcerptRequest, KnowledgeDatabase, SearchFilter, SearchMode, SearchQuery,
};
use serde_json::{Value as Json, json};

use super::{KnowledgeBase, KnowledgeSourceStatus, timestamps};

/// What scripts find them under: `sdk.knowledge.search`.
const KNOWLEDGE_SOURCE_NAME: &str = "knowledge";
const SEARCH_TOOL_NAME: &str = "search";
const LIST_SOURCES_TOOL_NAME: &str = "list_sources";

/// Sources that the description of `search` names, and what it says of each.
const MAX_NAMED_SOURCES: usize = 8;
const MAX_SUBJECT_CHARS: usize = 60;

impl KnowledgeBase {
    /// The tools; the same for as long as there is the knowledge base.
    pub(crate) fn knowledge_tools(&self) -> Result<Vec<Arc<Tool>>> {
        let base = self.clone();
        let get = ToolBody::from_async_fn(move |_, args| {
            let base = base.clone();
            async move { base.get_document(&args).await }
        });
        let base = self.clone();
        let sources = ToolBody::from_async_fn(move |_, _| {
            let base = base.clone();
            async move { base.list_sources().await }
        });
        let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
        Ok(vec![
            self.search_tool()?,
            make_knowledge_tool(
                "get_document",
                Some("get"),
                "Retrieve full document by ID",
                [document_input_schema(), document_output_schema()],
                get,
            )?,
            make_knowledge_tool(
                LIST_SOURCES_TOOL_NAME,
                Some("sources"),
                "List configured data sources",
                [nothing, sources_output_schema()],
                sources,
            )?,
        ])
    }

    /// Let `search` among these tools say what there is to find now. It stays the
    /// same tool for as long as that does.
    pub(crate) fn renew_search_tool(&self, tools: &mut [Arc<Tool>]) -> Result<()> {
        let said = self.search_description();
        if let Some(search) = tools.iter_mut().find(|it| it.name == SEARCH_TOOL_NAME)
            && search.description != said
        {
            *search = self.search_tool()?;
        }
        Ok(())
    }

    fn search_tool(&self) -> Result<Arc<Tool>> {
        let base = self.clone();
        let search = ToolBody::from_async_fn(move |_, args| {
            let base = base.clone();
            async move { base.run_search(args).await }
        });
        make_knowledge_tool(
            SEARCH_TOOL_NAME,
            None,
            &self.search_description(),
            [search_input_schema(), search_output_schema()],
            search,
        )
    }

    /// By the names that the operator gave to the sources and what their authors
    /// say of them. Nothing of the documents: those may be by anybody, and this is
    /// read by every agent.
    fn search_description(&self) -> String {
        let (sources, left) = {
            let now = self.0.now.lock();
            (now.sources.clone(), now.left.clone())
        };
        let mut named: Vec<String> = sources
            .iter()
            .map(|it| {
                let subject =
                    it.describe_subject().split_whitespace().collect::<Vec<_>>().join(" ");
                let subject: String = subject.chars().take(MAX_SUBJECT_CHARS).collect();
                format!("{} ({})", it.name, visible_text(&subject))
            })
            .chain(left.iter().cloned())
            .collect();
        let more = named.len().saturating_sub(MAX_NAMED_SOURCES);
        named.truncate(MAX_NAMED_SOURCES);
        if more > 0 {
            named.push(format!("{more} more"));
        }
        if named.is_empty() {
            "Search indexed documents".to_owned()
        } else {
            format!("Search the knowledge base: {}", named.join(", "))
        }
    }

    async fn run_search(&self, args: Value) -> Result<Value> {
        let mut query = read_query(&args)?;
        query.filter.configured = self.sources().iter().map(|it| it.name.clone()).collect();
        let knowledge = self.open_for_reading(SEARCH_TOOL_NAME).await?;
        let never_synced = self.never_synced_notes(&knowledge, &query.filter.sources).await?;
        let mut results = knowledge.search(query).await?;
        results.notes.extend(never_synced);
        Ok(results.to_value())
    }

    /// What is configured, asked for and not there yet: without a word about it, nothing
    /// found would look like nothing there.
    async fn never_synced_notes(
        &self,
        knowledge: &KnowledgeDatabase,
        wanted: &[String],
    ) -> Result<Vec<String>> {
        let sources = self.sources();
        let is_wanted = |name: &str, kind: &str| {
            wanted.is_empty() || wanted.iter().any(|it| it == name || it == kind)
        };
        let asked = sources.iter().filter(|it| is_wanted(&it.name, it.kind()));
        let names = asked.map(|it| it.name.clone()).collect();
        let missing = knowledge.find_never_synced(names).await?;
        let note = |name: &String| {
            format!("{name} has never been synced: `moonlark sync {name}` reads it")
        };
        Ok(missing.iter().take(MAX_NAMED_SOURCES).map(note).collect())
    }

    async fn get_document(&self, args: &Value) -> Result<Value> {
        let id = args.get("id").and_then(Value::as_str).unwrap_or_default();
        let count = |name: &str| match args.get(name) {
            Some(Value::Int(count)) => usize::try_from(*count).ok(),
            _ => None,
        };
        let wanted = ExcerptRequest {
            section: args.get("section").and_then(Value::as_str).map(str::to_owned),
            offset: count("offset"),
            limit: count("limit"),
        };
        let knowledge = self.open_for_reading("get_document").await?;
        let document = knowledge.get(id).await?;
        if wanted == ExcerptRequest::default() {
            return Ok(document.to_value());
        }
        Ok(document.into_excerpt(&wanted)?.to_value())
    }

    async fn list_sources(&self) -> Result<Value> {
        if !self.is_configured() && !self.database_file().exists() {
            return Ok(Value::from_fields([("sources", Value::Array(Vec::new()))]));
        }
        let known = self.source_statuses().await?;
        let sources = known.iter().map(KnowledgeSourceStatus::to_value).collect();
        Ok(Value::from_fields([("sources", Value::Array(sources))]))
    }
}

impl KnowledgeSourceStatus {
    pub(crate) fn to_value(&self) -> Value {
        let mut fields: Object = self.stats.to_object();
        let healthy = self.configured && self.problem.is_none();
        fields.insert("configured".to_owned(), self.configured.into());
        fields.insert("healthy".to_owned(), healthy.into());
        fields.insert("problem".to_owned(), self.problem.clone().into());
        fields.insert("note".to_owned(), self.note.clone().into());
        let set = |(_, value): &(String, Value)| *value != Value::Null;
        Value::Object(fields.into_iter().filter(set).collect())
    }
}

/// The arguments of `search`, which have passed its schema.
fn read_query(args: &Value) -> Result<SearchQuery> {
    let text = |name: &str| args.get(name).and_then(Value::as_str);
    let mut query = SearchQuery::new(text("query").unwrap_or_default());
    if let Some(word) = text("mode") {
        let mode = SearchMode::ALL_MODES.into_iter().find(|mode| mode.as_str() == word);
        query.mode = mode.ok_or_else(|| Problem::bad_request(format!("no mode {word}")))?;
    }
    if let Some(Value::Int(limit)) = args.get("limit") {
        query.limit = usize::try_from(*limit).unwrap_or(SearchQuery::DEFAULT_LIMIT);
    }
    query.explain = args.get("explain") == Some(&Value::Bool(true));
    query.filter = SearchFilter {
        sources: match args.get("source") {
            Some(Value::Str(one)) => vec![one.clone()],
            Some(Value::Array(all)) => {
                all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        },
        configured: Vec::new(),
        since: text("since").map(timestamps::parse_since).transpose()?,
        until: text("until").map(timestamps::parse_until).transpose()?,
        metadata: args.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default(),
    };
    Ok(query)
}

fn make_knowledge_tool(
    name: &str,
    alias: Option<&str>,
    description: &str,
    [input, output]: [Json; 2],
    body: ToolBody,
) -> Result<Arc<Tool>> {
    let schema = |json| match json {
        Json::Object(json) => Schema::of_builtin_tool(json),
        _ => Err(Problem::internal("not an object schema")),
    };
    let source =
        Arc::new(Source { kind: SourceKind::Builtin, name: KNOWLEDGE_SOURCE_NAME.to_owned() });
    let mut tool = Tool::new(name, source, schema(input)?, body);
    tool.output = Some(schema(output)?);
    tool.aliases = alias.map(str::to_owned).into_iter().collect();
    tool.description = description.to_owned();
    tool.effects = CallEffects::READ_ONLY;
    Ok(Arc::new(tool))
}

fn search_input_schema() -> Json {
    json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Search query"},
            "mode": {"type": "string", "enum": ["keyword", "semantic", "hybrid"], "default": SearchMode::default().as_str()},
            "limit": {"type": "integer", "minimum": 1, "maximum": SearchQuery::MAX_LIMIT, "default": SearchQuery::DEFAULT_LIMIT},
            "source": {
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
                "description": "Only documents of this source, or of one of these",
            },
            "since": {"type": "string", "description": "Only documents updated then or later, such as 2026-01-31"},
            "until": {"type": "string", "description": "Only documents updated then or earlier"},
            "metadata": {
                "type": "object",
                "description": "Only documents with these values in their metadata; a list means any of its values",
            },
            "explain": {"type": "boolean", "description": "Explain each score"},
        },
        "required": ["query"],
        "additionalProperties": false,
    })
}

fn document_input_schema() -> Json {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The document's ID"},
            "section": {
                "type": "string", "maxLength": 1000,
                "description": "Only the section under this heading, as in the results of search",
            },
            "offset": {
                "type": "integer", "minimum": 0,
                "description": "Characters to leave out at the beginning, of the document or the section",
            },
            "limit": {"type": "integer", "minimum": 1, "description": "Characters to answer with at most"},
        },
        "required": ["id"],
        "additionalProperties": false,
    })
}

fn search_output_schema() -> Json {
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

fn document_output_schema() -> Json {
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "title": {"type": "string"},
            "body": {"type": "string"},
            "offset": {"type": "integer", "description": "Where the body begins, if a part was asked for"},
            "length": {"type": "integer", "description": "Characters of the document or section in all, if a part was asked for"},
            "rest": {"type": "string", "description": "What is left out, and how to get it"},
            "sections": {"type": "array", "items": {"type": "string"}, "description": "The headings, if something is left out"},
            "chunks": {"type": "array", "description": "Empty if a part was asked for", "items": {
                "type": "object",
                "properties": {
                    "index": {"type": "integer"},
                    "heading": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "text": {"type": "string"},
                },
                "required": ["index", "text"],
            }},
            "source": {"type": "string"},
            "source_id": {"type": "string"},
            "source_url": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "author": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "created_at": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "updated_at": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "content_type": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "metadata": {"anyOf": [{"type": "object"}, {"type": "null"}]},
            "language": {"type": "string", "description": "Its code, if it was told and is not English"},
        },
        "required": ["id", "title", "body", "chunks", "source", "source_id"],
    })
}

fn sources_output_schema() -> Json {
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
                    "languages": {"type": "object", "description": "Languages other than English, with the number of documents in each"},
                    "note": {"type": "string"},
                },
                "required": ["name", "kind", "configured", "healthy", "documents", "chunks"],
            }},
        },
        "required": ["sources"],
    })
}
