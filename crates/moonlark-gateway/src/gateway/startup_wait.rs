//! Waiting at start-up: for scripts that are being loaded for the first time, and for
//! sources that connect.
//!
//! Lists, and tools that say what there is, wait for all sources at once: clients ask
//! once and keep the answer. That wait is bounded, and only a server that serves begins
//! one ([`Gateway::begin_settling`]). A call of a tool waits for the source of that
//! tool alone.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Gateway;
use crate::call::{Call, Caller};
use moonlark_core::catalog::Catalog;
use moonlark_core::problem::Result;
use moonlark_core::tool::SourceKind;

/// How long a call waits for the source of its tool to connect.
const SOURCE_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

impl Gateway {
    /// From now on and for at most this long, lists wait until no source is connecting
    /// for the first time.
    pub fn begin_settling(&self, time: Duration) {
        self.0.settling.send_replace(Some(Instant::now() + time));
    }

    /// Lists no longer wait for sources.
    pub fn end_settling(&self) {
        self.0.settling.send_replace(None);
    }

    /// Whether lists may have to wait for sources.
    pub fn is_settling(&self) -> bool {
        self.0.settling.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// The caller's catalog once its sources have connected, or the time for that has
    /// passed. Whoever lists what there is asks here.
    pub async fn settled_catalog(&self, caller: &Caller) -> Arc<Catalog> {
        let catalog = self.loaded_catalog(caller).await;
        if !self.is_settling() || !catalog.awaits_sources() {
            return catalog;
        }
        let mut changes = self.subscribe();
        let mut settling = self.0.settling.subscribe();
        loop {
            changes.mark_unchanged();
            let until = *settling.borrow_and_update();
            let catalog = self.catalog_for(caller);
            let Some(until) = until.filter(|_| catalog.awaits_sources()) else { return catalog };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return catalog },
                _ = settling.changed() => {}
                () = tokio::time::sleep_until(until) => return self.catalog_for(caller),
            }
        }
    }

    /// The call on the catalog as it is once sources have connected, or its own time or
    /// that for settling has passed.
    pub(super) async fn when_settled(&self, parent: &Call) -> Call {
        let settled = self.settled_catalog(parent.caller());
        let settled = tokio::time::timeout_at(parent.deadline(), settled).await;
        parent.with_catalog(settled.unwrap_or_else(|_| self.catalog_for(parent.caller())))
    }

    /// The caller's catalog once all scripts have been loaded for the first time, or
    /// their time for that has passed.
    pub async fn loaded_catalog(&self, caller: &Caller) -> Arc<Catalog> {
        self.catalog_when(caller, |catalog| !catalog.is_loading()).await
    }

    /// The caller's catalog as soon as it is as `is_ready` wants it.
    async fn catalog_when(
        &self,
        caller: &Caller,
        is_ready: impl Fn(&Catalog) -> bool + Send,
    ) -> Arc<Catalog> {
        let mut changes = self.subscribe();
        loop {
            changes.mark_unchanged();
            let catalog = self.catalog_for(caller);
            if is_ready(&catalog) || changes.changed().await.is_err() {
                return catalog;
            }
        }
    }

    /// The call while scripts are being loaded for the first time. A tool that is there
    /// can be called. Built-in ones say or use what there is, so they wait for all
    /// scripts, and so does a name that nothing has yet.
    pub(super) async fn when_loaded(&self, parent: &Call, name: &str) -> Result<Call> {
        let caller = parent.caller();
        let is_ready = |catalog: &Catalog| {
            let found = catalog.find_tool(name);
            !catalog.is_loading() || found.is_ok_and(|it| it.source.kind != SourceKind::Builtin)
        };
        let ready = self.catalog_when(caller, is_ready);
        let Ok(catalog) = tokio::time::timeout_at(parent.deadline(), ready).await else {
            return Err(self.catalog_for(caller).still_connecting_problem(name));
        };
        let call = parent.with_catalog(catalog);
        if call.catalog().awaits_tool(name) {
            self.when_connected(&call, name).await
        } else {
            Ok(call)
        }
    }

    /// The caller's catalog as it is once the source of `name` has connected, or
    /// has not.
    pub async fn wait_for_source(&self, caller: &Caller, name: &str) -> Arc<Catalog> {
        let connected = self.catalog_when(caller, |catalog| !catalog.awaits_tool(name));
        let connected = tokio::time::timeout(SOURCE_CONNECT_TIMEOUT, connected).await;
        connected.unwrap_or_else(|_| self.catalog_for(caller))
    }

    /// The call as it is once the source of `name` has connected, or has not.
    pub(super) async fn when_connected(&self, parent: &Call, name: &str) -> Result<Call> {
        let caller = parent.caller();
        let settled = self.wait_for_source(caller, name);
        let settled = tokio::time::timeout_at(parent.deadline(), settled).await;
        let catalog = settled.unwrap_or_else(|_| self.catalog_for(caller));
        if catalog.awaits_tool(name) {
            Err(catalog.still_connecting_problem(name))
        } else {
            Ok(parent.with_catalog(catalog))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::tool_body::ToolBody;
    use moonlark_core::catalog::ConnectingSource;
    use moonlark_core::problem::ProblemCode;
    use moonlark_core::schema::Schema;
    use moonlark_core::tool::{Source, Tool, ToolExposure};
    use moonlark_core::value::Value;

    fn tool(kind: SourceKind, name: &str) -> Arc<Tool> {
        let source = Arc::new(Source { kind, name: name.to_owned() });
        let body = ToolBody::from_fn(|call, _| Ok(Value::Int(call.catalog().tools().len() as i64)));
        Arc::new(Tool::new(name, source, Schema::description_only(Default::default()), body))
    }

    fn catalog(scripts: &[&str], loading: bool) -> Catalog {
        let scripts = scripts.iter().map(|name| tool(SourceKind::Script, name));
        let tools = std::iter::once(tool(SourceKind::Builtin, "list")).chain(scripts).collect();
        Catalog::new(Arc::default(), tools, &[], Vec::new()).with_loading(loading)
    }

    /// The same with a source that is still connecting, and whether its tools are known
    /// from an earlier time.
    fn connecting(is_remembered: bool) -> Catalog {
        let connecting = ConnectingSource {
            source: "slow".to_owned(),
            kind: SourceKind::Upstream,
            prefix: "slow__".to_owned(),
            expose: ToolExposure::Direct,
            is_remembered,
        };
        catalog(&["first"], false).with_source_resources(Vec::new(), vec![connecting])
    }

    #[tokio::test]
    async fn lists_wait_for_sources_until_they_are_there_or_the_time_has_passed() {
        let caller = Caller::new("test");
        let gateway = Gateway::new(connecting(false), 10);
        // Nobody waits where nobody said so.
        assert_eq!(gateway.settled_catalog(&caller).await.tools().len(), 2);

        gateway.begin_settling(Duration::from_secs(600));
        let mut list = pin!(gateway.settled_catalog(&caller));
        assert!(futures::poll!(&mut list).is_pending());
        gateway.publish(catalog(&["first", "second"], false));
        assert_eq!(list.await.tools().len(), 3);

        // A source whose tools are known already holds nobody up.
        gateway.publish(connecting(true));
        let remembered = pin!(gateway.settled_catalog(&caller));
        assert!(futures::poll!(remembered).is_ready());

        gateway.publish(connecting(false));
        let mut list = pin!(gateway.settled_catalog(&caller));
        assert!(futures::poll!(&mut list).is_pending());
        gateway.end_settling();
        assert!(futures::poll!(&mut list).is_ready());

        gateway.begin_settling(Duration::from_millis(20));
        let began = Instant::now();
        gateway.settled_catalog(&caller).await;
        assert!(began.elapsed() >= Duration::from_millis(20));
        assert!(!gateway.is_settling());
    }

    #[tokio::test]
    async fn only_tools_that_say_what_there_is_wait_for_all_sources() {
        let listing = |names: &[&str]| {
            let source = Arc::new(Source { kind: SourceKind::Builtin, name: "own".to_owned() });
            let body =
                ToolBody::from_fn(|call, _| Ok(Value::Int(call.catalog().tools().len() as i64)));
            let schema = Schema::description_only(Default::default());
            let mut lists = Tool::new("search_docs", source, schema, body);
            lists.describes_sources = true;
            let scripts = names.iter().map(|name| tool(SourceKind::Script, name));
            let tools = std::iter::once(Arc::new(lists)).chain(scripts).collect();
            Catalog::new(Arc::default(), tools, &[], Vec::new())
        };
        let awaited = connecting(false).connecting_sources().to_vec();
        let gateway =
            Gateway::new(listing(&["first"]).with_source_resources(Vec::new(), awaited), 10);
        gateway.begin_settling(Duration::from_secs(600));
        let call = gateway.open_call(Caller::new("test")).unwrap();
        let nothing = || Value::Object(Default::default());
        assert_eq!(gateway.call(&call, "first", nothing()).await, Ok(Value::Int(2)));
        let mut search = pin!(gateway.call(&call, "search_docs", nothing()));
        assert!(futures::poll!(&mut search).is_pending());
        gateway.publish(listing(&["first", "second"]));
        assert_eq!(search.await, Ok(Value::Int(3)));
    }

    #[tokio::test]
    async fn what_is_not_there_yet_is_waited_for_and_what_is_there_is_not() {
        let gateway = Gateway::new(catalog(&["first"], true), 10);
        let call = gateway.open_call(Caller::new("test")).unwrap();
        let nothing = || Value::Object(Default::default());
        assert_eq!(gateway.call(&call, "first", nothing()).await, Ok(Value::Int(2)));
        // A built-in one says what there is, so it waits for all; so do lists.
        let mut second = pin!(gateway.call(&call, "second", nothing()));
        let mut missing = pin!(gateway.call(&call, "missing", nothing()));
        let mut builtin = pin!(gateway.call(&call, "list", nothing()));
        let caller = Caller::new("test");
        let mut list = pin!(gateway.loaded_catalog(&caller));
        assert!(futures::poll!(&mut second).is_pending());
        assert!(futures::poll!(&mut missing).is_pending());
        assert!(futures::poll!(&mut builtin).is_pending());
        assert!(futures::poll!(&mut list).is_pending());

        gateway.publish(catalog(&["first", "second"], true));
        assert_eq!(futures::poll!(&mut second), Poll::Ready(Ok(Value::Int(3))));
        assert!(futures::poll!(&mut missing).is_pending());
        assert!(futures::poll!(&mut builtin).is_pending());
        assert!(futures::poll!(&mut list).is_pending());

        gateway.publish(catalog(&["first", "second", "third"], false));
        assert_eq!(builtin.await, Ok(Value::Int(4)));
        assert_eq!(list.await.tools().len(), 4);
        assert_eq!(missing.await.unwrap_err().code, ProblemCode::NotFound);
    }
}
