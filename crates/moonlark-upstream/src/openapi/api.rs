//! One API: its document, and a tool for each of its operations.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};

use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use moonlark_core::content::Answer;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Body, Expose, Scope, Shown, Source, SourceKind, Tool};
use moonlark_core::value::{Object, shorten};
use moonlark_core::{Call, Place, Problem, Result, Value};
use serde_json::Value as Json;
use url::Url;

use super::document::Document;
use super::exchange::{Exchange, OWN};
use super::input::{self, Given};
use super::operation::{self, Operation, Plan};
use super::pace::{Pace, Rate};
use super::request;
use super::rules::Rule;
use super::security::{self, Credentials};
use super::tokens::Tokens;
use super::tree::Branch;
use super::{output, pages, swagger};
use crate::mcp::SecretText;

/// What the operator decides about one API.
#[derive(Clone)]
pub struct ApiSettings {
    pub name: String,
    /// How messages call its document.
    pub file: String,
    /// Where it is, if not where the document says.
    pub base_url: Option<Url>,
    pub credentials: Credentials,
    /// Go with every request.
    pub headers: Vec<(String, SecretText)>,
    /// Arguments that are always the same, and that nobody sees.
    pub frozen: BTreeMap<String, Value>,
    /// If there are any, only these.
    pub include: Vec<Rule>,
    pub exclude: Vec<Rule>,
    pub rate: Option<Rate>,
    pub concurrency: Option<usize>,
    pub expose: Expose,
    /// What stands before its tools' names; `NAME__` if nothing is said.
    pub prefix: Option<String>,
    pub scope: Arc<Scope>,
}

impl ApiSettings {
    /// An API about which nothing was decided.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            file: name.to_owned(),
            base_url: None,
            credentials: Credentials::default(),
            headers: Vec::new(),
            frozen: BTreeMap::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            rate: None,
            concurrency: None,
            expose: Expose::Code,
            prefix: None,
            scope: Arc::default(),
        }
    }
}

struct Shared {
    settings: ApiSettings,
    document: Arc<Document>,
    operations: Vec<(Operation, OnceLock<Box<Needed>>)>,
    headers: HeaderMap,
    pace: Pace,
    tokens: Tokens,
}

/// What a call needs, kept from the first one on.
struct Needed {
    plan: Plan,
    given: Given,
}

/// The tools of an API, and what of its document cannot be used.
pub fn tools(settings: ApiSettings, document: Arc<Document>) -> Result<(Vec<Tool>, Vec<Problem>)> {
    let (mut operations, skipped) = operation::all(&document);
    let wanted = |it: &Operation| {
        let ApiSettings { include, exclude, .. } = &settings;
        (include.is_empty() || include.iter().any(|rule| rule.fits(it)))
            && !exclude.iter().any(|rule| rule.fits(it))
    };
    operations.retain(wanted);
    name_apart(&mut operations);
    let at = |problem: Problem| problem.at(Place::file(settings.file.clone()));
    let problems = skipped.into_iter().map(|it| {
        at(Problem::bad_script(format!("{} is left out: {}", it.operation, shorten(&it.why))))
    });
    let mut problems: Vec<Problem> = problems.collect();
    // The tools have these from now on.
    let said: Vec<(String, Vec<String>)> = operations
        .iter_mut()
        .map(|it| (std::mem::take(&mut it.description), std::mem::take(&mut it.tags)))
        .collect();
    let client = OWN.as_ref().map_err(Clone::clone)?.clone();
    let shared = Arc::new(Shared {
        operations: operations.into_iter().map(|it| (it, OnceLock::new())).collect(),
        headers: fixed_headers(&settings)?,
        pace: Pace::new(settings.rate, settings.concurrency),
        tokens: Tokens::new(&settings.name, client, settings.scope.secrets.clone()),
        document,
        settings,
    });
    if !shared.operations.is_empty()
        && let Err(problem) = shared.base(&shared.read(0).plan)
    {
        problems.push(problem.at(Place::file(shared.settings.file.clone())));
    }
    let source = Arc::new(Source { kind: SourceKind::Api, name: shared.settings.name.clone() });
    let tools =
        said.into_iter().enumerate().map(|(index, said)| tool(&shared, index, said, &source));
    Ok((tools.collect(), problems))
}

