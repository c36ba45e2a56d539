//! How a connection begins: find out which era the server is of, and have it
//! introduce itself.
//!
//! A modern server answers `server/discover`. Any other answer means a legacy
//! server, and so does silence: then `initialize` opens the conversation.

use std::sync::Arc;

use moonlark_core::limits::seconds;
use moonlark_core::value::{Object, shorten};
use moonlark_core::visible_text::visible_line;
use moonlark_core::{Code, Problem, Value};
use tokio::time::timeout;

use super::authorize::Authorize;
use super::child;
use super::conversation::Conversation;
use super::http::Http;
use super::link::{About, Carrier, Era, Inbox, Server, Us};
use super::site::{Site, origin};
use super::sse::Sse;
use super::stdio::Stdio;
use super::target::{Target, Way};
use super::wire::{Failure, Rpc};

/// The versions spoken: one of each kind, and the oldest there is.
const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
const OLDEST: &str = "2024-11-05";

const UNSUPPORTED_VERSION: i64 = -32022;

type Opened = Result<(Carrier, Server), Problem>;

pub(super) async fn open(
    target: &Target,
    era: Option<Era>,
    auth: Option<Arc<dyn Authorize>>,
    inbox: Arc<dyn Inbox>,
    us: &Us,
) -> Opened {
    let opening = Opening { target, inbox, us };
    let opened = async {
        match &target.way {
            Way::Stdio { .. } => opening.stdio(era, || opening.start()).await,
            Way::Http { .. } => opening.http(era, auth).await,
            Way::Sse { .. } => opening.sse(auth).await,
        }
    };
    // Giving up drops what was begun, and with it the process.
    timeout(target.limits.connect, opened).await.unwrap_or_else(|_| Err(too_slow(target)))
}

struct Opening<'a> {
    target: &'a Target,
    inbox: Arc<dyn Inbox>,
    us: &'a Us,
}

/// What a probe tells.
enum Found {
    Modern(Server),
    /// And the version to offer it.
    Legacy(String),
}

