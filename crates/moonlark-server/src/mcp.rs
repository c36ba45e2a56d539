//! MCP, by the official SDK: over stdio and Streamable HTTP.
//!
//! Under 2026-07-28 every request stands by itself; older clients have a
//! session. Both are served by the same handler, which keeps nothing about a
//! client but what an old one asked for: a log level, and resources to watch.
//!
//! Here stand the requests. What each does with the gateway is below: [`resumable_call`]
//! for whatever runs, [`server_capabilities`] for what sources have beside tools,
//! [`change_notifications`] and [`legacy_subscriptions`] for what clients are told.

#![expect(
    deprecated,
    reason = "old clients still subscribe and set levels; the SDK marks that for removal"
)]

mod call_notifications;
mod change_notifications;
mod content_kinds;
mod http_service;
mod legacy_subscriptions;
mod malformed_request;
mod mcp_caller;
mod mcp_fast_path;
mod mcp_listing;
mod own_tasks;
mod plain_call;
mod plain_request;
mod resumable_call;
mod server_capabilities;
mod session_call;
mod sessions;
mod suspended_calls;
mod tool_result;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::request::Parts;
use moonlark_child::spawn_owned;
use moonlark_core::content::ToolAnswer;
use moonlark_core::source_resources::{SourceResources, resources_for_prompt, resources_for_uri};
use moonlark_core::tool::SourceKind;
use moonlark_core::{Catalog, Problem, ProblemCode, Value};
use moonlark_gateway::{Caller, Gateway};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestParams,
    CompleteResult, CustomRequest, CustomResult, DiscoverResult, ErrorData, GetPromptRequestParams,
    GetPromptResponse, GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams,
    InitializeResult, InputResponses, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, LoggingLevel, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::SessionRestoreMarker;
use rmcp::{Peer, RoleServer, ServerHandler};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::{MOONLARK_VERSION, principal::Principal};
use call_notifications::RequestedNotifications;
use content_kinds::ContentKinds;
use legacy_subscriptions::LegacySubscriptions;
use malformed_request::explain_unread_request;
pub(crate) use malformed_request::{explain_unread_body, explain_unread_initialize};
use mcp_caller::{CallContinuation, McpClientSession, caller_from_request, is_modern};
use mcp_listing::{ListCaching, ListPage, McpListing, McpListingCache, paginate_list};
use resumable_call::McpCallee;
use session_call::InterruptedCall;
use sessions::{OpenedSession, SessionEntrance};
use tool_result::{AnswerForm, error_from_problem, requires_input, tool_response, typed_response};

pub(crate) use http_service::http_service;
pub(crate) use mcp_fast_path::McpFastPath;
pub(crate) use plain_call::{PlainCall, PlainCallClient, parse_plain_call};
#[cfg(test)]
pub(crate) use session_call::tests as session_call_cases;
pub use sessions::SessionVault;
pub(crate) use sessions::{McpSessions, check_read_message};

/// How long a client waits for scripts before it is told what this server is.
const MAX_INTRODUCTION_WAIT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct McpServer {
    gateway: Gateway,
    listings: Arc<McpListingCache>,
    /// What an old client asked to be told.
    wishes: Arc<LegacySubscriptions>,
    session: Arc<McpClientSession>,
    /// How an old client is reached, once it has begun.
    peer: Arc<OnceLock<Peer<RoleServer>>>,
    /// The client will ask nothing more.
    pub(crate) gone: CancellationToken,
    /// The client waits for nothing more either.
    pub(crate) left: CancellationToken,
}

impl McpServer {
    pub(crate) fn new(gateway: Gateway, who: Principal) -> Self {
        Self {
            gateway,
            listings: Arc::default(),
            wishes: Arc::default(),
            session: Arc::new(McpClientSession::new(who)),
            peer: Arc::default(),
            gone: CancellationToken::new(),
            left: CancellationToken::new(),
        }
    }

    /// The same server for another client: what it serves is shared.
    fn for_client(&self) -> Self {
        let who = Principal::current().unwrap_or_else(|| self.session.who.clone());
        Self { listings: self.listings.clone(), ..McpServer::new(self.gateway.clone(), who) }
    }

    /// The same server for one request of a client that keeps no connection.
    fn for_request(&self, who: Principal) -> Self {
        Self { session: Arc::new(McpClientSession::new(who)), ..self.clone() }
    }

    /// Whoever began to talk to us, where it is not said who makes a request.
    fn first_caller(&self) -> Caller {
        self.session.who.to_caller("mcp")
    }

