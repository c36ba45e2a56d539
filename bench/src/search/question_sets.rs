//! The sets of questions: retrieval sets on disk, and what can be asked of large APIs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use moonlark_core::catalog::numbered_until_free;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::{Catalog, Tool, Value};
use moonlark_discovery::{FunctionIndex, discovery_tools};
use moonlark_gateway::Gateway;
use moonlark_gateway::tool_body::ToolBody;
use moonlark_openapi::{ApiSettings, OpenApiDocument, build_api_tools, parse_document};
use serde::Deserialize;

use super::path_questions::ask_by_path;
use crate::retrieval::{self, Document};

/// Everything that questions are asked of: functions, and the same as plain texts.
pub(super) struct SearchedCatalog {
    pub(super) name: String,
    pub(super) gateway: Gateway,
    pub(super) catalog: Arc<Catalog>,
    /// Name and description of each function, in the order of the catalog.
    pub(super) documents: Vec<Document>,
    /// As agents call each: `sdk.api.list_pets`.
    pub(super) paths: HashMap<String, usize>,
    /// By the names of their tools.
    numbers: HashMap<String, usize>,
}

/// How a set of questions came about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum QuestionFamily {
    Retrieval,
    Summary,
    Path,
    Everyday,
    Bundle,
}

pub(super) struct QuestionSet {
    pub(super) family: QuestionFamily,
    pub(super) catalog: Arc<SearchedCatalog>,
    pub(super) questions: Vec<AskedQuestion>,
}

pub(super) struct AskedQuestion {
    pub(super) text: String,
    /// What answers it: one function of each part, or documents that are worth so much.
    pub(super) parts: Vec<HashMap<usize, f64>>,
}

/// Questions of one API that nothing in it answers.
pub(super) struct UnanswerableQuestions {
    pub(super) catalog: Arc<SearchedCatalog>,
    pub(super) questions: Vec<String>,
}

#[derive(Deserialize)]
struct QuestionFile {
    document: String,
    questions: Vec<QuestionEntry>,
    nothing_fits: Vec<String>,
}

#[derive(Deserialize)]
struct QuestionEntry {
    ask: String,
    parts: Vec<Vec<String>>,
}

/// The retrieval sets of a folder, their documents as tools.
pub(super) fn load_retrieval(folder: &Path) -> Result<Vec<QuestionSet>> {
    retrieval::load(folder)?
        .into_iter()
        .map(|set| {
            let catalog =
                Arc::new(SearchedCatalog::new(&set.name, document_tools(&set.documents))?);
            let questions = set.questions.into_iter();
            let questions =
                questions.map(|(text, relevant)| AskedQuestion { text, parts: vec![relevant] });
            let questions = questions.collect();
            Ok(QuestionSet { family: QuestionFamily::Retrieval, catalog, questions })
        })
        .collect()
}

/// Titles as names, texts as descriptions. Of equal titles the later ones get numbers,
/// as tools of several servers do.
fn document_tools(documents: &[Document]) -> Vec<Tool> {
    let source = Arc::new(Source { kind: SourceKind::Upstream, name: "documents".to_owned() });
    let mut taken: HashSet<String> = HashSet::new();
    let tools = documents.iter().map(|document| {
        let title = if document.title.is_empty() { "untitled" } else { &document.title };
        let name = if taken.contains(title) {
            numbered_until_free(title, |name| taken.contains(name))
        } else {
            title.to_owned()
        };
        taken.insert(name.clone());
        let body = ToolBody::from_fn(|_, _| Ok(Value::Null));
        let input = Schema::description_only(serde_json::Map::new());
        let mut tool = Tool::new(format!("documents.{name}"), source.clone(), input, body);
        tool.description = document.text.clone();
        tool
    });
    tools.collect()
}

/// What is asked of the APIs that there are questions about.
pub(super) fn load_apis(
    folder: &Path,
    documents: &Path,
) -> Result<(Vec<QuestionSet>, Vec<UnanswerableQuestions>)> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "json") {
            files.push(path);
        }
    }
    files.sort();
    let (mut sets, mut unanswerable) = (Vec::new(), Vec::new());
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file)?;
        let asked: QuestionFile =
            serde_json::from_str(&text).with_context(|| format!("in {}", file.display()))?;
        let catalog = Arc::new(load_api(&name, &documents.join(&asked.document))?);
        let functions = ApiFunctions::new(&catalog);
        for (family, questions) in [
            (QuestionFamily::Summary, functions.questions_by(ApiFunction::summary_line)),
            (QuestionFamily::Path, functions.questions_by(ApiFunction::path_question)),
            (QuestionFamily::Everyday, functions.asked_questions(&asked, |parts| parts == 1)?),
            (QuestionFamily::Bundle, functions.asked_questions(&asked, |parts| parts > 1)?),
        ] {
            sets.push(QuestionSet { family, catalog: catalog.clone(), questions });
        }
        unanswerable.push(UnanswerableQuestions { catalog, questions: asked.nothing_fits });
    }
    ensure!(!sets.is_empty(), "there are no questions in {}", folder.display());
    Ok((sets, unanswerable))
}

fn load_api(name: &str, file: &Path) -> Result<SearchedCatalog> {
    let bytes = std::fs::read(file).with_context(|| {
        format!("cannot read {}: run tests/openapi/install.sh first", file.display())
    })?;
    let document = OpenApiDocument::new(parse_document(&bytes)?, HashMap::new(), None)?;
    let base_url = "http://127.0.0.1".parse().ok();
    let settings = ApiSettings { base_url, ..ApiSettings::new(name) };
    let (tools, _) = build_api_tools(settings, Arc::new(document))?;
    SearchedCatalog::new(name, tools)
}

