//! One API: its document, and a tool for each of its operations.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use http::header::{ACCEPT, COOKIE, HeaderMap, HeaderName, HeaderValue};
use moonlark_core::catalog::numbered_until_free;
use moonlark_core::content::ToolAnswer;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{
    CallEffects, CallScope, Source, SourceKind, Tool, ToolExposure, ToolListing,
};
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, Result, SourceLocation, Value};
use moonlark_gateway::Call;
use moonlark_gateway::tool_body::ToolBody;
use serde_json::Value as Json;
use url::Url;

use crate::api_credentials::{self, ApiCredentials, CredentialChoice};
use crate::api_exchange::{API_HTTP_CLIENT, ApiExchange};
use crate::api_rate_limiter::{ApiRateLimiter, CallRate};
use crate::client_credentials::ApiTokenCache;
use crate::document_tree::TreeNode;
use crate::openapi_document::OpenApiDocument;
use crate::operation::{self, ApiOperation, OperationPlan};
use crate::operation_input::{self, BodyArguments};
use crate::operation_rules::{HTTP_METHOD_NAMES, OperationRule};
use crate::parameter::ParamLocation;
use crate::request_builder;
use crate::secret_origins::{AuthHost, OriginMemory, SecretOrigins};
use crate::{operation_output, pagination, swagger};
use moonlark_core::foreign_text::{MAX_DESCRIPTION_BYTES, MAX_TAG_BYTES, clean_text};
use moonlark_core::secret::SecretText;
use moonlark_core::tool_config::{SourceKey, ToolConfig};

/// Flaws of one kind that are told one by one.
const MAX_FLAWS_OF_ONE_KIND: usize = 20;

/// What the operator decides about one API.
#[derive(Clone, Default)]
pub struct ApiSettings {
    pub name: String,
    /// How messages call its document.
    pub file: String,
    /// Where it is, if not where the document says.
    pub base_url: Option<Url>,
    pub credentials: ApiCredentials,
    /// Go with every request.
    pub headers: Vec<(String, SecretText)>,
    /// Further hosts that may be sent the credentials and headers.
    pub auth_hosts: Vec<AuthHost>,
    /// For a document from the web: where it is kept what it said first.
    pub memory: Option<OriginMemory>,
    /// Arguments that are always the same, and that nobody sees.
    pub frozen: BTreeMap<String, Value>,
    /// Those of them that are secrets.
    pub secret_frozen: BTreeSet<String>,
    /// What the operator says about single operations, by their own names.
    pub tools: BTreeMap<String, ToolConfig>,
    /// If there are any, only these.
    pub include: Vec<OperationRule>,
    pub exclude: Vec<OperationRule>,
    pub rate: Option<CallRate>,
    pub concurrency: Option<usize>,
    pub expose: ToolExposure,
    /// What stands before its tools' names; `NAME__` if nothing is said.
    pub prefix: Option<String>,
    pub scope: Arc<CallScope>,
}

impl ApiSettings {
    /// An API about which nothing was decided.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            file: name.to_owned(),
            expose: ToolExposure::Code,
            ..Self::default()
        }
    }
}

struct ApiState {
    settings: ApiSettings,
    document: Arc<OpenApiDocument>,
    /// Each with what its calls need, kept from the first one on.
    operations: Vec<(ApiOperation, OnceLock<Box<OperationPlan>>)>,
    headers: HeaderMap,
    pace: ApiRateLimiter,
    tokens: ApiTokenCache,
    home: SecretOrigins,
}

