//! Keeping the knowledge base up to date while something is served.

use std::collections::HashSet;
use std::path::Path;

use moonlark_child::spawn_owned;
use moonlark_core::ProblemCode;
use moonlark_gateway::Gateway;
use moonlark_knowledge::{FolderWatcher, SyncOptions, SyncSummary};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::KnowledgeBase;
use crate::connectors::KnowledgeSource;
use moonlark_config::SyncTrigger;

/// Sources are followed until this is dropped.
pub(crate) struct BackgroundSync {
    _task: AbortOnDropHandle<()>,
}

impl KnowledgeBase {
    /// Read sources at the start, at intervals and when their folders change, as
    /// the configuration says, also when it says something else later.
    pub(crate) fn start_background_sync(&self, gateway: &Gateway) -> BackgroundSync {
        let (base, gateway) = (self.clone(), gateway.clone());
        let mut changed = self.0.changed.subscribe();
        let _task = spawn_owned(async move {
            let read = Mutex::default();
            loop {
                changed.mark_unchanged();
                tokio::select! {
                    () = base.sync_current_sources(&gateway, &read) => {}
                    _ = changed.changed() => {}
                }
            }
        });
        BackgroundSync { _task }
    }

    /// With the sources that there are now; never ends by itself. `read` are
    /// those that were read at the start.
    async fn sync_current_sources(&self, gateway: &Gateway, read: &Mutex<HashSet<String>>) {
        let (sources, when, interval) = {
            let now = self.0.now.lock();
            (now.sources.clone(), now.when, now.interval)
        };
        let each = sources.iter().map(|source| async move {
            let mut watch =
                source.watched_folder().and_then(|root| watch_folder(&source.name, root));
            let at_start = when == SyncTrigger::Start && !read.lock().contains(&source.name);
            if at_start || watch.is_some() {
                self.sync_and_log(source, gateway).await;
                read.lock().insert(source.name.clone());
            }
            loop {
                let change = async {
                    match &mut watch {
                        Some(watch) => watch.next_change().await,
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
                self.sync_and_log(source, gateway).await;
            }
        });
        futures::future::join_all(each).await;
        // Without any source there is nothing to do until that changes.
        std::future::pending::<()>().await;
    }

    async fn sync_and_log(&self, source: &KnowledgeSource, gateway: &Gateway) {
        match self.sync_source(source, gateway, SyncOptions::default()).await {
            Ok(summary) => log_sync_summary(&source.name, &summary),
            // Most often another process does it, for us as well.
            Err(problem) if problem.code == ProblemCode::Unavailable => {
                tracing::info!("sync {}: {}", source.name, problem.message);
            }
            // It was logged when the source was loaded.
            Err(problem) if source.problem.as_ref() == Some(&problem) => {}
            Err(problem) => tracing::warn!("sync {}: {problem}", source.name),
        }
    }
}

fn watch_folder(name: &str, root: &Path) -> Option<FolderWatcher> {
    let watch = FolderWatcher::new(root);
    watch.inspect_err(|problem| tracing::warn!("sync {name}: {problem}")).ok()
}

/// Nothing is said of a sync that changed nothing.
fn log_sync_summary(name: &str, summary: &SyncSummary) {
    let SyncSummary { added, changed, removed, .. } = summary;
    if added + changed + removed > 0 {
        tracing::info!("sync {name}: {added} added, {changed} changed, {removed} removed");
    }
    for (item, problem) in &summary.failed.first {
        tracing::warn!("sync {name}: {item}: {}", problem.message);
    }
}
