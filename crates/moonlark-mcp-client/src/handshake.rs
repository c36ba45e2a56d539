//! The MCP handshake: find out which era the server is of, and have it introduce itself.
//!
//! A modern server answers `server/discover`. Any other answer means a legacy
//! server, and so does silence: then `initialize` opens the conversation.

use std::sync::Arc;

use moonlark_core::limits::format_seconds;
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::visible_text::visible_line;
use moonlark_core::{Problem, ProblemCode, Value};
use tokio::time::timeout;

use crate::connection::{
    ConnectionInbox, McpClientIdentity, McpPeer, McpRequestOptions, McpTransport, ProtocolEra,
};
use crate::http_endpoint::{HttpEndpoint, url_origin};
use crate::json_rpc::{RequestFailure, RpcError};
use crate::rpc_session::RpcSession;
use crate::sse_transport::SseTransport;
use crate::stdio_transport::StdioTransport;
use crate::streamable_http::StreamableHttpTransport;
use crate::upstream_process;
use crate::upstream_target::{McpTransportConfig, UpstreamTarget};
use moonlark_http::RequestAuthorizer;

/// The versions spoken: one of each kind, and the oldest there is.
const MODERN_PROTOCOL_VERSION: &str = "2026-07-28";
const LATEST_LEGACY_VERSION: &str = "2025-11-25";
const OLDEST_LEGACY_VERSION: &str = "2024-11-05";

const UNSUPPORTED_VERSION_CODE: i64 = -32022;

type HandshakeResult = Result<(McpTransport, McpPeer), Problem>;

pub(super) async fn connect_transport(
    target: &UpstreamTarget,
    era: Option<ProtocolEra>,
    auth: Option<Arc<dyn RequestAuthorizer>>,
    inbox: Arc<dyn ConnectionInbox>,
    us: &McpClientIdentity,
) -> HandshakeResult {
    let opening = McpHandshake { target, inbox, us };
    let opened = async {
        match &target.transport {
            McpTransportConfig::Stdio { .. } => {
                opening.connect_stdio(era, || opening.start_stdio_transport()).await
            }
            McpTransportConfig::Http { .. } => opening.connect_http(era, auth).await,
            McpTransportConfig::Sse { .. } => opening.connect_sse(auth).await,
        }
    };
    // Giving up drops what was begun, and with it the process.
    timeout(target.limits.connect, opened)
        .await
        .unwrap_or_else(|_| Err(connect_timeout_problem(target)))
}

struct McpHandshake<'a> {
    target: &'a UpstreamTarget,
    inbox: Arc<dyn ConnectionInbox>,
    us: &'a McpClientIdentity,
}

/// What a probe tells.
enum EraProbe {
    Modern(McpPeer),
    /// And the version to offer it.
    Legacy(String),
}

