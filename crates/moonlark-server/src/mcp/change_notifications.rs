//! What clients are told of by themselves: that a list has changed, that a
//! resource has.
//!
//! An old client is told everything about lists; [`wishes`](super::wishes) has
//! the rest. A modern one asks for what it wants with one long request.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use moonlark_core::source_resources::{
    SourceEvent, SourceResources, WatchLease, resources_for_uri,
};
use moonlark_core::tool::SourceKind;
use moonlark_core::value::Object;
use moonlark_core::{Call, Caller, Catalog, Gateway, Value};
use parking_lot::Mutex;
use rmcp::model::{ErrorData, SubscriptionFilter};
use rmcp::service::{ServiceError, SubscriptionContext};
use rmcp::{Peer, RoleServer};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::sessions::SESSION_IDLE_TIMEOUT;
use super::tool_result::error_from_problem;

/// Resources that one client may watch.
pub(super) const MAX_WATCHED_RESOURCES: usize = 1000;
/// How long a source has to agree that a resource is watched.
const WATCH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a modern client's request to listen waits for that before it is
/// acknowledged.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_millis(200);

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

/// The subscriptions of one client that were begun before their request was
/// acknowledged.
#[derive(Default)]
pub(super) struct BegunSubscriptions(Mutex<Vec<BegunSubscription>>);

/// Resources that were accepted, and the task that makes their sources tell of them.
struct BegunSubscription {
    accepted: HashSet<String>,
    watching: AbortOnDropHandle<Vec<(String, WatchLease)>>,
}

impl BegunSubscriptions {
    /// What of the request is agreed to: resources only if their sources do.
    ///
    /// The SDK acknowledges a request to listen before it hands it to us, and a
    /// client may cause a change right after that. So sources are asked here, where
    /// nothing can be awaited: this thread waits for a moment, others work. What a
    /// slow source has is accepted; [`notify_subscriber`] tells of it as soon as it is watched,
    /// because it may have changed since.
    pub(super) fn begin_subscription(
        &self,
        gateway: &Gateway,
        caller: &Caller,
        requested: &SubscriptionFilter,
    ) -> SubscriptionFilter {
        let mut accepted = requested.clone();
        let Some(uris) = &requested.resource_subscriptions else { return accepted };
        let catalog = gateway.catalog_for(caller);
        let known =
            uris.iter().filter(|uri| resources_for_uri(catalog.source_resources(), uri).is_some());
        let known: HashSet<String> = known.take(MAX_WATCHED_RESOURCES).cloned().collect();
        accepted.resource_subscriptions = Some(Vec::new());
        if known.is_empty() {
            return accepted;
        }
        let task = watch_resources(gateway.clone(), caller.clone(), known.clone());
        let mut watching = AbortOnDropHandle::new(tokio::spawn(task));
        let agreed = tokio::task::block_in_place(|| {
            let agreed = tokio::time::timeout(ACKNOWLEDGE_TIMEOUT, &mut watching);
            tokio::runtime::Handle::current().block_on(agreed)
        });
        let (known, watching) = match agreed {
            Ok(watched) => {
                let watched = watched.unwrap_or_default();
                let uris = watched.iter().map(|(uri, _)| uri.clone()).collect();
                (uris, AbortOnDropHandle::new(tokio::spawn(std::future::ready(watched))))
            }
            Err(_elapsed) => (known, watching),
        };
        accepted.resource_subscriptions = Some(known.iter().cloned().collect());
        let mut begun = self.0.lock();
        // What was refused after all is never taken.
        let old = begun.len().saturating_sub(MAX_WATCHED_RESOURCES);
        begun.drain(..old);
        begun.push(BegunSubscription { accepted: known, watching });
        accepted
    }

    fn take_begun(&self, uris: &HashSet<String>) -> Option<BegunSubscription> {
        let mut begun = self.0.lock();
        let index = begun.iter().position(|it| it.accepted == *uris)?;
        Some(begun.swap_remove(index))
    }
}