/// The tools of an API, and what of its document cannot be used. Reads and writes
/// what is remembered of the document, so it belongs on a blocking thread.
pub fn build_api_tools(
    settings: ApiSettings,
    document: Arc<OpenApiDocument>,
) -> Result<(Vec<Tool>, Vec<Problem>)> {
    let (mut operations, skipped) = operation::list_operations(&document);
    let at = |problem: Problem| problem.at_location(SourceLocation::in_file(settings.file.clone()));
    let problems = skipped.into_iter().map(|it| {
        at(Problem::bad_script(format!("{} is left out: {}", it.operation, shorten_text(&it.why))))
    });
    let mut problems: Vec<Problem> = problems.collect();
    problems.extend(unused_rule_problems(&settings, &operations));
    let mut known_ids: Vec<String> = operations.iter().map(|it| it.id.clone()).collect();
    let home = build_secret_origins(&settings, &document, &operations);
    let wanted = |it: &ApiOperation| {
        let ApiSettings { include, exclude, .. } = &settings;
        (include.is_empty() || include.iter().any(|rule| rule.matches_operation(it)))
            && !exclude.iter().any(|rule| rule.matches_operation(it))
    };
    operations.retain(wanted);
    problems.extend(make_operation_ids_unique(&mut operations).into_iter().map(at));
    known_ids.extend(operations.iter().filter(|it| it.is_twin()).map(|it| it.id.clone()));
    problems.extend(unknown_tool_problems(&settings, &known_ids));
    // The tools have these from now on.
    let said: Vec<(String, Vec<String>)> = operations
        .iter_mut()
        .map(|it| (std::mem::take(&mut it.description), std::mem::take(&mut it.tags)))
        .collect();
    let too_long = said.iter().filter(|(text, _)| text.len() > MAX_DESCRIPTION_BYTES).count();
    if too_long > 0 {
        problems.push(at(Problem::bad_script(format!(
            "{too_long} descriptions are longer than {}: their beginnings are used",
            moonlark_core::limits::format_size(MAX_DESCRIPTION_BYTES)
        ))));
    }
    let client = API_HTTP_CLIENT.as_ref().map_err(Clone::clone)?.clone();
    let shared = Arc::new(ApiState {
        operations: operations.into_iter().map(|it| (it, OnceLock::new())).collect(),
        headers: fixed_headers(&settings)?,
        pace: ApiRateLimiter::new(settings.rate, settings.concurrency),
        tokens: ApiTokenCache::new(&settings.name, client, settings.scope.secrets.clone()),
        home,
        document,
        settings,
    });
    problems.extend(shared.address_flaws());
    let source = Arc::new(Source { kind: SourceKind::Api, name: shared.settings.name.clone() });
    let tools = said.into_iter().enumerate();
    let tools: Vec<Tool> =
        tools.map(|(index, said)| build_operation_tool(&shared, index, said, &source)).collect();
    let own_names = tools
        .iter()
        .filter_map(|tool| tool.name.strip_prefix(&*shared.settings.name)?.strip_prefix('.'));
    let mut collisions = source_key(&shared.settings).name_collision_problems(own_names);
    collisions.truncate(MAX_FLAWS_OF_ONE_KIND);
    problems.extend(collisions);
    Ok((tools, problems))
}

fn source_key(settings: &ApiSettings) -> SourceKey<'_> {
    SourceKey { table: "apis", name: &settings.name }
}

/// Patterns of the configuration that are about no operation.
fn unused_rule_problems(settings: &ApiSettings, operations: &[ApiOperation]) -> Vec<Problem> {
    let tags: BTreeSet<String> =
        operations.iter().flat_map(|it| &it.tags).map(|tag| format!("tag:{tag}")).collect();
    let ids = operations.iter().map(|it| it.id.as_str());
    let known = ids.chain(tags.iter().map(String::as_str)).chain(HTTP_METHOD_NAMES);
    let mut problems = Vec::new();
    for (word, rules) in [("include", &settings.include), ("exclude", &settings.exclude)] {
        let is_unused =
            |rule: &&OperationRule| !operations.iter().any(|it| rule.matches_operation(it));
        problems.extend(rules.iter().filter(is_unused).map(|rule| {
            source_key(settings).unmatched_pattern_problem(word, &rule.to_string(), known.clone())
        }));
    }
    problems
}

/// Tables of the configuration that are about no operation.
fn unknown_tool_problems(settings: &ApiSettings, known_ids: &[String]) -> Vec<Problem> {
    let known: HashSet<&str> = known_ids.iter().map(String::as_str).collect();
    let unknown = settings.tools.keys().filter(|tool| !known.contains(tool.as_str()));
    let ids = || known_ids.iter().map(String::as_str);
    unknown.map(|tool| source_key(settings).unknown_tool_problem(tool, ids())).collect()
}

/// Where the secrets of the API belong, by what the document says.
fn build_secret_origins(
    settings: &ApiSettings,
    document: &OpenApiDocument,
    operations: &[ApiOperation],
) -> SecretOrigins {
    let origin = |url: Url| url.origin().ascii_serialization();
    let own = |servers: Option<Json>| document_base_url(document, servers);
    let said = own(None).or_else(|| {
        // A document that only says it operation by operation.
        let mut servers = operations.iter().filter(|it| it.has_servers);
        servers.find_map(|it| own(it.read_plan(document).servers))
    });
    let tokens = api_credentials::collect_token_urls(document, &settings.credentials);
    let tokens = tokens.into_iter().map(|(scheme, url)| (scheme, origin(url))).collect();
    let (hosts, memory) = (&settings.auth_hosts, settings.memory.as_ref());
    let home = SecretOrigins::new(&settings.name, hosts, memory, said.map(origin), tokens);
    match &settings.base_url {
        Some(url) => home.with_base_url(url),
        None => home,
    }
}

