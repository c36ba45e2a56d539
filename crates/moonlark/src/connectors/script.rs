//! A connector script as a connector of the knowledge base.

use std::sync::Arc;

use moonlark_core::tool::{BoxFuture, Scope};
use moonlark_core::{Caller, Gateway, Problem, Result, Value};
use moonlark_knowledge::{Connector, Found, Out, Scan, Scanned};
use tokio::sync::mpsc;

use super::item;

/// Items between the script and the sync: each may be large.
const BETWEEN: usize = 4;

/// One source that a script reads, with what it may do and use.
#[derive(Clone)]
pub(crate) struct ScriptSource {
    pub(crate) name: String,
    pub(crate) script: moonlark_luau::Connector,
    pub(crate) scope: Arc<Scope>,
    pub(crate) gateway: Gateway,
    /// Begin from nothing, whatever earlier scans left.
    pub(crate) full: bool,
}

impl Connector for ScriptSource {
    fn scan(&self, scan: Scan) -> BoxFuture<Result<Scanned>> {
        let source = self.clone();
        Box::pin(async move { source.run(scan).await })
    }
}

impl ScriptSource {
    async fn run(self, scan: Scan) -> Result<Scanned> {
        let call = self.gateway.scoped(Caller::new("sync"), self.scope.clone()).named(&self.name);
        let state = if self.full { Value::Null } else { scan.state };
        let (sender, items) = mpsc::channel(BETWEEN);
        let scanning = self.script.scan(&call, state, sender);
        let (scanned, nameless) = tokio::join!(scanning, pass_on(items, scan.out));
        let moonlark_luau::Scanned { state, incremental } = scanned?;
        Ok(Scanned {
            // What could not even be named may well be there: nothing is taken
            // for gone because of it.
            complete: (!incremental || self.full) && !nameless,
            state,
        })
    }
}

/// Hand items over until there are no more, or nobody takes them. Whether one of
/// them had no name.
async fn pass_on(mut items: mpsc::Receiver<Result<Value>>, out: Out) -> bool {
    let (mut number, mut nameless) = (0_u64, false);
    while let Some(value) = items.recv().await {
        number += 1;
        let read = value.map_err(|problem| (None, Box::new(problem))).and_then(item::read);
        let found = read.unwrap_or_else(|(name, problem)| {
            nameless |= name.is_none();
            failed(number, name, *problem)
        });
        if out.send(found).await.is_err() {
            break;
        }
    }
    nameless
}

fn failed(number: u64, name: Option<String>, problem: Problem) -> Found {
    let message = format!("item {number}: {}", problem.message);
    let problem = problem.saying(message);
    Found::Failed(name.unwrap_or_else(|| format!("item {number}")), problem)
}
