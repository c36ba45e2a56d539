//! MCP, by the official SDK: tools over stdio and Streamable HTTP.
//!
//! Under 2026-07-28 every request stands by itself; older clients have a
//! session. Both are served by the same handler, which keeps nothing about a
//! client but the log level an old one asked for.

#![expect(
    deprecated,
    reason = "old clients still get log messages; the SDK marks them for removal"
)]

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use moonlark_core::call::{Events, Level};
use moonlark_core::content::{Answer, Content};
use moonlark_core::{Call, Caller, Code, Event, Gateway, Problem, Value};
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData,
    Implementation, ListToolsResult, LoggingLevel, LoggingMessageNotificationParam,
    PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ProtocolVersion,
    ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscriptionFilter,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{Peer, RoleServer, ServerHandler};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::VERSION;
use crate::mcp_sessions::{IDLE, Sessions};
use crate::mcp_tools::Listing;

/// Tools on one page of `tools/list`.
const PAGE: usize = 1000;

/// The service behind `/mcp`.
pub(crate) fn http_service(
    gateway: Gateway,
    request_body: usize,
    stop: CancellationToken,
) -> StreamableHttpService<Mcp, Sessions> {
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_max_request_body_bytes(request_body)
        .with_cancellation_token(stop)
        // Host and Origin are checked in front of every route; see `access`.
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let mcp = Mcp::new(gateway);
    StreamableHttpService::new(move || Ok(mcp.for_client()), Arc::new(Sessions::new()), config)
}

#[derive(Clone)]
pub(crate) struct Mcp {
    gateway: Gateway,
    listing: Arc<Mutex<Option<Arc<Listing>>>>,
    /// What an old client asked for with `logging/setLevel`.
    level: Arc<AtomicU8>,
    /// The client will ask nothing more.
    pub(crate) gone: CancellationToken,
}

impl Mcp {
    pub(crate) fn new(gateway: Gateway) -> Self {
        Self {
            gateway,
            listing: Arc::default(),
            level: Arc::new(AtomicU8::new(rank(LoggingLevel::Info))),
            gone: CancellationToken::new(),
        }
    }

    /// The same server for another client: what it serves is shared.
    fn for_client(&self) -> Self {
        Self { level: Mcp::new(self.gateway.clone()).level, ..self.clone() }
    }

    /// The tools as MCP shows them, made once per catalog.
    fn listing(&self) -> Arc<Listing> {
        let catalog = self.gateway.catalog();
        let mut cached = self.listing.lock();
        match &*cached {
            Some(listing) if listing.is_of(&catalog) => listing.clone(),
            _ => {
                let listing = Arc::new(Listing::new(catalog));
                *cached = Some(listing.clone());
                listing
            }
        }
    }

    /// Which messages this request wants: modern clients say so in the request
    /// and otherwise want none.
    fn log_rank(&self, context: &RequestContext<RoleServer>) -> Option<u8> {
        if is_modern(context) {
            context.meta.log_level().map(rank)
        } else {
            Some(self.level.load(Ordering::Relaxed))
        }
    }

    async fn run(
        &self,
        request: CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Answer, Problem> {
        let caller =
            Caller { surface: "mcp", client: context.client_info().map(|client| client.name) };
        let args = Value::from_json(request.arguments.unwrap_or_default().into())?;
        let token = context.meta.get_progress_token();
        let rank = self.log_rank(context);
        if token.is_none() && rank.is_none() {
            let call = self.gateway.open(caller, None)?;
            return self.gateway.ask(&call, &request.name, args).await;
        }
        // Bounded by the limits on log output and by the thinning of progress.
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let events: Events = Arc::new(move |event| {
            let _ = sender.send(event);
        });
        let call: Call = self.gateway.open(caller, Some(events))?;
        let mut result = std::pin::pin!(self.gateway.ask(&call, &request.name, args));
        let ended = loop {
            tokio::select! {
                biased;
                Some(event) = receiver.recv() => notify(&context.peer, event, token.as_ref(), rank).await,
                ended = &mut result => break ended,
            }
        };
        // What was said in the last moment still comes before the answer.
        while let Ok(event) = receiver.try_recv() {
            notify(&context.peer, event, token.as_ref(), rank).await;
        }
        ended
    }
}

impl ServerHandler for Mcp {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_logging()
            .build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("moonlark", VERSION);
        info.instructions = Some(
            "Tools written by the operator of this server. Errors say what to do next.".to_owned(),
        );
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listing = self.listing();
        let cursor = request.and_then(|request| request.cursor).unwrap_or_default();
        let start = match cursor.as_str() {
            "" => 0,
            cursor => cursor
                .parse()
                .ok()
                .filter(|start| *start < listing.tools().len())
                .ok_or_else(|| ErrorData::invalid_params("unknown cursor", None))?,
        };
        let end = (start + PAGE).min(listing.tools().len());
        let mut page = ListToolsResult::with_all_items(listing.tools()[start..end].to_vec());
        page.next_cursor = (end < listing.tools().len()).then(|| end.to_string());
        Ok(page)
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        self.listing().with_headers(name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let any_structure = is_modern(&context);
        let ended = tokio::select! {
            ended = self.run(request, &context) => ended,
            // Dropping the call stops everything it started.
            () = context.ct.cancelled() => Err(Problem::new(Code::Cancelled, "the client cancelled the call")),
        };
        match ended.and_then(|answer| succeed(answer, any_structure)) {
            Ok(result) => Ok(CallToolResponse::Complete(result)),
            // An unknown tool is a mistake in the request, not in the tool.
            Err(problem) if problem.code == Code::NotFound => Err(ErrorData::new(
                ErrorCode::INVALID_PARAMS,
                problem.line(),
                Some(problem.to_json()),
            )),
            Err(problem) => Ok(CallToolResponse::Complete(fail(&problem))),
        }
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.level.store(rank(request.level), Ordering::Relaxed);
        Ok(())
    }

