//! MCP, by the official SDK: over stdio and Streamable HTTP.
//!
//! Under 2026-07-28 every request stands by itself; older clients have a
//! session. Both are served by the same handler, which keeps nothing about a
//! client but what an old one asked for: a log level, and resources to watch.
//!
//! Here stand the requests. What each does with the gateway is below: [`call`]
//! for whatever runs, [`offers`] for what sources have beside tools,
//! [`changes`] and [`wishes`] for what clients are told.

#![expect(
    deprecated,
    reason = "old clients still subscribe and set levels; the SDK marks that for removal"
)]

mod answer;
mod caching;
mod call;
mod caller;
mod changes;
mod content_kinds;
mod notify;
mod offers;
mod parked;
mod sessions;
mod straight;
mod tools;
mod wishes;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::request::Parts;
use moonlark_core::content::Answer;
use moonlark_core::offers::{Offers, of_prompt, of_uri};
use moonlark_core::tool::SourceKind;
use moonlark_core::{Caller, Catalog, Code, Gateway, Problem, Value};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, DiscoverResult, ErrorData, GetPromptRequestParams, GetPromptResponse,
    GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams, InitializeResult,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    LoggingLevel, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::SessionRestoreMarker;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::VERSION;
use crate::who::Who;
use answer::{AnswerForm, asks, of_request, of_tool, refusal};
use caching::ListCaching;
use call::Callee;
use caller::{Sequel, Session, caller_of, is_modern};
use changes::BegunSubscriptions;
use content_kinds::ContentKinds;
use notify::Wants;
use sessions::OpenedSession;
use tools::{Listing, ListingCache, page};
use wishes::Wishes;

pub use sessions::SessionVault;
pub(crate) use sessions::Sessions;
pub(crate) use straight::{PlainCall, Straight, plain_call};

/// How long a client waits for scripts before it is told what this server is.
const MAX_INTRODUCTION_WAIT: Duration = Duration::from_secs(1);

/// The service behind `/mcp`.
pub(crate) fn http_service(
    mcp: Mcp,
    sessions: Arc<Sessions>,
    request_body: usize,
    stop: CancellationToken,
) -> StreamableHttpService<Mcp, Sessions> {
    let mut config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        // Whether a stream begins with an event without data depends on the version
        // that the session speaks.
        .with_sse_retry(None)
        .with_max_request_body_bytes(request_body)
        .with_cancellation_token(stop)
        // Host and Origin are checked in front of every route; see `access`.
        .disable_allowed_hosts()
        .disable_allowed_origins();
    config.session_store = Some(sessions.store());
    StreamableHttpService::new(move || Ok(mcp.for_client()), sessions, config)
}

#[derive(Clone)]
pub(crate) struct Mcp {
    gateway: Gateway,
    listings: Arc<ListingCache>,
    /// What an old client asked to be told.
    wishes: Arc<Wishes>,
    session: Arc<Session>,
    /// What a modern one asked to be told, before it is acknowledged.
    begun: Arc<BegunSubscriptions>,
    /// The client will ask nothing more.
    pub(crate) gone: CancellationToken,
    /// The client waits for nothing more either.
    pub(crate) left: CancellationToken,
}

impl Mcp {
    pub(crate) fn new(gateway: Gateway, who: Who) -> Self {
        Self {
            gateway,
            listings: Arc::default(),
            wishes: Arc::default(),
            session: Arc::new(Session::new(next_owner(), who)),
            begun: Arc::default(),
            gone: CancellationToken::new(),
            left: CancellationToken::new(),
        }
    }

    /// The same server for another client: what it serves is shared.
    fn for_client(&self) -> Self {
        let who = Who::now().unwrap_or_else(|| self.session.who.clone());
        Self { listings: self.listings.clone(), ..Mcp::new(self.gateway.clone(), who) }
    }

    /// The same server for one request of a client that keeps no connection.
    fn for_request(&self, who: Who) -> Self {
        Self { session: Arc::new(Session::new(next_owner(), who)), ..self.clone() }
    }

    /// Whoever began to talk to us, where it is not said who makes a request.
    fn first_caller(&self) -> Caller {
        self.session.who.caller("mcp")
    }