/// Tell a modern client of what it asked for, for as long as it listens.
pub(super) async fn notify_subscriber(
    gateway: &Gateway,
    caller: &Caller,
    gone: &CancellationToken,
    begun: &BegunSubscriptions,
    context: SubscriptionContext,
) {
    let mut changes = gateway.subscribe();
    let mut news = gateway.subscribe_to_events();
    // What is listed before the sources have connected is listed when they have.
    let mut settled = Box::pin(gateway.settled_catalog(caller));
    let mut known: Option<Arc<Catalog>> = None;
    let accepted = context.sink().accepted().resource_subscriptions.iter();
    let uris: HashSet<String> = accepted.flatten().cloned().collect();
    let mut begun = begun.take_begun(&uris);
    let was_watched = begun.as_ref().is_some_and(|it| it.watching.is_finished());
    // Held for as long as the client listens.
    let mut held: Option<Vec<(String, WatchLease)>> = None;
    let sink = context.sink();
    loop {
        let watched = async {
            match &mut begun {
                Some(begun) => (&mut begun.watching).await.unwrap_or_default(),
                None => std::future::pending().await,
            }
        };
        let told = tokio::select! {
            () = context.cancelled() => return,
            () = gone.cancelled() => return,
            watched = watched => {
                begun = None;
                let watched = held.insert(watched);
                async {
                    let late = watched.iter().filter(|_| !was_watched);
                    for (uri, _) in late {
                        sink.notify_resource_updated(uri.clone()).await?;
                    }
                    Ok(())
                }.await
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

/// Those of the resources that are watched from now on.
async fn watch_resources(
    gateway: Gateway,
    caller: Caller,
    uris: HashSet<String>,
) -> Vec<(String, WatchLease)> {
    // All in one call's place: they are one request.
    let Ok(call) = gateway.open_call_when_admitted(caller, None, None).await else {
        return Vec::new();
    };
    let watch = async |uri: &String| {
        let watched = tokio::time::timeout(WATCH_TIMEOUT, watch_resource(&call, uri)).await;
        Some((uri.clone(), watched.ok()?.ok()?))
    };
    let all = futures::future::join_all(uris.iter().map(watch)).await;
    all.into_iter().flatten().collect()
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
        async { call.gateway().call_tool(call, &offers.door, Value::from_json(request)?).await };
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
    use moonlark_core::tool::{Source, SourceKind, ToolBody};
    use moonlark_core::{Problem, ProblemCode, Tool};
    use parking_lot::Mutex;

    use super::*;

    /// What a source was asked, and which leases ended.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl ResourceWatcher for Notes {
        fn release_lease(&self, lease: u64) {
            self.0.lock().push(format!("release {lease}"));
        }
    }

    /// A gateway with one source, whose door refuses to watch `mcp://a/no`.
    fn gateway(notes: &Arc<Notes>) -> Gateway {
        let source = Arc::new(Source { kind: SourceKind::Upstream, name: "a".to_owned() });
        let asked = notes.clone();
        let body = ToolBody::from_answering_fn(move |_, args| {
            asked.0.lock().push(args.to_json_lossy().to_string());
            let uri = args.get("params").and_then(|params| params.get("uri")).cloned();
            let answer = if uri == Some("mcp://a/no".into()) {
                Err(Problem::new(ProblemCode::Unavailable, "not now"))
            } else {
                Ok(ToolAnswer::Raw(Object::new()))
            };
            async { answer }
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
        let call = gateway.open_call(Caller::new("mcp"), None).unwrap();

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

    #[tokio::test(flavor = "multi_thread")]
    async fn only_what_sources_agree_to_is_listened_to() {
        let notes = Arc::new(Notes::default());
        let gateway = gateway(&notes);
        let uris = ["mcp://a/yes", "mcp://a/no", "mcp://b/any", "mcp://a/yes"];
        let mut requested = SubscriptionFilter::default();
        requested.tools_list_changed = Some(true);
        requested.resource_subscriptions = Some(uris.map(str::to_owned).to_vec());
        let begun = BegunSubscriptions::default();
        let accepted = begun.begin_subscription(&gateway, &Caller::new("mcp"), &requested);
        assert_eq!(accepted.tools_list_changed, Some(true));
        assert_eq!(accepted.resource_subscriptions, Some(vec!["mcp://a/yes".to_owned()]));
        // As many calls as there may be are in progress: nobody is asked.
        let _call = gateway.open_call(Caller::new("mcp"), None).unwrap();
        let before = notes.0.lock().len();
        assert_eq!(
            begun
                .begin_subscription(&gateway, &Caller::new("mcp"), &requested)
                .resource_subscriptions,
            Some(vec![])
        );
        assert_eq!(notes.0.lock().len(), before);
    }
}