fn fixed_headers(settings: &ApiSettings) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let bad = || {
            let place = format!("apis.{}.headers.{name}", settings.name);
            Problem::bad_config("this cannot be sent as a header").at(Place::file(place))
        };
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value.expose()).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Of operations with the same name, the later ones get numbers.
fn name_apart(operations: &mut [Operation]) {
    let mut taken: HashSet<String> = HashSet::new();
    for operation in operations {
        let numbered = (2..).map(|number| format!("{}_{number}", operation.id));
        let mut names = std::iter::once(operation.id.clone()).chain(numbered);
        if let Some(free) = names.find(|name| !taken.contains(name)) {
            operation.id = free;
        }
        taken.insert(operation.id.clone());
    }
}

fn tool(
    shared: &Arc<Shared>,
    index: usize,
    (description, tags): (String, Vec<String>),
    source: &Arc<Source>,
) -> Tool {
    let (operation, _) = &shared.operations[index];
    let ApiSettings { name, prefix, expose, scope, .. } = &shared.settings;
    let input = {
        let shared = shared.clone();
        Schema::deferred(move || shared.input(index))
    };
    let make = |name: String, raw: bool| {
        let shared = shared.clone();
        let body = Body::answering(move |call, args| {
            let shared = shared.clone();
            async move { shared.call(index, &call, args, raw).await }
        });
        let mut tool = Tool::new(name, source.clone(), input.clone(), body);
        tool.description = description.clone();
        tool.effects = operation.effects();
        tool.scope = scope.clone();
        tool
    };
    let mut raw = make(format!("{name}.{}:raw", operation.id), true);
    (raw.shown, raw.expose) = (Shown::Not, Expose::Hidden);
    let mut tool = make(format!("{name}.{}", operation.id), false);
    let prefix = prefix.clone().unwrap_or_else(|| format!("{name}__"));
    tool.shown = Shown::As(plain(&format!("{prefix}{}", operation.id)));
    tool.expose = *expose;
    tool.tags = tags;
    tool.output = {
        let known = shared.clone();
        let node = operation.node(&shared.document);
        let has = node.is_some_and(|node| output::exists(&shared.document, node));
        has.then(|| Schema::deferred_description(move || known.output(index)))
    };
    tool.raw = Some(Arc::new(raw));
    tool
}

/// A name that every client takes.
fn plain(name: &str) -> String {
    let allowed = |it: char| it.is_ascii_alphanumeric() || "_-".contains(it);
    let name: String = name.chars().map(|it| if allowed(it) { it } else { '_' }).collect();
    name.chars().take(128).collect()
}

impl Shared {
    fn input(&self, index: usize) -> serde_json::Map<String, Json> {
        let Needed { plan, given } = self.read(index);
        let is_frozen = |name: &str| self.settings.frozen.contains_key(name);
        input::schema(&self.document, &plan, &given, &is_frozen)
    }

    fn output(&self, index: usize) -> serde_json::Map<String, Json> {
        let node = self.operations[index].0.node(&self.document);
        node.and_then(|node| output::schema(&self.document, node)).unwrap_or_default()
    }

    fn read(&self, index: usize) -> Needed {
        let mut plan = self.operations[index].0.plan(&self.document);
        let own = plan.security.as_ref().map(|it| it.node(&self.document));
        let credentials = &self.settings.credentials;
        // What we add ourselves is nobody's to give.
        plan.params.retain(|it| {
            !security::covers(&self.document, own, credentials, it.place.word(), &it.name)
        });
        let given = input::given(&self.document, &plan);
        Needed { plan, given }
    }