    /// The tools as MCP shows them to a caller, made once per catalog.
    fn listing_for_caller(&self, caller: &Caller) -> Arc<McpListing> {
        self.listing_of_catalog(&self.gateway.catalog_for(caller))
    }

    fn listing_of_catalog(&self, catalog: &Arc<Catalog>) -> Arc<McpListing> {
        self.listings.listing_of(catalog, self.gateway.identity().schemas)
    }

    /// The same for one request. Clients ask once what there is, so a server that has
    /// just started answers when it knows.
    async fn listing_for_request(&self, context: &RequestContext<RoleServer>) -> Arc<McpListing> {
        self.listing_of_catalog(&self.settled_catalog_for(context).await)
    }

    async fn settled_catalog_for(&self, context: &RequestContext<RoleServer>) -> Arc<Catalog> {
        self.gateway.settled_catalog(&caller_from_request(context, &self.session)).await
    }

    /// The catalog for a request about something that `is_known` finds, or does not
    /// find because its source has not connected yet.
    async fn catalog_with(
        &self,
        context: &RequestContext<RoleServer>,
        is_known: impl Fn(&Catalog) -> bool + Send,
    ) -> Arc<Catalog> {
        let catalog = self.gateway.catalog_for(&caller_from_request(context, &self.session));
        if is_known(&catalog) { catalog } else { self.settled_catalog_for(context).await }
    }

    fn catalog_for(&self, context: &RequestContext<RoleServer>) -> Arc<Catalog> {
        self.gateway.catalog_for(&caller_from_request(context, &self.session))
    }

    /// Let scripts that load in a moment be part of what a client is told first.
    async fn await_scripts(&self) {
        let caller = self.first_caller();
        let loaded = self.gateway.loaded_catalog(&caller);
        let _ = tokio::time::timeout(MAX_INTRODUCTION_WAIT, loaded).await;
    }

    fn list_caching(&self, context: &RequestContext<RoleServer>) -> ListCaching {
        ListCaching::for_caller(&self.gateway, &caller_from_request(context, &self.session))
    }

