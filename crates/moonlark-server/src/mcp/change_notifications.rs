//! What clients are told of by themselves: that a list has changed, that a
//! resource has.
//!
//! An old client is told everything about lists;
//! [`legacy_subscriptions`](super::legacy_subscriptions) has the rest. A modern one asks for what it wants with one long request.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use moonlark_child::spawn_owned;
use moonlark_core::source_resources::{
    SourceEvent, SourceResources, WatchLease, resources_for_uri,
};
use moonlark_core::tool::SourceKind;
use moonlark_core::value::Object;
use moonlark_core::{Catalog, Value};
use moonlark_gateway::{Call, Caller, Gateway};
use rmcp::model::{ErrorData, SubscriptionFilter};
use rmcp::service::{ServiceError, SubscriptionContext};
use rmcp::{Peer, RoleServer};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::sessions::SESSION_IDLE_TIMEOUT;
use super::tool_result::error_from_problem;

/// Resources that one client may watch.
pub(super) const MAX_WATCHED_RESOURCES: usize = 1000;
/// How long a source has to agree that a resource is watched.
const WATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// When a source that did not is asked again.
const WATCH_RETRY_DELAY: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 30_000 });

/// Tell an old client of every list that changes, from when the first list that it can
/// get is known; at once if it was `taken_up` with lists that another process had.
pub(super) async fn notify_list_changes(
    gateway: Gateway,
    caller: Caller,
    peer: Peer<RoleServer>,
    taken_up: bool,
) {
    let mut changes = gateway.subscribe();
    let mut known = gateway.settled_catalog(&caller).await;
    let nothing = Catalog::default();
    if taken_up
        && notify_changed(&peer, ChangedLists::between_catalogs(&nothing, &known)).await.is_err()
    {
        return;
    }
    while !peer.is_transport_closed() {
        match tokio::time::timeout(SESSION_IDLE_TIMEOUT, changes.changed()).await {
            Ok(Ok(())) => {}
            Err(_elapsed) => continue,
            Ok(Err(_)) => return,
        }
        let current = gateway.catalog_for(&caller);
        let changed = ChangedLists::between_catalogs(&known, &current);
        known = current;
        if notify_changed(&peer, changed).await.is_err() {
            return;
        }
    }
}

async fn notify_changed(
    peer: &Peer<RoleServer>,
    changed: ChangedLists,
) -> Result<(), ServiceError> {
    if changed.tools {
        peer.notify_tool_list_changed().await?;
    }
    if changed.resources {
        peer.notify_resource_list_changed().await?;
    }
    if changed.prompts {
        peer.notify_prompt_list_changed().await?;
    }
    Ok(())
}

/// What of a modern client's request is agreed to: of resources, those that a source of
/// the caller has.
///
/// The SDK wants this at once and acknowledges it before it calls `listen`, so no source
/// can be asked first. What a source then refuses to watch is asked for again for as long
/// as the client listens.
pub(super) fn accepted_filter(
    gateway: &Gateway,
    caller: &Caller,
    requested: &SubscriptionFilter,
) -> SubscriptionFilter {
    let mut accepted = requested.clone();
    let Some(uris) = &requested.resource_subscriptions else { return accepted };
    let catalog = gateway.catalog_for(caller);
    let has_source = |uri: &&String| resources_for_uri(catalog.source_resources(), uri).is_some();
    let mut known = HashSet::new();
    let uris = uris.iter().filter(|uri| known.insert(*uri)).filter(has_source);
    accepted.resource_subscriptions = Some(uris.take(MAX_WATCHED_RESOURCES).cloned().collect());
    accepted
}