impl McpHandshake<'_> {
    async fn connect_stdio<S>(
        &self,
        era: Option<ProtocolEra>,
        start: impl Fn() -> S,
    ) -> HandshakeResult
    where
        S: Future<Output = Result<McpTransport, Problem>>,
    {
        if era != Some(ProtocolEra::Legacy) {
            let carrier = start().await?;
            match timeout(self.target.limits.connect / 2, self.probe_era(&carrier)).await {
                Ok(Ok(found)) => return self.finish_handshake(carrier, found?).await,
                // It keeps silent, or did not survive the question: another
                // process is not asked it.
                Ok(Err(_)) | Err(_) => {
                    if let McpTransport::Stdio(stdio) = &carrier {
                        stdio.kill_process().await;
                    }
                }
            }
        }
        let carrier = start().await?;
        self.initialize_legacy(carrier, LATEST_LEGACY_VERSION).await
    }

    async fn start_stdio_transport(&self) -> Result<McpTransport, Problem> {
        let McpTransportConfig::Stdio { command, args, env, cwd } = &self.target.transport else {
            return Err(Problem::internal("a process to start where there is none"));
        };
        let child =
            upstream_process::start_process(&self.target.name, command, args, env, cwd).await?;
        Ok(McpTransport::Stdio(StdioTransport::over_process(self.new_rpc_session(), child)))
    }

    async fn connect_http(
        &self,
        era: Option<ProtocolEra>,
        auth: Option<Arc<dyn RequestAuthorizer>>,
    ) -> HandshakeResult {
        let http = |era| -> Result<Arc<StreamableHttpTransport>, Problem> {
            Ok(StreamableHttpTransport::new(
                self.new_rpc_session(),
                self.http_endpoint(auth.clone())?,
                era,
            ))
        };
        let mut version = LATEST_LEGACY_VERSION.to_owned();
        if era != Some(ProtocolEra::Legacy) {
            let modern = http(ProtocolEra::Modern)?;
            modern.set_protocol_version(MODERN_PROTOCOL_VERSION);
            let carrier = McpTransport::Http(modern);
            match timeout(self.target.limits.connect / 2, self.probe_era(&carrier)).await {
                Ok(Ok(found)) => match found? {
                    EraProbe::Legacy(best) => version = best,
                    found => return self.finish_handshake(carrier, found).await,
                },
                Ok(Err(
                    RequestFailure::NotSent(problem) | RequestFailure::Unauthorized(problem),
                )) => {
                    return Err(problem);
                }
                // An answer that is none of a modern server's, or no answer.
                Ok(Err(_)) | Err(_) => {}
            }
        }
        self.initialize_legacy(McpTransport::Http(http(ProtocolEra::Legacy)?), &version).await
    }

    async fn connect_sse(&self, auth: Option<Arc<dyn RequestAuthorizer>>) -> HandshakeResult {
        let opened =
            SseTransport::open_stream(self.new_rpc_session(), self.http_endpoint(auth)?).await;
        let sse = opened.map_err(|failure| self.handshake_problem("its stream", failure))?;
        self.initialize_legacy(McpTransport::Sse(sse), LATEST_LEGACY_VERSION).await
    }

    fn new_rpc_session(&self) -> Arc<RpcSession> {
        RpcSession::new(&self.target.name, self.target.limits, Arc::clone(&self.inbox))
    }

    fn http_endpoint(
        &self,
        auth: Option<Arc<dyn RequestAuthorizer>>,
    ) -> Result<HttpEndpoint, Problem> {
        let (McpTransportConfig::Http { url, headers } | McpTransportConfig::Sse { url, headers }) =
            &self.target.transport
        else {
            return Err(Problem::internal("an address to ask where there is none"));
        };
        HttpEndpoint::new(&self.target.name, url, headers, auth)
    }

    /// Ask what a legacy server does not understand.
    async fn probe_era(
        &self,
        carrier: &McpTransport,
    ) -> Result<Result<EraProbe, Problem>, RequestFailure> {
        let ask = || {
            let meta = self.client_meta().into_iter();
            let meta = meta.map(|(key, value)| (key.to_owned(), value)).collect();
            let about = McpRequestOptions { meta, ..McpRequestOptions::default() };
            carrier.send_request("server/discover", Object::new(), about)
        };
        let mut answer = ask().await;
        // It refuses the version it then names: what it says last counts.
        if let Err(RequestFailure::Refused(rpc)) = &answer
            && rpc.code == UNSUPPORTED_VERSION_CODE
            && supported_versions(rpc)
                .is_some_and(|versions| versions.iter().any(|it| it == MODERN_PROTOCOL_VERSION))
        {
            answer = ask().await;
        }
        match answer {
            Ok(result) => Ok(self.parse_discovery(result)),
            Err(RequestFailure::Refused(rpc)) => {
                Ok(self.choose_legacy_version(supported_versions(&rpc)).map(EraProbe::Legacy))
            }
            Err(failure) => Err(failure),
        }
    }

    fn parse_discovery(&self, mut result: Object) -> Result<EraProbe, Problem> {
        let versions = result.get("supportedVersions").and_then(parse_version_list);
        let modern =
            versions.as_ref().is_some_and(|all| all.iter().any(|it| it == MODERN_PROTOCOL_VERSION));
        if !modern {
            // Some servers have a result for everything.
            return self.choose_legacy_version(versions).map(EraProbe::Legacy);
        }
        let meta = result.swap_remove("_meta");
        let mut info = meta.and_then(|meta| meta.get(SERVER_INFO_META_KEY).cloned());
        info = info.or_else(|| result.swap_remove("serverInfo"));
        Ok(EraProbe::Modern(build_peer(ProtocolEra::Modern, MODERN_PROTOCOL_VERSION, result, info)))
    }

    /// The version to offer to a server that speaks these.
    fn choose_legacy_version(&self, versions: Option<Vec<String>>) -> Result<String, Problem> {
        let Some(versions) = versions else { return Ok(LATEST_LEGACY_VERSION.to_owned()) };
        let best = versions.iter().filter(|version| is_legacy_version(version)).max();
        // A server that names none of them may still be wrong about itself.
        let modern = versions.is_empty()
            || versions.iter().any(|version| version == MODERN_PROTOCOL_VERSION);
        match best {
            Some(version) => Ok(version.clone()),
            None if modern => Ok(LATEST_LEGACY_VERSION.to_owned()),
            None => Err(self.no_common_version_problem(&versions.join(", "))),
        }
    }

    async fn finish_handshake(&self, carrier: McpTransport, found: EraProbe) -> HandshakeResult {
        match found {
            EraProbe::Modern(server) => {
                let encode = |(key, value): (_, Value)| Some((key, value.encode_json(key).ok()?));
                let meta = self.client_meta().into_iter().filter_map(encode);
                carrier.rpc_session().set_client_meta(meta.collect());
                Ok((carrier, server))
            }
            EraProbe::Legacy(version) => self.initialize_legacy(carrier, &version).await,
        }
    }

    /// Shake hands, with this version for a start.
    async fn initialize_legacy(&self, carrier: McpTransport, version: &str) -> HandshakeResult {
        let mut answer = self.send_initialize(&carrier, version).await;
        // Some servers refuse what they should answer with a version of theirs.
        if let Err(RequestFailure::Refused(rpc)) = &answer
            && let Some(versions) = supported_versions(rpc)
            && let Some(other) = versions.iter().filter(|it| is_legacy_version(it)).max()
            && other != version
        {
            answer = self.send_initialize(&carrier, other).await;
        }
        let mut result = answer.map_err(|failure| self.handshake_problem("initialize", failure))?;
        let version = match result.swap_remove("protocolVersion") {
            Some(Value::Str(version)) if is_legacy_version(&version) => version,
            Some(Value::Str(version)) => return Err(self.no_common_version_problem(&version)),
            _ => {
                let name = &self.target.name;
                let message = format!("upstream '{name}' answered initialize without a version");
                return Err(Problem::unavailable(message)
                    .with_retryable(false)
                    .with_hint("it is probably not an MCP server"));
            }
        };
        let info = result.swap_remove("serverInfo");
        let server = build_peer(ProtocolEra::Legacy, &version, result, info);
        if let McpTransport::Http(http) = &carrier {
            http.set_protocol_version(&version);
        }
        let failed = |failure| self.handshake_problem("the end of the handshake", failure);
        carrier.send_notification("notifications/initialized").await.map_err(failed)?;
        if let McpTransport::Http(http) = &carrier {
            http.open_listening_stream().await;
        }
        Ok((carrier, server))
    }

    async fn send_initialize(
        &self,
        carrier: &McpTransport,
        version: &str,
    ) -> Result<Object, RequestFailure> {
        let params = [
            ("protocolVersion", Value::from(version)),
            ("capabilities", self.us.capabilities.clone().into()),
            ("clientInfo", self.us.info.clone().into()),
        ];
        let params = params.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        carrier.send_request("initialize", params, McpRequestOptions::default()).await
    }

    /// What every request to a modern server says.
    fn client_meta(&self) -> [(&'static str, Value); 3] {
        [
            ("io.modelcontextprotocol/protocolVersion", MODERN_PROTOCOL_VERSION.into()),
            ("io.modelcontextprotocol/clientInfo", self.us.info.clone().into()),
            ("io.modelcontextprotocol/clientCapabilities", self.us.capabilities.clone().into()),
        ]
    }

    fn handshake_problem(&self, what: &str, failure: RequestFailure) -> Problem {
        match failure {
            RequestFailure::NotSent(problem)
            | RequestFailure::Lost(problem)
            | RequestFailure::Unauthorized(problem) => problem,
            RequestFailure::Refused(RpcError { code, message, .. }) => {
                let (name, message) = (&self.target.name, shorten_text(&message));
                Problem::unavailable(format!(
                    "upstream '{name}' refused {what}: {message} ({code})"
                ))
                .with_hint(connect_failure_hint(self.target))
            }
        }
    }

    fn no_common_version_problem(&self, theirs: &str) -> Problem {
        let (name, theirs) = (&self.target.name, shorten_text(theirs));
        Problem::unavailable(format!(
            "upstream '{name}' speaks version {theirs} of MCP, which Moonlark does not"
        ))
        .with_retryable(false)
        .with_hint(format!("Moonlark speaks {OLDEST_LEGACY_VERSION} to {LATEST_LEGACY_VERSION}, and {MODERN_PROTOCOL_VERSION}"))
    }
}

