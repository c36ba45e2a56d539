//! Keeping the knowledge base up to date while something is served.

use std::collections::HashSet;
use std::path::Path;

use moonlark_core::{Code, Gateway};
use moonlark_knowledge::{Summary, SyncOptions, Watch};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::KnowledgeBase;
use crate::config::SyncWhen;
use crate::connectors::Source;

/// Sources are followed until this is dropped.
pub(crate) struct Following {
    _task: AbortOnDropHandle<()>,
}

impl KnowledgeBase {
    /// Read sources at the start, at intervals and when their folders change, as
    /// the configuration says, also when it says something else later.
    pub(crate) fn follow(&self, gateway: &Gateway) -> Following {
        let (base, gateway) = (self.clone(), gateway.clone());
        let mut changed = self.0.changed.subscribe();
        let task = tokio::spawn(async move {
            let read = Mutex::default();
            loop {
                changed.mark_unchanged();
                tokio::select! {
                    () = base.round(&gateway, &read) => {}
                    _ = changed.changed() => {}
                }
            }
        });
        Following { _task: AbortOnDropHandle::new(task) }
    }

    /// With the sources that there are now; never ends by itself. `read` are
    /// those that were read at the start.
    async fn round(&self, gateway: &Gateway, read: &Mutex<HashSet<String>>) {
        let (sources, when, interval) = {
            let now = self.0.now.lock();
            (now.sources.clone(), now.when, now.interval)
        };
        let each = sources.iter().map(|source| async move {
            let mut watch = source.watched().and_then(|root| watching(&source.name, root));
            let at_start = when == SyncWhen::Start && !read.lock().contains(&source.name);
            if at_start || watch.is_some() {
                self.bring_up_to_date(source, gateway).await;
                read.lock().insert(source.name.clone());
            }
            loop {
                let change = async {
                    match &mut watch {
                        Some(watch) => watch.next().await,
                        None => std::future::pending().await,
                    }
                };
                let due = async {
                    match interval {
                        Some(interval) => tokio::time::sleep(interval).await,
                        None => std::future::pending().await,
                    }
                };
                let noticed = tokio::select! {
                    noticed = change => noticed,
                    () = due => Ok(()),
                };
                if let Err(problem) = noticed {
                    tracing::warn!("sync {}: {problem}", source.name);
                    watch = None;
                    continue;
                }
                self.bring_up_to_date(source, gateway).await;
            }
        });
        futures::future::join_all(each).await;
        // Without any source there is nothing to do until that changes.
        std::future::pending::<()>().await;
    }

    async fn bring_up_to_date(&self, source: &Source, gateway: &Gateway) {
        match self.sync(source, gateway, SyncOptions::default()).await {
            Ok(summary) => tell(&source.name, &summary),
            // Most often another process does it, for us as well.
            Err(problem) if problem.code == Code::Unavailable => {
                tracing::info!("sync {}: {}", source.name, problem.message);
            }
            Err(problem) => tracing::warn!("sync {}: {problem}", source.name),
        }
    }
}

fn watching(name: &str, root: &Path) -> Option<Watch> {
    let watch = Watch::of(root);
    watch.inspect_err(|problem| tracing::warn!("sync {name}: {problem}")).ok()
}

/// Nothing is said of a sync that changed nothing.
fn tell(name: &str, summary: &Summary) {
    let Summary { added, changed, removed, .. } = summary;
    if added + changed + removed > 0 {
        tracing::info!("sync {name}: {added} added, {changed} changed, {removed} removed");
    }
    for (item, problem) in &summary.failed.first {
        tracing::warn!("sync {name}: {item}: {}", problem.message);
    }
}