impl SearchedCatalog {
    fn new(name: &str, tools: Vec<Tool>) -> Result<SearchedCatalog> {
        let mut tools: Vec<Arc<Tool>> = tools.into_iter().map(Arc::new).collect();
        let numbers: HashMap<String, usize> =
            tools.iter().enumerate().map(|(at, tool)| (tool.name.clone(), at)).collect();
        let documents = tools.iter().map(|tool| {
            let path = tool.operation.as_deref().unwrap_or_default();
            Document {
                id: tool.operation.clone().unwrap_or_default(),
                title: tool.original_name().to_owned(),
                text: format!("{} {path}", tool.description),
            }
        });
        let documents = documents.collect();
        tools.extend(discovery_tools()?);
        let gateway = Gateway::new(Catalog::new(Arc::default(), tools, &[], Vec::new()), 10);
        let catalog = gateway.catalog();
        let mut paths = HashMap::new();
        for source in catalog.sdk().sources() {
            for function in &source.functions {
                if let Some(number) = numbers.get(&function.tool.name) {
                    paths.insert(format!("sdk.{}.{}", source.name, function.name), *number);
                }
            }
        }
        Ok(SearchedCatalog { name: name.to_owned(), gateway, catalog, documents, paths, numbers })
    }
}

impl SearchedCatalog {
    /// What an index of it finds, by their numbers.
    pub(super) fn rank_by(
        &self,
        index: &FunctionIndex,
        question: &str,
        limit: usize,
    ) -> Vec<usize> {
        let found = index.search(&self.catalog, question, None, limit).into_iter();
        found.filter_map(|it| self.numbers.get(&it.function.tool.name).copied()).collect()
    }
}

impl QuestionSet {
    pub(super) fn title(&self) -> String {
        let of = &self.catalog.name;
        match self.family {
            QuestionFamily::Retrieval => of.clone(),
            QuestionFamily::Summary => format!("{of}: summaries"),
            QuestionFamily::Path => format!("{of}: paths"),
            QuestionFamily::Everyday => format!("{of}: everyday"),
            QuestionFamily::Bundle => format!("{of}: bundles"),
        }
    }
}

/// The functions of one API, by what they are asked for.
struct ApiFunctions<'a> {
    catalog: &'a SearchedCatalog,
    functions: Vec<ApiFunction>,
}

struct ApiFunction {
    number: usize,
    tool: Arc<Tool>,
}

impl ApiFunction {
    /// The summary, or where the document has none the first sentence.
    fn summary_line(&self) -> Option<String> {
        let tool = &*self.tool;
        let line = tool.summary.as_deref().unwrap_or_else(|| {
            moonlark_discovery::text_index::split_first_sentence(&tool.description).0
        });
        (!line.trim().is_empty()).then(|| line.to_owned())
    }

    fn path_question(&self) -> Option<String> {
        let (method, path) = self.tool.operation.as_deref()?.split_once(' ')?;
        ask_by_path(method, path)
    }
}

impl<'a> ApiFunctions<'a> {
    fn new(catalog: &'a SearchedCatalog) -> ApiFunctions<'a> {
        let mut functions = Vec::new();
        for source in catalog.catalog.sdk().sources() {
            for function in &source.functions {
                let path = format!("sdk.{}.{}", source.name, function.name);
                if let Some(number) = catalog.paths.get(&path) {
                    functions.push(ApiFunction { number: *number, tool: function.tool.clone() });
                }
            }
        }
        functions.sort_by_key(|it| it.number);
        ApiFunctions { catalog, functions }
    }

    /// One question for all functions that are asked for in the same words: each of them
    /// is a part.
    fn questions_by(&self, ask: fn(&ApiFunction) -> Option<String>) -> Vec<AskedQuestion> {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for function in &self.functions {
            if let Some(text) = ask(function) {
                groups.entry(text).or_default().push(function.number);
            }
        }
        let part = |number: usize| HashMap::from([(number, 1.0)]);
        let groups = groups.into_iter();
        groups
            .map(|(text, numbers)| AskedQuestion {
                text,
                parts: numbers.into_iter().map(part).collect(),
            })
            .collect()
    }

    fn asked_questions(
        &self,
        file: &QuestionFile,
        wanted: fn(usize) -> bool,
    ) -> Result<Vec<AskedQuestion>> {
        let documents = self.catalog.documents.iter().enumerate();
        let numbers: HashMap<&str, usize> =
            documents.map(|(number, it)| (it.id.as_str(), number)).collect();
        let entries = file.questions.iter().filter(|it| wanted(it.parts.len()));
        entries
            .map(|entry| {
                let part = |operations: &Vec<String>| {
                    let find = |operation: &String| {
                        let number = numbers.get(operation.as_str()).copied();
                        let number = number.with_context(|| format!("there is no {operation}"))?;
                        anyhow::Ok((number, 1.0))
                    };
                    operations.iter().map(find).collect::<Result<HashMap<_, _>>>()
                };
                let parts = entry.parts.iter().map(part).collect::<Result<Vec<_>>>()?;
                Ok(AskedQuestion { text: entry.ask.clone(), parts })
            })
            .collect()
    }
}