impl Opening<'_> {
    async fn stdio<S>(&self, era: Option<Era>, start: impl Fn() -> S) -> Opened
    where
        S: Future<Output = Result<Carrier, Problem>>,
    {
        if era != Some(Era::Legacy) {
            let carrier = start().await?;
            match timeout(self.target.limits.connect / 2, self.discover(&carrier)).await {
                Ok(Ok(found)) => return self.shake_hands(carrier, found?).await,
                // It keeps silent, or did not survive the question: another
                // process is not asked it.
                Ok(Err(_)) | Err(_) => {
                    if let Carrier::Stdio(stdio) = &carrier {
                        stdio.kill().await;
                    }
                }
            }
        }
        let carrier = start().await?;
        self.shake_hands(carrier, Found::Legacy(LEGACY.to_owned())).await
    }

    async fn start(&self) -> Result<Carrier, Problem> {
        let Way::Stdio { command, args, env, cwd } = &self.target.way else {
            return Err(Problem::internal("a process to start where there is none"));
        };
        let child = child::start(&self.target.name, command, args, env, cwd).await?;
        Ok(Carrier::Stdio(Stdio::over_child(self.conversation(), child)))
    }

    async fn http(&self, era: Option<Era>, auth: Option<Arc<dyn Authorize>>) -> Opened {
        let http = |era| -> Result<Arc<Http>, Problem> {
            Ok(Http::new(self.conversation(), self.site(auth.clone())?, era))
        };
        let mut version = LEGACY.to_owned();
        if era != Some(Era::Legacy) {
            let modern = http(Era::Modern)?;
            modern.agree(MODERN);
            let carrier = Carrier::Http(modern);
            match timeout(self.target.limits.connect / 2, self.discover(&carrier)).await {
                Ok(Ok(found)) => match found? {
                    Found::Legacy(best) => version = best,
                    found => return self.shake_hands(carrier, found).await,
                },
                Ok(Err(Failure::NotSent(problem) | Failure::Unauthorized(problem))) => {
                    return Err(problem);
                }
                // An answer that is none of a modern server's, or no answer.
                Ok(Err(_)) | Err(_) => {}
            }
        }
        self.shake_hands(Carrier::Http(http(Era::Legacy)?), Found::Legacy(version)).await
    }

    async fn sse(&self, auth: Option<Arc<dyn Authorize>>) -> Opened {
        let opened = Sse::open(self.conversation(), self.site(auth)?).await;
        let sse = opened.map_err(|failure| self.failed("its stream", failure))?;
        self.shake_hands(Carrier::Sse(sse), Found::Legacy(LEGACY.to_owned())).await
    }

    fn conversation(&self) -> Arc<Conversation> {
        Conversation::new(&self.target.name, self.target.limits, Arc::clone(&self.inbox))
    }

    fn site(&self, auth: Option<Arc<dyn Authorize>>) -> Result<Site, Problem> {
        let (Way::Http { url, headers } | Way::Sse { url, headers }) = &self.target.way else {
            return Err(Problem::internal("an address to ask where there is none"));
        };
        Site::new(&self.target.name, url, headers, auth)
    }

    /// Ask what a legacy server does not understand.
    async fn discover(&self, carrier: &Carrier) -> Result<Result<Found, Problem>, Failure> {
        let ask = || {
            let meta = self.meta().into_iter();
            let meta = meta.map(|(key, value)| (key.to_owned(), value)).collect();
            let about = About { meta, ..About::default() };
            carrier.request("server/discover", Object::new(), about)
        };
        let mut answer = ask().await;
        // It refuses the version it then names: what it says last counts.
        if let Err(Failure::Refused(rpc)) = &answer
            && rpc.code == UNSUPPORTED_VERSION
            && supported(rpc).is_some_and(|versions| versions.iter().any(|it| it == MODERN))
        {
            answer = ask().await;
        }
        match answer {
            Ok(result) => Ok(self.discovered(result)),
            Err(Failure::Refused(rpc)) => Ok(self.best_of(supported(&rpc)).map(Found::Legacy)),
            Err(failure) => Err(failure),
        }
    }

    fn discovered(&self, mut result: Object) -> Result<Found, Problem> {
        let versions = result.get("supportedVersions").and_then(versions);
        let modern = versions.as_ref().is_some_and(|all| all.iter().any(|it| it == MODERN));
        if !modern {
            // Some servers have a result for everything.
            return self.best_of(versions).map(Found::Legacy);
        }
        let meta = result.swap_remove("_meta");
        let mut info = meta.and_then(|meta| meta.get(SERVER_INFO).cloned());
        info = info.or_else(|| result.swap_remove("serverInfo"));
        Ok(Found::Modern(introduction(Era::Modern, MODERN, result, info)))
    }

    /// The version to offer to a server that speaks these.
    fn best_of(&self, versions: Option<Vec<String>>) -> Result<String, Problem> {
        let Some(versions) = versions else { return Ok(LEGACY.to_owned()) };
        let best = versions.iter().filter(|version| is_legacy(version)).max();
        // A server that names none of them may still be wrong about itself.
        let modern = versions.is_empty() || versions.iter().any(|version| version == MODERN);
        match best {
            Some(version) => Ok(version.clone()),
            None if modern => Ok(LEGACY.to_owned()),
            None => Err(self.no_common_version(&versions.join(", "))),
        }
    }

    async fn shake_hands(&self, carrier: Carrier, found: Found) -> Opened {
        let version = match found {
            Found::Modern(server) => {
                let encode = |(key, value): (_, Value)| Some((key, value.encode_json(key).ok()?));
                let meta = self.meta().into_iter().filter_map(encode);
                carrier.conversation().introduce(meta.collect());
                return Ok((carrier, server));
            }
            Found::Legacy(version) => version,
        };
        let server = self.initialize(&carrier, &version).await?;
        if let Carrier::Http(http) = &carrier {
            http.agree(&server.version);
        }
        let failed = |failure| self.failed("the end of the handshake", failure);
        carrier.notify("notifications/initialized", Object::new()).await.map_err(failed)?;
        if let Carrier::Http(http) = &carrier {
            http.listen().await;
        }
        Ok((carrier, server))
    }

    async fn initialize(&self, carrier: &Carrier, version: &str) -> Result<Server, Problem> {
        let mut answer = self.ask_to_initialize(carrier, version).await;
        // Some servers refuse what they should answer with a version of theirs.
        if let Err(Failure::Refused(rpc)) = &answer
            && let Some(versions) = supported(rpc)
            && let Some(other) = versions.iter().filter(|it| is_legacy(it)).max()
            && other != version
        {
            answer = self.ask_to_initialize(carrier, other).await;
        }
        let mut result = answer.map_err(|failure| self.failed("initialize", failure))?;
        let version = match result.swap_remove("protocolVersion") {
            Some(Value::Str(version)) if is_legacy(&version) => version,
            Some(Value::Str(version)) => return Err(self.no_common_version(&version)),
            _ => {
                let name = &self.target.name;
                let message = format!("upstream '{name}' answered initialize without a version");
                return Err(Problem::unavailable(message)
                    .retryable_if(false)
                    .hint("it is probably not an MCP server"));
            }
        };
        let info = result.swap_remove("serverInfo");
        Ok(introduction(Era::Legacy, &version, result, info))
    }

    async fn ask_to_initialize(&self, carrier: &Carrier, version: &str) -> Result<Object, Failure> {
        let params = [
            ("protocolVersion", Value::from(version)),
            ("capabilities", self.us.capabilities.clone().into()),
            ("clientInfo", self.us.info.clone().into()),
        ];
        let params = params.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        carrier.request("initialize", params, About::default()).await
    }

    /// What every request to a modern server says.
    fn meta(&self) -> [(&'static str, Value); 3] {
        [
            ("io.modelcontextprotocol/protocolVersion", MODERN.into()),
            ("io.modelcontextprotocol/clientInfo", self.us.info.clone().into()),
            ("io.modelcontextprotocol/clientCapabilities", self.us.capabilities.clone().into()),
        ]
    }

    fn failed(&self, what: &str, failure: Failure) -> Problem {
        match failure {
            Failure::NotSent(problem) | Failure::Lost(problem) => problem,
            Failure::Unauthorized(problem) => problem,
            Failure::Refused(Rpc { code, message, .. }) => {
                let (name, message) = (&self.target.name, shorten(&message));
                Problem::unavailable(format!(
                    "upstream '{name}' refused {what}: {message} ({code})"
                ))
                .hint(look_closer(self.target))
            }
        }
    }

    fn no_common_version(&self, theirs: &str) -> Problem {
        let (name, theirs) = (&self.target.name, shorten(theirs));
        Problem::unavailable(format!(
            "upstream '{name}' speaks version {theirs} of MCP, which Moonlark does not"
        ))
        .retryable_if(false)
        .hint(format!("Moonlark speaks {OLDEST} to {LEGACY}, and {MODERN}"))
    }
}

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