/// The address that paths begin at where these servers are named, or those of the
/// whole document.
fn document_base_url(document: &OpenApiDocument, own: Option<Json>) -> Option<Url> {
    let root = document.root_node();
    let servers = match (document.swagger, own) {
        (true, _) => Some(swagger::servers_from_host(root)),
        (false, Some(own)) => Some(own),
        (false, None) => root.get("servers").map(TreeNode::to_json),
    };
    let first = servers.as_ref().and_then(Json::as_array).and_then(|all| all.first());
    let text = first.map(expand_server_url).unwrap_or_else(|| "/".to_owned());
    let url = Url::parse(&text).ok().or_else(|| document.base.as_ref()?.join(&text).ok());
    url.filter(|url| matches!(url.scheme(), "http" | "https"))
}

fn fixed_headers(settings: &ApiSettings) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let bad = || {
            let place = format!("apis.{}.headers.{name}", settings.name);
            Problem::bad_config("this cannot be sent as a header")
                .at_location(SourceLocation::in_file(place))
        };
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| bad())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Of operations with the same name, the later ones get numbers, which is said. No
/// number makes it the name that the document gives to another operation.
fn make_operation_ids_unique(operations: &mut [ApiOperation]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let documented: HashSet<String> = operations.iter().map(|it| it.id.clone()).collect();
    let mut taken: HashSet<String> = HashSet::new();
    for operation in operations {
        if taken.contains(&operation.id) {
            let is_taken = |name: &str| taken.contains(name) || documented.contains(name);
            operation.id = numbered_until_free(&operation.id, is_taken);
        }
        if operation.is_twin() {
            problems.push(Problem::bad_script(format!(
                "{} {} has the operationId {} of an earlier operation, and is {}",
                operation.method,
                operation.path,
                shorten_text(&operation.original_id),
                shorten_text(&operation.id)
            )));
        }
        taken.insert(operation.id.clone());
    }
    problems
}

fn build_operation_tool(
    shared: &Arc<ApiState>,
    index: usize,
    (description, tags): (String, Vec<String>),
    source: &Arc<Source>,
) -> Tool {
    let (operation, _) = &shared.operations[index];
    let ApiSettings { name, prefix, expose, scope, .. } = &shared.settings;
    let own_name = shared.own_name(operation);
    let description = match shared.own_config(operation).and_then(|it| it.description.clone()) {
        Some(description) => description,
        None => clean_text(&description, MAX_DESCRIPTION_BYTES).into_owned(),
    };
    let input = {
        let shared = shared.clone();
        Schema::deferred_foreign(move || shared.input_schema(index))
    };
    let make = |name: String, raw: bool| {
        let calling = shared.clone();
        let body = ToolBody::from_answering_fn(move |call, args| {
            let shared = calling.clone();
            async move { shared.call_operation(index, &call, args, raw).await }
        });
        let mut tool = Tool::new(name, source.clone(), input.clone(), body);
        tool.original_name = Some(operation.original_id.clone());
        tool.description = description.clone();
        tool.effects = shared.operation_effects(operation);
        tool.scope = scope.clone();
        tool
    };
    let mut raw = make(format!("{name}.{own_name}:raw"), true);
    (raw.shown, raw.expose) = (ToolListing::Not, ToolExposure::Hidden);
    let mut tool = make(format!("{name}.{own_name}"), false);
    let prefix = prefix.clone().unwrap_or_else(|| format!("{name}__"));
    let shown = if own_name == operation.id { &operation.original_id } else { own_name };
    tool.shown = ToolListing::As(format!("{prefix}{shown}"));
    tool.expose = *expose;
    tool.tags = tags.iter().map(|tag| clean_text(tag, MAX_TAG_BYTES).into_owned()).collect();
    let node = operation.find_node(&shared.document);
    let summary = node.map_or("", |node| node.field_text("summary").trim());
    tool.summary = (!summary.is_empty()).then(|| summary.to_owned());
    tool.operation = Some(format!("{} {}", operation.method, operation.path));
    tool.output = {
        let known = shared.clone();
        let has = node.is_some_and(|node| operation_output::has_output(&shared.document, node));
        has.then(|| Schema::deferred_description(move || known.output_schema(index)))
    };
    tool.raw = Some(Arc::new(raw));
    tool
}