/// Tell a modern client of what it asked for, for as long as it listens.
///
/// It is told of every resource once when that is watched: it may have changed since the
/// request was acknowledged.
pub(super) async fn notify_subscriber(
    gateway: &Gateway,
    caller: &Caller,
    gone: &CancellationToken,
    context: SubscriptionContext,
) {
    let mut changes = gateway.subscribe();
    let mut news = gateway.subscribe_to_events();
    // What is listed before the sources have connected is listed when they have.
    let mut settled = Box::pin(gateway.settled_catalog(caller));
    let mut known: Option<Arc<Catalog>> = None;
    let accepted = context.sink().accepted().resource_subscriptions.iter();
    let uris: HashSet<String> = accepted.flatten().cloned().collect();
    let (sender, mut watched) = mpsc::channel(1);
    let watching = watch_resources(gateway.clone(), caller.clone(), uris.clone(), sender);
    let _watching = spawn_owned(watching);
    // Held for as long as the client listens.
    let mut leases: Vec<WatchLease> = Vec::new();
    let sink = context.sink();
    loop {
        let told = tokio::select! {
            () = context.cancelled() => return,
            () = gone.cancelled() => return,
            Some((uri, lease)) = watched.recv() => {
                leases.push(lease);
                sink.notify_resource_updated(uri).await
            }
            first = &mut settled, if known.is_none() => {
                known = Some(first);
                Ok(())
            }
            changed = changes.changed(), if known.is_some() => {
                if changed.is_err() {
                    return;
                }
                let current = gateway.catalog_for(caller);
                let before = known.replace(current.clone());
                let changed = ChangedLists::between_catalogs(before.as_ref().unwrap_or(&current), &current);
                async {
                    let wanted = sink.accepted();
                    if changed.tools && wanted.tools_list_changed == Some(true) {
                        sink.notify_tool_list_changed().await?;
                    }
                    if changed.resources && wanted.resources_list_changed == Some(true) {
                        sink.notify_resource_list_changed().await?;
                    }
                    if changed.prompts && wanted.prompts_list_changed == Some(true) {
                        sink.notify_prompt_list_changed().await?;
                    }
                    Ok(())
                }.await
            }
            news = news.recv() => match news {
                Ok(SourceEvent::Updated(uri))
                    if uris.contains(&*uri)
                        && resources_for_uri(gateway.catalog_for(caller).source_resources(), &uri).is_some() =>
                {
                    sink.notify_resource_updated(uri.to_string()).await
                }
                Ok(_) | Err(RecvError::Lagged(_)) => Ok(()),
                Err(RecvError::Closed) => return,
            },
        };
        if told.is_err() {
            return;
        }
    }
}

/// Have the sources tell of these resources; each is sent on when it is watched.
async fn watch_resources(
    gateway: Gateway,
    caller: Caller,
    mut uris: HashSet<String>,
    watched: mpsc::Sender<(String, WatchLease)>,
) {
    while !uris.is_empty() {
        // All in one call's place: they are one request.
        if let Ok(call) = gateway.open_call_when_admitted(caller.clone()).await {
            let watch = async |uri: String| {
                let lease = tokio::time::timeout(WATCH_TIMEOUT, watch_resource(&call, &uri)).await;
                Some((uri, lease.ok()?.ok()?))
            };
            let mut asked: FuturesUnordered<_> = uris.iter().cloned().map(watch).collect();
            let mut agreed = HashSet::new();
            while let Some(answer) = asked.next().await {
                let Some((uri, lease)) = answer else { continue };
                agreed.insert(uri.clone());
                if watched.send((uri, lease)).await.is_err() {
                    return;
                }
            }
            drop(asked);
            uris.retain(|uri| !agreed.contains(uri));
        }
        if !uris.is_empty() {
            tokio::time::sleep(WATCH_RETRY_DELAY).await;
        }
    }
}

/// Ask the source to tell of changes, by its door like everything else.
pub(super) async fn watch_resource(call: &Call, uri: &str) -> Result<WatchLease, ErrorData> {
    let Some(offers) = resources_for_uri(call.catalog().source_resources(), uri) else {
        let data = Some(json!({"uri": uri}));
        return Err(ErrorData::resource_not_found("no source has this resource", data));
    };
    let lease = offers.new_watch_lease();
    let request = json!({
        "method": "resources/subscribe",
        "params": {"uri": uri},
        "lease": lease.number(),
    });
    let asked =
        async { call.gateway().invoke(call, &offers.door, Value::from_json(request)?).await };
    asked.await.map_err(error_from_problem)?;
    Ok(lease)
}

/// Which lists differ. What a source listed anew counts, even if it is the same; a
/// source that has nothing does not.
struct ChangedLists {
    tools: bool,
    resources: bool,
    prompts: bool,
}