    async fn call(&self, index: usize, call: &Call, args: Value, raw: bool) -> Result<Answer> {
        let (operation, needed) = &self.operations[index];
        let Needed { plan, given } = &**needed.get_or_init(|| Box::new(self.read(index)));
        let name = &self.settings.name;
        let Value::Object(args) = args else {
            return Err(Problem::bad_request("the arguments must be a table"));
        };
        let base = self.base(plan)?;
        let filled = self.with_frozen(plan, given, args.clone());
        let mut request = request::build(&base, &operation.path, plan, given, filled)?;
        let shown = address(&request.url);
        let before = request.url.clone();
        request.headers.entry(ACCEPT).or_insert(HeaderValue::from_static(
            "application/json, application/*+json;q=0.9, */*;q=0.5",
        ));
        request.headers.extend(self.headers.clone());
        let security = plan.security.as_ref().map(|it| it.node(&self.document));
        let credentials = &self.settings.credentials;
        let proofs = security::proofs(&self.document, security, credentials, &self.tokens).await?;
        security::apply(&proofs, &mut request.url, &mut request.headers)?;
        let exchange = Exchange {
            api: name,
            call,
            method: operation.method.clone(),
            template: &operation.path,
            read_only: operation.effects().read_only,
            secret_headers: &self.headers,
        };
        let turn = self.pace.turn().await;
        let read = exchange.run(&request).await?;
        drop(turn);
        if read.status.as_u16() == 401 {
            self.tokens.forget().await;
        }
        if raw {
            let next = match read.status.is_success() {
                true => {
                    let (headers, body) = (&read.headers, read.body());
                    pages::next(&self.document, plan, &args, &before, headers, &body)
                }
                false => None,
            };
            return Ok(Answer::Value(read.raw(next)));
        }
        match read.status.is_success() || read.status.as_u16() == 304 {
            true => Ok(read.into_answer(&shown)),
            false => Err(read.problem(name, &format!("{name}.{}", operation.id))),
        }
    }

    /// The arguments with those that are always the same.
    fn with_frozen(&self, plan: &Plan, given: &Given, mut args: Object) -> Object {
        let takes = |name: &str| {
            let fields = matches!(given, Given::Fields(names) if names.iter().any(|it| it == name));
            let whole = name == "body" && plan.body.is_some();
            fields || whole || plan.params.iter().any(|param| param.arg == name)
        };
        for (name, value) in self.settings.frozen.iter().filter(|(name, _)| takes(name)) {
            args.insert(name.clone(), value.clone());
        }
        args
    }

    /// The address that the operation's path begins at.
    fn base(&self, plan: &Plan) -> Result<Url> {
        if let Some(url) = &self.settings.base_url {
            return Ok(url.clone());
        }
        let root = self.document.root().json;
        let servers = match (self.document.swagger, &plan.servers) {
            (true, _) => Some(swagger::servers(root)),
            (false, Some(own)) => Some(own.clone()),
            (false, None) => root.get("servers").map(Branch::to_json),
        };
        let first = servers.as_ref().and_then(Json::as_array).and_then(|all| all.first());
        let text = first.map(expand).unwrap_or_else(|| "/".to_owned());
        let url = Url::parse(&text).ok().or_else(|| self.document.base.as_ref()?.join(&text).ok());
        url.filter(|url| matches!(url.scheme(), "http" | "https")).ok_or_else(|| {
            let name = &self.settings.name;
            Problem::bad_config(format!("the document of API '{name}' does not say where it is"))
                .hint(format!("set base_url of apis.{name}"))
        })
    }
}

/// The address of a server with its variables at their defaults.
fn expand(server: &Json) -> String {
    let mut text = server.get("url").and_then(Json::as_str).unwrap_or("/").trim().to_owned();
    for (name, variable) in server.get("variables").and_then(Json::as_object).into_iter().flatten()
    {
        let default = variable.get("default").map(|it| it.to_string().replace('"', ""));
        text = text.replace(&format!("{{{name}}}"), &default.unwrap_or_default());
    }
    text
}

/// An address without its query, which may hold more than the reader may see.
fn address(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.into()
}