impl ApiState {
    fn input_schema(&self, index: usize) -> serde_json::Map<String, Json> {
        let (plan, operation) = (self.prepare_operation(index), &self.operations[index].0);
        let is_frozen = |name: &str| {
            self.settings.frozen.contains_key(name)
                || self.configs(operation).any(|it| it.arguments.contains_key(name))
        };
        operation_input::build_input_schema(&self.document, &plan, &is_frozen)
    }

    fn output_schema(&self, index: usize) -> serde_json::Map<String, Json> {
        let node = self.operations[index].0.find_node(&self.document);
        node.and_then(|node| operation_output::build_output_schema(&self.document, node))
            .unwrap_or_default()
    }

    fn prepare_operation(&self, index: usize) -> OperationPlan {
        let mut plan = self.operations[index].0.read_plan(&self.document);
        let mut params = std::mem::take(&mut plan.params);
        // What we add ourselves is nobody's to give.
        let choice = self.credential_choice(&plan);
        params.retain(|it| !choice.covers_parameter(it.place.location_name(), &it.name));
        plan.params = params;
        plan.body_arguments = operation_input::choose_body_arguments(&self.document, &plan);
        plan
    }

    fn credential_choice<'a>(&'a self, plan: &'a OperationPlan) -> CredentialChoice<'a> {
        CredentialChoice {
            document: &self.document,
            security: plan.security.as_ref().map(|it| it.to_node(&self.document)),
            credentials: &self.settings.credentials,
        }
    }

    async fn call_operation(
        &self,
        index: usize,
        call: &Call,
        args: Value,
        raw: bool,
    ) -> Result<ToolAnswer> {
        let (operation, plan) = &self.operations[index];
        let plan = &**plan.get_or_init(|| Box::new(self.prepare_operation(index)));
        let name = &self.settings.name;
        let Value::Object(args) = args else {
            return Err(Problem::bad_request("the arguments must be a table"));
        };
        let base = self.base_url(plan)?;
        if self.sends_secret(operation, plan) {
            self.home.check_url(&base)?;
        }
        let mut filled = args.clone();
        let frozen = self.frozen_arguments(operation, plan);
        filled.extend(frozen.map(|(name, value)| (name.clone(), value.clone())));
        let mut request = request_builder::build_request(&base, &operation.path, plan, filled)?;
        self.mark_secret_headers(plan, &mut request.headers);
        let shown = url_without_query(&request.url);
        let before = request.url.clone();
        request.headers.entry(ACCEPT).or_insert(HeaderValue::from_static(
            "application/json, application/*+json;q=0.9, */*;q=0.5",
        ));
        request.headers.extend(self.headers.clone());
        let choice = self.credential_choice(plan);
        let proofs = choice.place_credentials(&self.tokens, &self.home).await?;
        api_credentials::apply_credentials(&proofs, &mut request.url, &mut request.headers)?;
        let exchange = ApiExchange {
            api: name,
            call,
            method: operation.method.clone(),
            template: &operation.path,
            effects: self.operation_effects(operation),
            secret_headers: &self.headers,
            public_only: self.home.from_web && !self.home.covers_url(&base),
        };
        let turn = self.pace.wait_turn().await;
        let read = exchange.send_with_retries(&request).await?;
        drop(turn);
        if read.status.as_u16() == 401 {
            self.tokens.forget_tokens().await;
        }
        if raw {
            let next = read.status.is_success().then(|| {
                let (headers, body) = (&read.headers, read.decode_body());
                pagination::find_next_page(&self.document, plan, &args, &before, headers, &body)
            });
            return Ok(ToolAnswer::Value(read.to_raw_value(next.flatten())));
        }
        if read.status.is_success() || read.status.as_u16() == 304 {
            Ok(read.into_answer(&shown))
        } else {
            Err(read.to_problem(name, &format!("{name}.{}", self.own_name(operation))))
        }
    }

    /// What the operator says about an operation under the very name that it has.
    fn own_config(&self, operation: &ApiOperation) -> Option<&ToolConfig> {
        self.settings.tools.get(&operation.id)
    }

    /// What the operator says about the name that a document gives to this operation
    /// after another. Only what makes calls stricter holds for it as well.
    fn twin_config(&self, operation: &ApiOperation) -> Option<&ToolConfig> {
        self.settings.tools.get(&operation.original_id).filter(|_| operation.is_twin())
    }