    async fn list_page<T: Clone>(
        &self,
        list: fn(&McpListing) -> &Vec<T>,
        request: Option<PaginatedRequestParams>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ListPage<T>, ErrorData> {
        let listing = self.listing_for_request(context).await;
        let (items, next_cursor) = paginate_list(list(&listing), request)?;
        let caching = is_modern(context).then(|| self.list_caching(context));
        let (ttl_ms, cache_scope) = caching.map(|it| (it.ttl_ms, it.scope)).unzip();
        Ok(ListPage { items, next_cursor, ttl_ms, cache_scope })
    }

    /// What this request wants to be told: modern clients say so in the request
    /// and otherwise want nothing.
    fn requested_notifications(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> RequestedNotifications {
        let level = if is_modern(context) {
            context.meta.log_level()
        } else {
            Some(self.wishes.log_level().unwrap_or(LoggingLevel::Info))
        };
        RequestedNotifications { progress: context.meta.get_progress_token(), level }
    }

    async fn call_named_tool(
        &self,
        name: String,
        args: Result<Value, Problem>,
        sequel: CallContinuation,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let form = AnswerForm::for_request(&context);
        let ended = match args {
            Ok(args) => self.run_callee(McpCallee::Named(name), args, sequel, context).await,
            Err(problem) => Err(problem),
        };
        tool_response(ended, form)
    }

    async fn run_callee(
        &self,
        callee: McpCallee,
        args: Value,
        sequel: CallContinuation,
        context: RequestContext<RoleServer>,
    ) -> Result<ToolAnswer, Problem> {
        let wants = self.requested_notifications(&context);
        let called = resumable_call::run_call(
            &self.gateway,
            callee,
            args,
            sequel,
            context,
            wants,
            &self.session,
        );
        tokio::select! {
            ended = called => ended,
            // Dropping the call stops everything it started.
            () = self.left.cancelled() => {
                Err(Problem::new(ProblemCode::Cancelled, "the client has left"))
            }
        }
    }

    /// Pass a request on to the source it is for.
    async fn forward_to_source(
        &self,
        offers: &SourceResources,
        method: &str,
        params: impl Serialize,
        sequel: CallContinuation,
        context: RequestContext<RoleServer>,
    ) -> Result<ToolAnswer, Problem> {
        let mut params = json!(params);
        if let Json::Object(fields) = &mut params {
            // They are in the context, and in the sequel.
            fields.retain(|key, _| {
                !matches!(key.as_str(), "_meta" | "requestState" | "inputResponses")
            });
        }
        let args = Value::from_json(json!({"method": method, "params": params}))?;
        self.run_callee(McpCallee::Door(offers.door.clone()), args, sequel, context).await
    }

    /// The same for a request about a task.
    async fn forward_task_request(
        &self,
        method: &str,
        task_id: &str,
        params: impl Serialize,
        responses: Option<InputResponses>,
        context: RequestContext<RoleServer>,
    ) -> Result<ToolAnswer, ErrorData> {
        let catalog = self.catalog_for(&context);
        let offers = server_capabilities::source_of_task(&catalog, task_id)?;
        let sequel = CallContinuation { state: None, responses };
        let ended = self.forward_to_source(offers, method, params, sequel, context).await;
        ended.map_err(error_from_problem)
    }
}

fn opened_session(context: &RequestContext<RoleServer>) -> Option<&OpenedSession> {
    context.extensions.get::<Parts>()?.extensions.get()
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let catalog = self.gateway.catalog_for(&self.first_caller());
        let mut info = ServerConfig::new(server_capabilities::server_capabilities(&catalog));
        let identity = self.gateway.identity();
        info.server_info = Implementation::new(&identity.name, MOONLARK_VERSION);
        let ours = server_capabilities::agent_instructions(&catalog);
        info.instructions = Some(match &identity.instructions {
            Some(theirs) => format!("{}\n\n{ours}", theirs.trim()),
            None => ours,
        });
        info
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(explain_unread_request(&request))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        self.await_scripts().await;
        context.peer.set_peer_info(request.clone());
        if let Some(level) = opened_session(&context).and_then(OpenedSession::earlier_level) {
            let caller = caller_from_request(&context, &self.session);
            self.wishes.set_log_level(&self.gateway, &caller, level, &context.peer);
        }
        let peer = self.peer.get_or_init(|| context.peer.clone());
        if let Some(entrance) = context.extensions.get::<SessionEntrance>() {
            entrance.connect(self.clone(), peer.clone());
        }
        self.negotiate_initialize(&request)
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        self.await_scripts().await;
        let versions = self.supported_protocol_versions().into_owned();
        let ListCaching { ttl_ms, scope } = self.list_caching(&context);
        let discovered = DiscoverResult::from_server_info(versions, self.get_info());
        Ok(discovered.with_ttl_ms(ttl_ms).with_cache_scope(scope))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let ListPage { items: tools, next_cursor, ttl_ms, cache_scope } =
            self.list_page(|it| &it.tools, request, &context).await?;
        Ok(ListToolsResult { tools, next_cursor, ttl_ms, cache_scope, ..Default::default() })
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        self.listing_for_caller(&self.first_caller()).tool_with_headers(name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(call) = InterruptedCall::take_from(&context.extensions) {
            return Box::pin(self.finish_call(call, context)).await;
        }
        let sequel =
            CallContinuation { state: request.request_state, responses: request.input_responses };
        let args = Value::from_json(request.arguments.unwrap_or_default().into());
        self.call_named_tool(request.name.into_owned(), args, sequel, context).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let ListPage { items: resources, next_cursor, ttl_ms, cache_scope } =
            self.list_page(|it| &it.resources, request, &context).await?;
        Ok(ListResourcesResult {
            resources,
            next_cursor,
            ttl_ms,
            cache_scope,
            ..Default::default()
        })
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let ListPage { items: resource_templates, next_cursor, ttl_ms, cache_scope } =
            self.list_page(|it| &it.templates, request, &context).await?;
        let rest = ListResourceTemplatesResult::default();
        Ok(ListResourceTemplatesResult {
            resource_templates,
            next_cursor,
            ttl_ms,
            cache_scope,
            ..rest
        })
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let ListPage { items: prompts, next_cursor, ttl_ms, cache_scope } =
            self.list_page(|it| &it.prompts, request, &context).await?;
        Ok(ListPromptsResult { prompts, next_cursor, ttl_ms, cache_scope, ..Default::default() })
    }

    async fn read_resource(
        &self,
        mut request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        // What Moonlark offers itself says what there is.
        let is_known = |catalog: &Catalog| {
            let offers = resources_for_uri(catalog.source_resources(), &request.uri);
            offers.is_some_and(|it| it.source.kind != SourceKind::Builtin)
        };
        let catalog = self.catalog_with(&context, is_known).await;
        let Some(offers) = resources_for_uri(catalog.source_resources(), &request.uri) else {
            let data = Some(json!({"uri": request.uri}));
            return Err(ErrorData::resource_not_found("no source has this resource", data));
        };
        let sequel = CallContinuation {
            state: request.request_state.take(),
            responses: request.input_responses.take(),
        };
        let ended =
            self.forward_to_source(offers, "resources/read", request, sequel, context).await;
        if requires_input(&ended) {
            typed_response(ended).map(ReadResourceResponse::InputRequired)
        } else {
            typed_response(ended).map(ReadResourceResponse::Complete)
        }
    }

    async fn get_prompt(
        &self,
        mut request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let is_known = |catalog: &Catalog| {
            resources_for_prompt(catalog.source_resources(), &request.name).is_some()
        };
        let catalog = self.catalog_with(&context, is_known).await;
        let Some(offers) = resources_for_prompt(catalog.source_resources(), &request.name) else {
            let problem = Problem::not_found("no source has a prompt of this name");
            return Err(error_from_problem(problem));
        };
        let sequel = CallContinuation {
            state: request.request_state.take(),
            responses: request.input_responses.take(),
        };
        let kinds = ContentKinds::known_to_client(&context);
        let mut ended =
            self.forward_to_source(offers, "prompts/get", request, sequel, context).await;
        if let Ok(ToolAnswer::Raw(result)) = &mut ended {
            kinds.adapt_messages(result);
        }
        if requires_input(&ended) {
            typed_response(ended).map(GetPromptResponse::InputRequired)
        } else {
            typed_response(ended).map(GetPromptResponse::Complete)
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let is_known = |catalog: &Catalog| {
            server_capabilities::source_of_reference(catalog, &request.r#ref).is_some()
        };
        let catalog = self.catalog_with(&context, is_known).await;
        match server_capabilities::source_of_reference(&catalog, &request.r#ref) {
            Some(offers) => {
                let (method, sequel) = ("completion/complete", CallContinuation::default());
                typed_response(
                    self.forward_to_source(offers, method, request, sequel, context).await,
                )
            }
            // Nobody has anything to suggest.
            None => Ok(CompleteResult::default()),
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        own_tasks::check_knows_tasks(&context)?;
        let id = request.task_id.clone();
        if own_tasks::is_own_task(&id) {
            return self.get_own_task(&id, &context).await;
        }
        typed_response(Ok(self
            .forward_task_request("tasks/get", &id, request, None, context)
            .await?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        own_tasks::check_knows_tasks(&context)?;
        if own_tasks::is_own_task(&request.task_id) {
            return self.update_own_task(request, &context).await;
        }
        // Here the responses are what it is about.
        let (id, responses) = (request.task_id.clone(), Some(request.input_responses.clone()));
        self.forward_task_request("tasks/update", &id, request, responses, context).await.map(drop)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        own_tasks::check_knows_tasks(&context)?;
        let id = request.task_id.clone();
        if own_tasks::is_own_task(&id) {
            return self.cancel_own_task(&id, &context).await;
        }
        self.forward_task_request("tasks/cancel", &id, request, None, context).await.map(drop)
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // Modern clients say it with each request, and hear of nothing else.
        if !is_modern(&context) {
            let caller = caller_from_request(&context, &self.session);
            self.wishes.set_log_level(&self.gateway, &caller, request.level, &context.peer);
            if let Some(opened) = opened_session(&context) {
                opened.keep_level(request.level).await;
            }
        }
        let catalog = self.catalog_for(&context);
        for offers in
            catalog.source_resources().iter().filter(|it| it.capabilities.contains_key("logging"))
        {
            let params = json!({"level": request.level});
            let (method, sequel) = ("logging/setLevel", CallContinuation::default());
            // Its own level stays, and ours holds in any case.
            let _ = self.forward_to_source(offers, method, params, sequel, context.clone()).await;
        }
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let caller = caller_from_request(&context, &self.session);
        let is_known = |catalog: &Catalog| {
            resources_for_uri(catalog.source_resources(), &request.uri).is_some()
        };
        self.catalog_with(&context, is_known).await;
        let call =
            self.gateway.open_call_when_admitted(caller).await.map_err(error_from_problem)?;
        self.wishes.watch_resource(&call, request.uri, &context.peer).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.wishes.unwatch_resource(&request.uri);
        Ok(())
    }

    /// An old client has connected: tell it from now on when something changes.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let caller = self.session.principal_of(&context.extensions).to_caller("mcp");
        // A session that was taken up may know lists that another process had.
        let taken_up = context.extensions.get::<SessionRestoreMarker>().is_some();
        self.wishes.keep_list_notifier(spawn_owned(change_notifications::notify_list_changes(
            self.gateway.clone(),
            caller,
            context.peer,
            taken_up,
        )));
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(change_notifications::accepted_filter(&self.gateway, &self.first_caller(), requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let caller = caller_from_request(context.request_context(), &self.session);
        change_notifications::notify_subscriber(&self.gateway, &caller, &self.gone, context).await;
        Ok(())
    }
}
