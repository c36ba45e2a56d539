//! A connector script as a connector of the knowledge base.

use std::sync::Arc;

use moonlark_core::tool::{BoxFuture, CallScope};
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::{Caller, Gateway};
use moonlark_knowledge::{ScanFinding, ScanOutcome, ScanSender, SourceConnector, SourceScan};
use tokio::sync::mpsc;

use super::connector_item;

/// Items between the script and the sync: each may be large.
const MAX_BUFFERED_ITEMS: usize = 4;

/// One source that a script reads, with what it may do and use.
#[derive(Clone)]
pub(crate) struct ScriptedConnector {
    pub(crate) name: String,
    pub(crate) script: moonlark_luau::ConnectorScript,
    pub(crate) scope: Arc<CallScope>,
    pub(crate) gateway: Gateway,
    /// Begin from nothing, whatever earlier scans left.
    pub(crate) full: bool,
}

impl SourceConnector for ScriptedConnector {
    fn scan(self: Arc<Self>, scan: SourceScan) -> BoxFuture<Result<ScanOutcome>> {
        Box::pin(async move { self.run_scan(scan).await })
    }
}

impl ScriptedConnector {
    async fn run_scan(&self, scan: SourceScan) -> Result<ScanOutcome> {
        let call = self
            .gateway
            .open_scoped_call(Caller::new("sync"), self.scope.clone())
            .with_name(&self.name);
        let state = if self.full { Value::Null } else { scan.state };
        let (sender, items) = mpsc::channel(MAX_BUFFERED_ITEMS);
        let scanning = self.script.run_scan(&call, state, sender);
        let (scanned, nameless) = tokio::join!(scanning, forward_items(items, scan.out));
        let moonlark_luau::CompletedScan { state, incremental } = scanned?;
        Ok(ScanOutcome {
            // What could not even be named may well be there: nothing is taken
            // for gone because of it.
            complete: (!incremental || self.full) && !nameless,
            state,
        })
    }
}

/// Hand items over until there are no more, or nobody takes them. Whether one of
/// them had no name.
async fn forward_items(mut items: mpsc::Receiver<Result<Value>>, out: ScanSender) -> bool {
    let (mut number, mut nameless) = (0_u64, false);
    while let Some(value) = items.recv().await {
        number += 1;
        let read =
            value.map_err(|problem| (None, Box::new(problem))).and_then(connector_item::read_item);
        let found = read.unwrap_or_else(|(name, problem)| {
            nameless |= name.is_none();
            failed_item(number, name, *problem)
        });
        if out.send(found).await.is_err() {
            break;
        }
    }
    nameless
}

fn failed_item(number: u64, name: Option<String>, problem: Problem) -> ScanFinding {
    let message = format!("item {number}: {}", problem.message);
    let problem = problem.with_message(message);
    ScanFinding::Failed(name.unwrap_or_else(|| format!("item {number}")), problem)
}