    /// Both, its own last.
    fn configs(&self, operation: &ApiOperation) -> impl Iterator<Item = &ToolConfig> {
        self.twin_config(operation).into_iter().chain(self.own_config(operation))
    }

    /// Its name behind that of the API.
    fn own_name<'a>(&'a self, operation: &'a ApiOperation) -> &'a str {
        let given = self.own_config(operation).and_then(|it| it.name.as_deref());
        given.unwrap_or(&operation.id)
    }

    fn operation_effects(&self, operation: &ApiOperation) -> CallEffects {
        let mut effects = operation.effects();
        if let Some(config) = self.twin_config(operation) {
            effects = config.effects.only_stricter().apply_to(effects);
        }
        self.own_config(operation).map_or(effects, |config| config.effects.apply_to(effects))
    }

    /// Headers that are arguments and secrets are treated as such from here on.
    fn mark_secret_headers(&self, plan: &OperationPlan, headers: &mut HeaderMap) {
        let secret = &self.settings.secret_frozen;
        for param in plan.params.iter().filter(|param| secret.contains(&param.arg)) {
            let value = match param.place {
                ParamLocation::Header => headers.get_mut(param.name.as_str()),
                ParamLocation::Cookie => headers.get_mut(COOKIE),
                _ => None,
            };
            value.into_iter().for_each(|value| value.set_sensitive(true));
        }
    }

    /// The fixed arguments that an operation takes, those of its own last.
    fn frozen_arguments<'a>(
        &'a self,
        operation: &ApiOperation,
        plan: &'a OperationPlan,
    ) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let takes = |name: &String| {
            matches!(&plan.body_arguments, BodyArguments::Fields(names) if names.contains(name))
                || (name == "body" && plan.body.is_some())
                || plan.params.iter().any(|param| param.arg == *name)
        };
        let own = self.configs(operation).flat_map(|it| &it.arguments);
        self.settings.frozen.iter().chain(own).filter(move |(name, _)| takes(name))
    }

    /// Whether a call takes along what only the API may see.
    fn sends_secret(&self, operation: &ApiOperation, plan: &OperationPlan) -> bool {
        let secret = &self.settings.secret_frozen;
        !self.headers.is_empty()
            || self.credential_choice(plan).sends_secret()
            || self.frozen_arguments(operation, plan).any(|(name, _)| secret.contains(name))
    }

    /// Addresses in the document that cannot be used, or are not sent our secrets.
    fn address_flaws(&self) -> Vec<Problem> {
        let mut flaws: Vec<Problem> = Vec::new();
        let mut seen = HashSet::new();
        // Operations without servers of their own are all at the same address.
        let mut looked_at_common = false;
        for (index, (operation, _)) in self.operations.iter().enumerate() {
            if !operation.has_servers && looked_at_common {
                continue;
            }
            let plan = self.prepare_operation(index);
            let flaw = match self.base_url(&plan) {
                Ok(base) if self.home.covers_url(&base) => None,
                // One that sends nothing says nothing about the others.
                Ok(_) if !self.sends_secret(operation, &plan) => continue,
                Ok(base) => self.home.check_url(&base).err(),
                Err(problem) => Some(problem),
            };
            looked_at_common |= !operation.has_servers;
            if let Some(flaw) = flaw
                && seen.insert(flaw.message.clone())
            {
                flaws.push(flaw.at_location(SourceLocation::in_file(self.settings.file.clone())));
            }
            if flaws.len() >= MAX_FLAWS_OF_ONE_KIND {
                break;
            }
        }
        flaws
    }

    /// The address that the operation's path begins at.
    fn base_url(&self, plan: &OperationPlan) -> Result<Url> {
        if let Some(url) = &self.settings.base_url {
            return Ok(url.clone());
        }
        document_base_url(&self.document, plan.servers.clone()).ok_or_else(|| {
            let name = &self.settings.name;
            Problem::bad_config(format!("the document of API '{name}' does not say where it is"))
                .with_hint(format!("set base_url of apis.{name}"))
        })
    }
}

/// The address of a server with its variables at their defaults.
fn expand_server_url(server: &Json) -> String {
    let mut text = server.get("url").and_then(Json::as_str).unwrap_or("/").trim().to_owned();
    for (name, variable) in server.get("variables").and_then(Json::as_object).into_iter().flatten()
    {
        let default = variable.get("default").map(|it| it.to_string().replace('"', ""));
        text = text.replace(&format!("{{{name}}}"), &default.unwrap_or_default());
    }
    text
}

/// An address without its query, which may hold more than the reader may see.
fn url_without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.into()
}
