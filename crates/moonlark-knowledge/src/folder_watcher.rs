//! Folder watcher: whether something changed below a folder.
//!
//! Only that: what changed, a scan finds out. Events are gathered until there
//! is a moment of quiet, and the folder may go away and come back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use moonlark_core::{Problem, Result};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

/// How long nothing must happen before a change counts as complete.
const QUIET_PERIOD: Duration = Duration::from_millis(300);
/// How long a change may keep going on before it is looked at anyway.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(5);
/// How often one looks whether the folder is still the same.
const ROOT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

pub struct FolderWatcher {
    root: PathBuf,
    sender: mpsc::Sender<()>,
    events: mpsc::Receiver<()>,
    /// Something happened, and nobody was told yet.
    pending: bool,
    watched: Option<WatchedFolder>,
}

/// One folder that was there when the watching began.
struct WatchedFolder {
    /// Which one: device and number.
    which: (u64, u64),
    _watcher: RecommendedWatcher,
}

impl FolderWatcher {
    /// Of a folder that may not be there yet.
    pub fn new(root: impl Into<PathBuf>) -> Result<FolderWatcher> {
        // One event waiting is enough: it says that something happened.
        let (sender, events) = mpsc::channel(1);
        let mut watch =
            FolderWatcher { root: root.into(), sender, events, pending: false, watched: None };
        watch.rewatch_if_replaced()?;
        Ok(watch)
    }

    /// Wait for the next change. Nothing that happens between two calls is
    /// missed, and it may be dropped at any moment.
    pub async fn next_change(&mut self) -> Result<()> {
        let mut look = interval(ROOT_CHECK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.pending {
            tokio::select! {
                _ = self.events.recv() => self.pending = true,
                _ = look.tick() => self.pending = self.rewatch_if_replaced()?,
            }
        }
        wait_for_quiet(&mut self.events).await;
        self.rewatch_if_replaced()?;
        self.pending = false;
        Ok(())
    }

    /// Watch the folder that is there now; whether it is another one.
    fn rewatch_if_replaced(&mut self) -> Result<bool> {
        let now = folder_identity(&self.root);
        if now == self.watched.as_ref().map(|watched| watched.which) {
            return Ok(false);
        }
        // The old one first: its watches count against the system's limit.
        self.watched = None;
        if let Some(which) = now {
            let sender = self.sender.clone();
            let watching = start_watcher(&self.root, sender);
            let _watcher = watching.map_err(|error| self.unwatchable_problem(&error))?;
            self.watched = Some(WatchedFolder { which, _watcher });
        }
        Ok(true)
    }

    fn unwatchable_problem(&self, error: &notify::Error) -> Problem {
        let shown = self.root.display();
        let problem =
            Problem::unavailable(format!("changes below {shown} are not noticed: {error}"));
        match error.kind {
            notify::ErrorKind::MaxFilesWatch => problem.with_hint(
                "raise fs.inotify.max_user_watches, or take a smaller folder; syncing works",
            ),
            _ => problem,
        }
    }
}

fn start_watcher(root: &Path, sender: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let below = root.to_owned();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // An error may mean that events were lost.
        if event.map_or(true, |event| is_relevant_event(&below, &event)) {
            let _ = sender.try_send(());
        }
    })?;
    watcher.watch(root, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// Reading is not changing, and what a sync reads and writes itself would wake
/// us for ever.
fn is_relevant_event(root: &Path, event: &notify::Event) -> bool {
    let ours = |path: &PathBuf| {
        let mut names = path.strip_prefix(root).unwrap_or(path).iter();
        names.any(|name| name == ".moonlark" || name == ".git")
    };
    !event.kind.is_access() && (event.paths.is_empty() || !event.paths.iter().all(ours))
}

/// Wait until no event has come for a moment.
async fn wait_for_quiet(events: &mut mpsc::Receiver<()>) {
    let end = Instant::now() + MAX_SETTLE_TIME;
    loop {
        let quiet = (Instant::now() + QUIET_PERIOD).min(end);
        if timeout_at(quiet, events.recv()).await.is_err() || Instant::now() >= end {
            return;
        }
    }
}

fn folder_identity(root: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(root).ok().filter(std::fs::Metadata::is_dir)?;
    Some((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// A hang guard, nothing else.
    const LONG: Duration = Duration::from_secs(60);

    async fn next(watch: &mut FolderWatcher) {
        tokio::time::timeout(LONG, watch.next_change()).await.expect("no change").unwrap();
    }

    #[tokio::test]
    async fn changes_at_any_depth_are_noticed() {
        let root = TempDir::new().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        let mut watch = FolderWatcher::new(root.path()).unwrap();
        fs::write(root.path().join("a/b/c.md"), "x").unwrap();
        next(&mut watch).await;
        fs::remove_file(root.path().join("a/b/c.md")).unwrap();
        next(&mut watch).await;
        fs::create_dir(root.path().join("new")).unwrap();
        next(&mut watch).await;
        fs::write(root.path().join("new/d.md"), "x").unwrap();
        next(&mut watch).await;
    }

    #[tokio::test]
    async fn a_folder_may_go_away_and_come_back() {
        let parent = TempDir::new().unwrap();
        let root = parent.path().join("docs");
        let mut watch = FolderWatcher::new(&root).unwrap();
        fs::create_dir(&root).unwrap();
        next(&mut watch).await;
        fs::remove_dir(&root).unwrap();
        next(&mut watch).await;
        fs::create_dir(&root).unwrap();
        next(&mut watch).await;
        fs::write(root.join("a.md"), "x").unwrap();
        next(&mut watch).await;
    }

    #[test]
    fn what_a_sync_does_itself_is_no_change() {
        use notify::event::{AccessKind, CreateKind, Event, EventKind};
        let check = |kind, paths: &[&str]| {
            let event = paths.iter().fold(Event::new(kind), |it, path| it.add_path(path.into()));
            is_relevant_event(Path::new("/a/.git/docs"), &event)
        };
        let create = EventKind::Create(CreateKind::File);
        assert!(check(create, &["/a/.git/docs/b.md"]));
        assert!(check(create, &[]));
        assert!(!check(create, &["/a/.git/docs/.moonlark/moonlark.db"]));
        assert!(!check(create, &["/a/.git/docs/sub/.git/index"]));
        assert!(check(create, &["/a/.git/docs/.git/x", "/a/.git/docs/b.md"]));
        assert!(!check(EventKind::Access(AccessKind::Read), &["/a/.git/docs/b.md"]));
    }
}