impl ChangedLists {
    fn between_catalogs(old: &Catalog, new: &Catalog) -> ChangedLists {
        let tools = old.listed_tools().len() != new.listed_tools().len()
            || old
                .listed_tools()
                .iter()
                .zip(new.listed_tools())
                .any(|(a, b)| !Arc::ptr_eq(&a.1, &b.1));
        let (old, new) = (old.source_resources(), new.source_resources());
        let differ = |list: fn(&SourceResources) -> &Arc<Vec<Object>>| {
            let has_any = |offers: &&Arc<SourceResources>| !list(offers).is_empty();
            let (mut old, mut new) = (old.iter().filter(has_any), new.iter().filter(has_any));
            loop {
                let (a, b) = match (old.next(), new.next()) {
                    (Some(a), Some(b)) => (a, b),
                    (None, None) => return false,
                    _ => return true,
                };
                // Our own lists are made anew with every catalog.
                let is_own = a.source.kind == SourceKind::Builtin && a.source == b.source;
                let same = Arc::ptr_eq(list(a), list(b)) || (is_own && list(a) == list(b));
                if !same {
                    return true;
                }
            }
        };
        ChangedLists {
            tools,
            resources: differ(|it| &it.resources) || differ(|it| &it.templates),
            prompts: differ(|it| &it.prompts),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use moonlark_core::content::ToolAnswer;
    use moonlark_core::schema::Schema;
    use moonlark_core::source_resources::ResourceWatcher;
    use moonlark_core::tool::{Source, SourceKind};
    use moonlark_core::{Problem, Tool};
    use moonlark_gateway::tool_body::ToolBody;
    use parking_lot::Mutex;
    use rmcp::ServiceExt;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, duplex};
    use tokio::sync::Notify;

    use super::super::McpServer;
    use super::*;
    use crate::principal::Principal;

    /// What a source was asked, and which leases ended; and what `mcp://a/slow` waits for.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>, Notify);

    impl ResourceWatcher for Notes {
        fn release_lease(&self, lease: u64) {
            self.0.lock().push(format!("release {lease}"));
        }
    }

    /// A gateway with one source, whose door refuses to watch `mcp://a/no`, and
    /// `mcp://a/later` the first time.
    fn gateway(notes: &Arc<Notes>) -> Gateway {
        let source = Arc::new(Source { kind: SourceKind::Upstream, name: "a".to_owned() });
        let asked = notes.clone();
        let body = ToolBody::from_answering_fn(move |_, args| {
            asked.0.lock().push(args.to_json_lossy().to_string());
            let uri = args.get("params").and_then(|params| params.get("uri")).cloned();
            let uri = uri.and_then(|uri| uri.as_str().map(str::to_owned)).unwrap_or_default();
            let times = asked.0.lock().iter().filter(|it| it.contains(&uri)).count();
            let asked = asked.clone();
            async move {
                if uri == "mcp://a/slow" {
                    asked.1.notified().await;
                }
                if uri == "mcp://a/no" || uri == "mcp://a/later" && times == 1 {
                    return Err(Problem::unavailable("not now"));
                }
                Ok(ToolAnswer::Raw(Object::new()))
            }
        });
        let offers = SourceResources {
            app_uris: Arc::default(),
            uris: "mcp://a/".to_owned(),
            names: "a/".to_owned(),
            resources: Arc::default(),
            templates: Arc::default(),
            prompts: Arc::default(),
            capabilities: Arc::default(),
            instructions: None,
            door: Arc::new(Tool::new(
                "a:",
                source.clone(),
                Schema::description_only(serde_json::Map::new()),
                body,
            )),
            watcher: notes.clone(),
            source,
        };
        let catalog = Catalog::new(Arc::default(), vec![], &[], vec![]);
        Gateway::new(catalog.with_source_resources(vec![Arc::new(offers)], vec![]), 1)
    }

    #[tokio::test]
    async fn a_source_is_asked_by_its_door_and_told_when_the_lease_ends() {
        let notes = Arc::new(Notes::default());
        let gateway = gateway(&notes);
        let noted = || std::mem::take(&mut *notes.0.lock());
        let call = gateway.open_call(Caller::new("mcp")).unwrap();

        let lease = watch_resource(&call, "mcp://a/yes").await.ok().unwrap();
        let number = lease.number();
        let method = "resources/subscribe";
        let asked = |uri: &str, lease: u64| {
            format!(r#"{{"method":"{method}","params":{{"uri":"{uri}"}},"lease":{lease}}}"#)
        };
        assert_eq!(noted(), [asked("mcp://a/yes", number)]);
        drop(lease);
        assert_eq!(noted(), [format!("release {number}")]);

        let refused = watch_resource(&call, "mcp://a/no").await.err().unwrap();
        assert!(refused.message.contains("not now"), "{refused:?}");
        let notes = noted();
        assert_eq!(notes.len(), 2);
        assert!(notes[1].starts_with("release "), "{notes:?}");

        let unknown = watch_resource(&call, "mcp://b/any").await.err().unwrap();
        assert_eq!(unknown.message, "no source has this resource");
        assert_eq!(noted(), Vec::<String>::new());
    }

    fn filter(uris: &[&str]) -> SubscriptionFilter {
        let mut filter = SubscriptionFilter::default();
        filter.tools_list_changed = Some(true);
        filter.resource_subscriptions = Some(uris.iter().map(|uri| (*uri).to_owned()).collect());
        filter
    }

    #[tokio::test]
    async fn what_some_source_has_is_accepted_and_no_source_is_asked_first() {
        let notes = Arc::new(Notes::default());
        let gateway = gateway(&notes);
        let uris = ["mcp://a/yes", "mcp://a/no", "mcp://b/any", "mcp://a/yes"];
        // As many calls as there may be are in progress.
        let _call = gateway.open_call(Caller::new("mcp")).unwrap();
        let accepted = accepted_filter(&gateway, &Caller::new("mcp"), &filter(&uris));
        assert_eq!(accepted, filter(&["mcp://a/yes", "mcp://a/no"]));
        let many: Vec<String> =
            (0..=MAX_WATCHED_RESOURCES).map(|it| format!("mcp://a/{it}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let accepted = accepted_filter(&gateway, &Caller::new("mcp"), &filter(&many));
        assert_eq!(accepted, filter(&many[..MAX_WATCHED_RESOURCES]));
        assert_eq!(*notes.0.lock(), Vec::<String>::new());
    }

    /// The next message to a client.
    async fn next_message(lines: &mut Lines<BufReader<DuplexStream>>) -> serde_json::Value {
        serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn a_client_is_told_of_a_resource_when_its_slow_source_watches_it_and_of_changes_since() {
        let notes = Arc::new(Notes::default());
        let gateway = gateway(&notes);
        let (mut client, input) = duplex(1 << 16);
        let (output, answers) = duplex(1 << 16);
        let server = McpServer::new(gateway.clone(), Principal::local());
        let gone = server.gone.clone();
        tokio::spawn(async move {
            server.serve((input, output)).await.unwrap().waiting().await.unwrap();
        });
        let mut messages = BufReader::new(answers).lines();
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let uris = ["mcp://a/slow", "mcp://a/later"];
        let params = json!({"notifications": {"resourceSubscriptions": uris}, "_meta": meta});
        let request =
            json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params});
        client.write_all(format!("{request}\n").as_bytes()).await.unwrap();

        let acknowledged = next_message(&mut messages).await;
        assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(acknowledged["params"]["notifications"]["resourceSubscriptions"], json!(uris));
        // It was acknowledged before the source agreed to anything.
        notes.1.notify_one();
        let updated = next_message(&mut messages).await;
        assert_eq!(updated["method"], "notifications/resources/updated");
        assert_eq!(updated["params"]["uri"], "mcp://a/slow");
        // What was refused is asked for again.
        let updated = next_message(&mut messages).await;
        assert_eq!(updated["params"]["uri"], "mcp://a/later");
        gateway.announce_event(SourceEvent::Updated("mcp://a/slow".into()));
        let updated = next_message(&mut messages).await;
        assert_eq!(updated["params"]["uri"], "mcp://a/slow");
        // All that is watched is let go when the client leaves.
        let releases = || notes.0.lock().iter().filter(|it| it.starts_with("release")).count();
        let before = releases();
        drop(client);
        gone.cancel();
        while releases() < before + uris.len() {
            tokio::task::yield_now().await;
        }
    }
}