const SERVER_INFO_META_KEY: &str = "io.modelcontextprotocol/serverInfo";

fn build_peer(era: ProtocolEra, version: &str, mut result: Object, info: Option<Value>) -> McpPeer {
    let object = |value: Option<Value>| match value {
        Some(Value::Object(fields)) => fields,
        _ => Object::new(),
    };
    let instructions = match result.swap_remove("instructions") {
        Some(Value::Str(text)) => Some(text),
        _ => None,
    };
    let capabilities = object(result.swap_remove("capabilities"));
    let mut info = object(info);
    for field in ["name", "title", "version"] {
        if let Some(Value::Str(text)) = info.get_mut(field) {
            *text = visible_line(text);
        }
    }
    McpPeer { era, version: version.to_owned(), capabilities, info, instructions }
}

/// Dates, and so in order as text.
fn is_legacy_version(version: &str) -> bool {
    version.len() == OLDEST_LEGACY_VERSION.len()
        && (OLDEST_LEGACY_VERSION..=LATEST_LEGACY_VERSION).contains(&version)
}

/// The versions that a refusal names.
fn supported_versions(rpc: &RpcError) -> Option<Vec<String>> {
    let is_about_versions = matches!(rpc.code, UNSUPPORTED_VERSION_CODE | RpcError::INVALID_PARAMS);
    let data = rpc.data.as_ref().filter(|_| is_about_versions)?;
    data.get("supported").and_then(parse_version_list)
}

fn parse_version_list(list: &Value) -> Option<Vec<String>> {
    let Value::Array(items) = list else { return None };
    Some(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn connect_timeout_problem(target: &UpstreamTarget) -> Problem {
    let (name, patience) = (&target.name, format_seconds(target.limits.connect));
    Problem::new(
        ProblemCode::Timeout,
        format!("upstream '{name}' did not answer initialize within {patience}"),
    )
    .with_hint(connect_failure_hint(target))
}

fn connect_failure_hint(target: &UpstreamTarget) -> String {
    match &target.transport {
        McpTransportConfig::Stdio { command, args, .. } => {
            let shown = upstream_process::display_command(command, args);
            format!("run its command by hand to see what it waits for: {shown}")
        }
        McpTransportConfig::Http { url, .. } | McpTransportConfig::Sse { url, .. } => {
            format!("see whether an MCP server is running at {}", url_origin(url))
        }
    }
}

#[cfg(test)]
mod tests;