    /// The tools as MCP shows them to a caller, made once per catalog.
    fn listing(&self, caller: &Caller) -> Arc<Listing> {
        self.listing_of(&self.gateway.catalog_for(caller))
    }

    fn listing_of(&self, catalog: &Arc<Catalog>) -> Arc<Listing> {
        self.listings.of(catalog, self.gateway.identity().schemas)
    }

    /// The same for one request. Clients ask once what there is, so a server that has
    /// just started answers when it knows.
    async fn listing_for(&self, context: &RequestContext<RoleServer>) -> Arc<Listing> {
        self.listing_of(&self.settled_catalog_for(context).await)
    }

    async fn settled_catalog_for(&self, context: &RequestContext<RoleServer>) -> Arc<Catalog> {
        self.gateway.settled_catalog(&caller_of(context, &self.session)).await
    }

    /// The catalog for a request about something that `is_known` finds, or does not
    /// find because its source has not connected yet.
    async fn catalog_with(
        &self,
        context: &RequestContext<RoleServer>,
        is_known: impl Fn(&Catalog) -> bool + Send,
    ) -> Arc<Catalog> {
        let catalog = self.gateway.catalog_for(&caller_of(context, &self.session));
        if is_known(&catalog) { catalog } else { self.settled_catalog_for(context).await }
    }

    fn catalog_for(&self, context: &RequestContext<RoleServer>) -> Arc<Catalog> {
        self.gateway.catalog_for(&caller_of(context, &self.session))
    }

    /// Let scripts that load in a moment be part of what a client is told first.
    async fn await_scripts(&self) {
        let caller = self.first_caller();
        let loaded = self.gateway.loaded(&caller);
        let _ = tokio::time::timeout(MAX_INTRODUCTION_WAIT, loaded).await;
    }

    fn caching(&self, context: &RequestContext<RoleServer>) -> ListCaching {
        ListCaching::for_caller(&self.gateway, &caller_of(context, &self.session))
    }

    /// What this request wants to be told: modern clients say so in the request
    /// and otherwise want nothing.
    fn wants(&self, context: &RequestContext<RoleServer>) -> Wants {
        let level = match is_modern(context) {
            true => context.meta.log_level(),
            false => Some(self.wishes.level().unwrap_or(LoggingLevel::Info)),
        };
        Wants { progress: context.meta.get_progress_token(), level }
    }

    async fn tool(
        &self,
        name: String,
        args: Result<Value, Problem>,
        sequel: Sequel,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let form = AnswerForm::for_request(&context);
        let ended = match args {
            Ok(args) => self.run(Callee::Named(name), args, sequel, context).await,
            Err(problem) => Err(problem),
        };
        of_tool(ended, form)
    }

    async fn run(
        &self,
        callee: Callee,
        args: Value,
        sequel: Sequel,
        context: RequestContext<RoleServer>,
    ) -> Result<Answer, Problem> {
        let wants = self.wants(&context);
        let called = call::call(&self.gateway, callee, args, sequel, context, wants, &self.session);
        tokio::select! {
            ended = called => ended,
            // Dropping the call stops everything it started.
            () = self.left.cancelled() => {
                Err(Problem::new(Code::Cancelled, "the client has left"))
            }
        }
    }

    /// Pass a request on to the source it is for.
    async fn pass_on(
        &self,
        offers: &Offers,
        method: &str,
        params: impl Serialize,
        sequel: Sequel,
        context: RequestContext<RoleServer>,
    ) -> Result<Answer, Problem> {
        let mut params = json!(params);
        if let Json::Object(fields) = &mut params {
            // They are in the context, and in the sequel.
            fields.retain(|key, _| {
                !matches!(key.as_str(), "_meta" | "requestState" | "inputResponses")
            });
        }
        let args = Value::from_json(json!({"method": method, "params": params}))?;
        self.run(Callee::Door(offers.door.clone()), args, sequel, context).await
    }
}

