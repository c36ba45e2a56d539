//! Hot reload: one loop over one kind of event, "something changed on disk".
//!
//! Events are gathered until there is a moment of quiet, so that an editor that
//! truncates, writes and renames is seen as one change.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use crate::project::{Project, Report};

/// How long nothing must happen before a change counts as complete.
const QUIET: Duration = Duration::from_millis(40);
/// How long a change may keep going on before it is looked at anyway.
const PATIENCE: Duration = Duration::from_millis(500);

/// Reload the project whenever it changes on disk (if its configuration says
/// so) and on SIGHUP, until the task is dropped.
pub async fn watch(project: Arc<Project>) {
    let (sender, events) = mpsc::channel::<()>(1);
    let config = project.config().await;
    if !config.tools.watch && !config.extensions.watch {
        // Only a signal reloads; the sender is kept so that waiting goes on.
        return on_events(project, events, None, Some(sender)).await;
    }
    match watcher(sender) {
        Ok(watcher) => on_events(project, events, Some(watcher), None).await,
        Err(error) => tracing::warn!("changes on disk are not noticed: {error}"),
    }
}

async fn on_events(
    project: Arc<Project>,
    mut events: mpsc::Receiver<()>,
    mut watcher: Option<RecommendedWatcher>,
    _kept: Option<mpsc::Sender<()>>,
) {
    let mut watched = HashSet::new();
    if let Some(watcher) = &mut watcher {
        follow(watcher, &mut watched, project.folders().await);
        // Whatever changed between loading and watching.
        tell(&project.reload().await);
    }
    #[cfg(unix)]
    let mut hangups = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
    loop {
        #[cfg(unix)]
        let hangup = async {
            match &mut hangups {
                Some(hangups) => hangups.recv().await,
                None => std::future::pending().await,
            }
        };
        #[cfg(not(unix))]
        let hangup = std::future::pending::<Option<()>>();
        tokio::select! {
            event = events.recv() => match event {
                Some(()) => settle(&mut events).await,
                None => return,
            },
            _ = hangup => {}
        }
        tell(&project.reload().await);
        if let Some(watcher) = &mut watcher {
            follow(watcher, &mut watched, project.folders().await);
        }
    }
}

/// Changes anywhere below some folders, gathered as above.
pub struct Changes {
    events: mpsc::Receiver<()>,
    _watcher: RecommendedWatcher,
}

impl Changes {
    pub fn below(paths: &[PathBuf]) -> moonlark_core::Result<Changes> {
        let problem = |error: notify::Error| {
            moonlark_core::Problem::unavailable(format!("changes cannot be noticed: {error}"))
        };
        let (sender, events) = mpsc::channel::<()>(1);
        let mut watcher = watcher(sender).map_err(problem)?;
        for path in paths {
            watcher.watch(path, RecursiveMode::Recursive).map_err(problem)?;
        }
        Ok(Changes { events, _watcher: watcher })
    }

    /// Wait for the next.
    pub async fn next(&mut self) {
        if self.events.recv().await.is_some() {
            settle(&mut self.events).await;
        }
    }
}

fn watcher(sender: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading is not changing, and our own reading would wake us for ever.
        if event.is_ok_and(|event| !event.kind.is_access()) {
            let _ = sender.try_send(());
        }
    })
}

/// Wait until no event has come for a moment.
async fn settle(events: &mut mpsc::Receiver<()>) {
    let quiet =
        async { while let Ok(Some(())) = tokio::time::timeout(QUIET, events.recv()).await {} };
    let _ = tokio::time::timeout(PATIENCE, quiet).await;
}

fn follow(watcher: &mut RecommendedWatcher, watched: &mut HashSet<PathBuf>, folders: Vec<PathBuf>) {
    // A folder that was removed and made again needs a new watch.
    watched.retain(|folder| folder.is_dir());
    for folder in folders {
        if !watched.contains(&folder)
            && folder.is_dir()
            && watcher.watch(&folder, RecursiveMode::NonRecursive).is_ok()
        {
            watched.insert(folder);
        }
    }
}

fn tell(report: &Report) {
    for change in &report.changes {
        tracing::info!("reload: {change}");
    }
    for problem in &report.problems {
        tracing::warn!("reload: the last good version stays in use\n{problem}");
    }
}
