//! What is asked of a server that has just started: it waits for scripts that are
//! being loaded for the first time, and for sources that connect.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Gateway;
use crate::call::{Call, Caller};
use crate::catalog::Catalog;
use crate::problem::Result;
use crate::tool::SourceKind;

/// How long a call waits for the source of its tool to connect.
const CONNECTING: Duration = Duration::from_secs(30);

impl Gateway {
    /// The caller's catalog once all scripts have been loaded for the first time, or
    /// their time for that has passed. Whoever lists what there is asks here.
    pub async fn loaded(&self, caller: &Caller) -> Arc<Catalog> {
        let catalog = self.catalog_for(caller);
        if !catalog.is_loading() {
            return catalog;
        }
        let mut changes = self.subscribe();
        loop {
            changes.mark_unchanged();
            let catalog = self.catalog_for(caller);
            if !catalog.is_loading() || changes.changed().await.is_err() {
                return catalog;
            }
        }
    }

    /// The call while scripts are being loaded for the first time. A tool that is there
    /// can be called. Built-in ones say or use what there is, so they wait for all
    /// scripts, and so does a name that nothing has yet.
    pub(super) async fn when_loaded(&self, parent: &Call, name: &str) -> Result<Call> {
        let caller = parent.caller();
        let is_there = |catalog: &Catalog| {
            catalog.find(name).is_ok_and(|it| it.source.kind != SourceKind::Builtin)
        };
        let mut changes = self.subscribe();
        loop {
            changes.mark_unchanged();
            let catalog = self.catalog_for(caller);
            if is_there(&catalog) || !catalog.is_loading() {
                let call = parent.with_catalog(catalog);
                return if call.catalog().awaits(name) {
                    self.when_connected(&call, name).await
                } else {
                    Ok(call)
                };
            }
            if tokio::time::timeout_at(parent.deadline(), changes.changed()).await.is_err() {
                return Err(catalog.still_connecting(name));
            }
        }
    }

    /// The caller's catalog as it is once the source of `name` has connected, or
    /// has not.
    pub async fn settled(&self, caller: &Caller, name: &str) -> Arc<Catalog> {
        let mut changes = self.subscribe();
        let until = Instant::now() + CONNECTING;
        loop {
            changes.mark_unchanged();
            let catalog = self.catalog_for(caller);
            let waits = catalog.awaits(name);
            if !waits || tokio::time::timeout_at(until, changes.changed()).await.is_err() {
                return catalog;
            }
        }
    }

    /// The call as it is once the source of `name` has connected, or has not.
    pub(super) async fn when_connected(&self, parent: &Call, name: &str) -> Result<Call> {
        let caller = parent.caller();
        let settled = self.settled(caller, name);
        let settled = tokio::time::timeout_at(parent.deadline(), settled).await;
        let catalog = settled.unwrap_or_else(|_| self.catalog_for(caller));
        match catalog.awaits(name) {
            true => Err(catalog.still_connecting(name)),
            false => Ok(parent.with_catalog(catalog)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::problem::Code;
    use crate::schema::Schema;
    use crate::tool::{Body, Source, Tool};
    use crate::value::Value;

    fn tool(kind: SourceKind, name: &str) -> Arc<Tool> {
        let source = Arc::new(Source { kind, name: name.to_owned() });
        let body = Body::now(|call, _| Ok(Value::Int(call.catalog().tools().len() as i64)));
        Arc::new(Tool::new(name, source, Schema::described(Default::default()), body))
    }

    fn catalog(scripts: &[&str], loading: bool) -> Catalog {
        let scripts = scripts.iter().map(|name| tool(SourceKind::Script, name));
        let tools = std::iter::once(tool(SourceKind::Builtin, "list")).chain(scripts).collect();
        Catalog::new(Arc::default(), tools, &[], Vec::new()).while_loading(loading)
    }

    #[tokio::test]
    async fn what_is_not_there_yet_is_waited_for_and_what_is_there_is_not() {
        let gateway = Gateway::new(catalog(&["first"], true), 10);
        let call = gateway.open(Caller::new("test"), None).unwrap();
        let nothing = || Value::Object(Default::default());
        assert_eq!(gateway.call(&call, "first", nothing()).await, Ok(Value::Int(2)));
        // A built-in one says what there is, so it waits for all; so do lists.
        let mut second = pin!(gateway.call(&call, "second", nothing()));
        let mut missing = pin!(gateway.call(&call, "missing", nothing()));
        let mut builtin = pin!(gateway.call(&call, "list", nothing()));
        let caller = Caller::new("test");
        let mut list = pin!(gateway.loaded(&caller));
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
        assert_eq!(missing.await.unwrap_err().code, Code::NotFound);
    }
}