fn introduction(era: Era, version: &str, mut result: Object, info: Option<Value>) -> Server {
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
    Server { era, version: version.to_owned(), capabilities, info, instructions }
}

/// Dates, and so in order as text.
fn is_legacy(version: &str) -> bool {
    version.len() == OLDEST.len() && (OLDEST..=LEGACY).contains(&version)
}

/// The versions that a refusal names.
fn supported(rpc: &Rpc) -> Option<Vec<String>> {
    let is_about_versions = matches!(rpc.code, UNSUPPORTED_VERSION | Rpc::INVALID_PARAMS);
    let data = rpc.data.as_ref().filter(|_| is_about_versions)?;
    data.get("supported").and_then(versions)
}

fn versions(list: &Value) -> Option<Vec<String>> {
    let Value::Array(items) = list else { return None };
    Some(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn too_slow(target: &Target) -> Problem {
    let (name, patience) = (&target.name, seconds(target.limits.connect));
    Problem::new(
        Code::Timeout,
        format!("upstream '{name}' did not answer initialize within {patience}"),
    )
    .hint(look_closer(target))
}

fn look_closer(target: &Target) -> String {
    match &target.way {
        Way::Stdio { command, args, .. } => {
            let shown = child::show(command, args);
            format!("run its command by hand to see what it waits for: {shown}")
        }
        Way::Http { url, .. } | Way::Sse { url, .. } => {
            format!("see whether an MCP server is running at {}", origin(url))
        }
    }
}

#[cfg(test)]
mod tests;