impl ServerHandler for Mcp {
    fn get_info(&self) -> ServerConfig {
        let catalog = self.gateway.catalog_for(&self.first_caller());
        let mut info = ServerConfig::new(offers::capabilities(&catalog));
        let identity = self.gateway.identity();
        info.server_info = Implementation::new(&identity.name, VERSION);
        let ours = offers::instructions(&catalog);
        info.instructions = Some(match &identity.instructions {
            Some(theirs) => format!("{}\n\n{ours}", theirs.trim()),
            None => ours,
        });
        info
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        self.await_scripts().await;
        context.peer.set_peer_info(request.clone());
        let opened = context.extensions.get::<Parts>();
        let opened = opened.and_then(|parts| parts.extensions.get::<OpenedSession>());
        if let Some(level) = opened.and_then(OpenedSession::earlier_level) {
            let caller = caller_of(&context, &self.session);
            self.wishes.hear(&self.gateway, &caller, level, &context.peer);
        }
        self.negotiate_initialize(&request)
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        self.await_scripts().await;
        let versions = self.supported_protocol_versions().into_owned();
        let ListCaching { ttl_ms, scope } = self.caching(&context);
        let discovered = DiscoverResult::from_server_info(versions, self.get_info());
        Ok(discovered.with_ttl_ms(ttl_ms).with_cache_scope(scope))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listing = self.listing_for(&context).await;
        let (tools, next) = page(listing.tools(), request)?;
        let mut page = ListToolsResult::with_all_items(tools);
        page.next_cursor = next;
        if is_modern(&context) {
            let ListCaching { ttl_ms, scope } = self.caching(&context);
            page = page.with_ttl_ms(ttl_ms).with_cache_scope(scope);
        }
        Ok(page)
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        self.listing(&self.first_caller()).with_headers(name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let sequel = Sequel { state: request.request_state, responses: request.input_responses };
        let args = Value::from_json(request.arguments.unwrap_or_default().into());
        self.tool(request.name.into_owned(), args, sequel, context).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let (resources, next) = page(self.listing_for(&context).await.resources(), request)?;
        let mut page = ListResourcesResult::with_all_items(resources);
        page.next_cursor = next;
        if is_modern(&context) {
            let ListCaching { ttl_ms, scope } = self.caching(&context);
            page = page.with_ttl_ms(ttl_ms).with_cache_scope(scope);
        }
        Ok(page)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let (templates, next) = page(self.listing_for(&context).await.templates(), request)?;
        let mut page = ListResourceTemplatesResult::with_all_items(templates);
        page.next_cursor = next;
        if is_modern(&context) {
            let ListCaching { ttl_ms, scope } = self.caching(&context);
            page = page.with_ttl_ms(ttl_ms).with_cache_scope(scope);
        }
        Ok(page)
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let (prompts, next) = page(self.listing_for(&context).await.prompts(), request)?;
        let mut page = ListPromptsResult::with_all_items(prompts);
        page.next_cursor = next;
        if is_modern(&context) {
            let ListCaching { ttl_ms, scope } = self.caching(&context);
            page = page.with_ttl_ms(ttl_ms).with_cache_scope(scope);
        }
        Ok(page)
    }

    async fn read_resource(
        &self,
        mut request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        // What Moonlark offers itself says what there is.
        let is_known = |catalog: &Catalog| {
            let offers = of_uri(catalog.offers(), &request.uri);
            offers.is_some_and(|it| it.source.kind != SourceKind::Builtin)
        };
        let catalog = self.catalog_with(&context, is_known).await;
        let Some(offers) = of_uri(catalog.offers(), &request.uri) else {
            let data = Some(json!({"uri": request.uri}));
            return Err(ErrorData::resource_not_found("no source has this resource", data));
        };
        let sequel = Sequel {
            state: request.request_state.take(),
            responses: request.input_responses.take(),
        };
        let ended = self.pass_on(offers, "resources/read", request, sequel, context).await;
        match asks(&ended) {
            true => of_request(ended).map(ReadResourceResponse::InputRequired),
            false => of_request(ended).map(ReadResourceResponse::Complete),
        }
    }

    async fn get_prompt(
        &self,
        mut request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let is_known = |catalog: &Catalog| of_prompt(catalog.offers(), &request.name).is_some();
        let catalog = self.catalog_with(&context, is_known).await;
        let Some(offers) = of_prompt(catalog.offers(), &request.name) else {
            let problem = Problem::new(Code::NotFound, "no source has a prompt of this name");
            return Err(refusal(problem));
        };
        let sequel = Sequel {
            state: request.request_state.take(),
            responses: request.input_responses.take(),
        };
        let kinds = ContentKinds::known_to_client(&context);
        let mut ended = self.pass_on(offers, "prompts/get", request, sequel, context).await;
        if let Ok(Answer::Raw(result)) = &mut ended {
            kinds.adapt_messages(result);
        }
        match asks(&ended) {
            true => of_request(ended).map(GetPromptResponse::InputRequired),
            false => of_request(ended).map(GetPromptResponse::Complete),
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let is_known = |catalog: &Catalog| offers::of_reference(catalog, &request.r#ref).is_some();
        let catalog = self.catalog_with(&context, is_known).await;
        match offers::of_reference(&catalog, &request.r#ref) {
            Some(offers) => of_request(
                self.pass_on(offers, "completion/complete", request, Sequel::default(), context)
                    .await,
            ),
            // Nobody has anything to suggest.
            None => Ok(CompleteResult::default()),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let catalog = self.catalog_for(&context);
        let offers = offers::of_task(&catalog, &request.task_id)?;
        of_request(self.pass_on(offers, "tasks/get", request, Sequel::default(), context).await)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let catalog = self.catalog_for(&context);
        let offers = offers::of_task(&catalog, &request.task_id)?;
        // Here the responses are what it is about.
        let sequel =
            Sequel { responses: Some(request.input_responses.clone()), ..Sequel::default() };
        let ended = self.pass_on(offers, "tasks/update", request, sequel, context).await;
        ended.map(|_| ()).map_err(refusal)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let catalog = self.catalog_for(&context);
        let offers = offers::of_task(&catalog, &request.task_id)?;
        let ended = self.pass_on(offers, "tasks/cancel", request, Sequel::default(), context).await;
        ended.map(|_| ()).map_err(refusal)
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // Modern clients say it with each request, and hear of nothing else.
        if !is_modern(&context) {
            let caller = caller_of(&context, &self.session);
            self.wishes.hear(&self.gateway, &caller, request.level, &context.peer);
            let opened = context.extensions.get::<Parts>();
            let opened = opened.and_then(|parts| parts.extensions.get::<OpenedSession>());
            if let Some(opened) = opened {
                opened.keep_level(request.level).await;
            }
        }
        let catalog = self.catalog_for(&context);
        for offers in catalog.offers().iter().filter(|it| it.capabilities.contains_key("logging")) {
            let params = json!({"level": request.level});
            let passed = self.pass_on(
                offers,
                "logging/setLevel",
                params,
                Sequel::default(),
                context.clone(),
            );
            // Its own level stays, and ours holds in any case.
            let _ = passed.await;
        }
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let caller = caller_of(&context, &self.session);
        let is_known = |catalog: &Catalog| of_uri(catalog.offers(), &request.uri).is_some();
        self.catalog_with(&context, is_known).await;
        let call = self.gateway.open_in_turn(caller, None, None).await.map_err(refusal)?;
        self.wishes.watch(&call, request.uri, &context.peer).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.wishes.unwatch(&request.uri);
        Ok(())
    }

    /// An old client has connected: tell it from now on when something changes.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let caller = self.session.who(&context.extensions).caller("mcp");
        // A session that was taken up may know lists that another process had.
        let taken_up = context.extensions.get::<SessionRestoreMarker>().is_some();
        tokio::spawn(changes::tell(self.gateway.clone(), caller, context.peer, taken_up));
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(self.begun.begin(&self.gateway, &self.first_caller(), requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let caller = caller_of(context.request_context(), &self.session);
        changes::listen(&self.gateway, &caller, &self.gone, &self.begun, context).await;
        Ok(())
    }
}

/// A number that no other client has.
fn next_owner() -> u64 {
    static OWNERS: AtomicU64 = AtomicU64::new(1);
    OWNERS.fetch_add(1, Ordering::Relaxed)
}

/// The name as rmcp takes it.
fn owned(text: &str) -> Cow<'static, str> {
    Cow::Owned(text.to_owned())
}