    /// An old client has connected: tell it from now on when tools change.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut changes = self.gateway.subscribe();
        let peer = context.peer;
        tokio::spawn(async move {
            while !peer.is_transport_closed() {
                // Looks up from waiting now and then, so as not to outlive the client.
                match tokio::time::timeout(IDLE, changes.changed()).await {
                    Ok(Ok(())) if peer.notify_tool_list_changed().await.is_ok() => {}
                    Err(_elapsed) => {}
                    _ => return,
                }
            }
        });
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        accepted.tools_list_changed = requested.tools_list_changed;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.gateway.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                () = self.gone.cancelled() => return Ok(()),
                changed = changes.changed() => {
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}

fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

/// The result as text, and as structure where the client can take it.
fn succeed(answer: Answer, any_structure: bool) -> Result<CallToolResult, Problem> {
    let value = match answer {
        Answer::Value(value) => value,
        Answer::Content(content) => {
            let structured = content.structured.clone();
            let mut result = CallToolResult::success(blocks(content)?);
            if let Some(value) = structured
                && (any_structure || matches!(value, Value::Object(_)))
            {
                result.structured_content = Some(value.into_json("result.structuredContent")?);
            }
            return Ok(result);
        }
    };
    let text = match &value {
        Value::Str(text) => text.clone(),
        other => other.encode_json("result")?,
    };
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    if any_structure || matches!(value, Value::Object(_)) {
        result.structured_content = Some(value.into_json("result")?);
    }
    Ok(result)
}

/// Content as the SDK has it.
fn blocks(content: Content) -> Result<Vec<ContentBlock>, Problem> {
    let block = |(index, block): (usize, Value)| {
        let at = format!("result.content[{index}]");
        serde_json::from_value(block.into_json(&at)?)
            .map_err(|error| Problem::tool_error(format!("{at} is not MCP content: {error}")))
    };
    content.blocks.into_iter().enumerate().map(block).collect()
}

fn fail(problem: &Problem) -> CallToolResult {
    // A tool that says itself how it failed is passed on as it is.
    if let Some(content) = &problem.content
        && let Ok(blocks) = blocks((**content).clone())
    {
        let mut result = CallToolResult::error(blocks);
        result.structured_content = content
            .structured
            .clone()
            .and_then(|value| value.into_json("result.structuredContent").ok());
        return result;
    }
    let mut result = CallToolResult::error(vec![ContentBlock::text(problem.to_string())]);
    result.structured_content = Some(json!({ "error": problem.to_json() }));
    result
}

async fn notify(
    peer: &Peer<RoleServer>,
    event: Event,
    token: Option<&ProgressToken>,
    wanted: Option<u8>,
) {
    match event {
        Event::Progress { done, total, message } => {
            let Some(token) = token else { return };
            let mut progress = ProgressNotificationParam::new(token.clone(), done);
            progress.total = total;
            progress.message = message;
            let _ = peer.notify_progress(progress).await;
        }
        Event::Log { level, message, fields } => {
            let level = match level {
                Level::Debug => LoggingLevel::Debug,
                Level::Info => LoggingLevel::Info,
                Level::Warn => LoggingLevel::Warning,
                Level::Error => LoggingLevel::Error,
            };
            if wanted.is_none_or(|wanted| rank(level) < wanted) {
                return;
            }
            let data = match fields {
                Some(fields) => json!({"message": message, "fields": fields.to_json_lossy()}),
                None => message.into(),
            };
            let _ = peer
                .notify_logging_message(LoggingMessageNotificationParam::new(level, data))
                .await;
        }
    }
}

fn rank(level: LoggingLevel) -> u8 {
    level as u8
}

/// The name as rmcp takes it.
pub(crate) fn owned(text: &str) -> Cow<'static, str> {
    Cow::Owned(text.to_owned())
}
