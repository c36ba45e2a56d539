//! Hot reload: one loop over one kind of event, "something changed on disk".
//!
//! Events are gathered until there is a moment of quiet, so that an editor that
//! truncates, writes and renames is seen as one change. Only a script that is written
//! first, after a quiet moment, and by itself, is loaded at once
//! (`Project::load_written_script`). What matters is in the project's [`WatchList`].

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::future::{Either, select};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::MissedTickBehavior;

use crate::project::{Project, ReloadProblem, ReloadReport, WatchList};

/// How long nothing must happen before a change counts as complete.
const CHANGE_QUIET_PERIOD: Duration = Duration::from_millis(40);
/// How long a change may keep going on before it is looked at anyway.
const MAX_CHANGE_WAIT: Duration = Duration::from_millis(500);

/// How long a file that was written must be the only one to be loaded at once. Programs
/// that change several, as `git checkout` does, write them within less.
const SINGLE_FILE_PERIOD: Duration = Duration::from_millis(1);

/// How often files with values of the configuration are looked at. They may be links
/// that are pointed elsewhere, as those of Kubernetes are, which no watch notices.
const VALUE_FILE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Load the scripts of the project, now and whenever they change on disk (if its
/// configuration says so) or on SIGHUP, until the task is dropped. `loaded` is called
/// when they have been loaded for the first time.
pub async fn load_and_watch(project: Arc<Project>, loaded: impl FnOnce(&Project)) {
    let (sender, events) = mpsc::channel::<()>(1);
    let list = Arc::new(Mutex::new(WatchList::default()));
    let written = Arc::new(WrittenFiles::default());
    let config = project.config().await;
    let watcher = if config.tools.watch || config.extensions.watch {
        // Our own log may well lie beside what the project consists of.
        let (list, written) = (list.clone(), written.clone());
        let concerns = move |event: &notify::Event| {
            let list = list.lock();
            written.note_event(event, &list);
            // Without a path, changes were lost.
            let is_lost = event.paths.is_empty();
            is_change(event) && (is_lost || event.paths.iter().any(|it| list.concerns_path(it)))
        };
        let watcher = change_watcher(sender.clone(), concerns);
        watcher.inspect_err(|error| tracing::warn!("changes on disk are not noticed: {error}")).ok()
    } else {
        None
    };
    let loading = async {
        project.load_scripts(&mut |_| {}).await;
        loaded(&project);
        project.load_scripts_on_change(|report| log_report(&report)).await;
    };
    // The sender is kept, so that waiting for events does not end.
    let watching = reload_on_events(&project, events, watcher, &list, &written);
    // Watching begins first: what changes from then on is seen.
    tokio::join!(biased; watching, loading);
    drop(sender);
}

/// A configuration takes effect together with the scripts that changed with it, and does
/// not wait for others.
async fn reload_on_events(
    project: &Project,
    mut events: mpsc::Receiver<()>,
    mut watcher: Option<RecommendedWatcher>,
    list: &Mutex<WatchList>,
    written: &WrittenFiles,
) {
    let mut watched = HashSet::new();
    let mut was_quiet = true;
    let is_watching = watcher.is_some();
    let mut values = FileStamps::read_stamps(&project.value_files());
    let mut ticks = tokio::time::interval(VALUE_FILE_POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut published = project.gateway.subscribe();
    let mut follow_now = |watched: &mut HashSet<PathBuf>| {
        let Some(watcher) = &mut watcher else { return false };
        let next = project.watch_list();
        let has_new_folders = watch_new_folders(watcher, watched, &next.folders);
        let before = std::mem::replace(&mut *list.lock(), next.clone());
        has_new_folders || before != next
    };
    follow_now(&mut watched);
    // The configuration was read before it was watched.
    let report = project.reload_config();
    if !report.is_empty() {
        log_report(&report);
        project.request_disk_scan();
    }
    let mut hangups = hangup_signals();
    loop {
        let hangup = async {
            match &mut hangups {
                Some(hangups) => drop(hangups.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = events.recv() => match event {
                Some(()) => {
                    let quiet = wait_for_quiet(&mut events);
                    was_quiet = if was_quiet {
                        load_first_until_quiet(project, written, quiet).await
                    } else {
                        quiet.await
                    };
                    written.clear();
                }
                None => return,
            },
            () = hangup => {}
            _ = ticks.tick(), if is_watching => {
                if FileStamps::read_stamps(&project.value_files()) == values {
                    continue;
                }
            }
            // Scripts and documents say which files they consist of when they are loaded.
            changed = published.changed() => {
                if changed.is_err() {
                    return;
                }
                if follow_now(&mut watched) {
                    // It may have changed before it was watched.
                    project.request_disk_scan();
                }
                continue;
            }
        }
        // Before they are read: what changes meanwhile is a change of its own.
        values = FileStamps::read_stamps(&project.value_files());
        log_report(&project.reload_config());
        project.request_disk_scan();
        follow_now(&mut watched);
    }
}

/// Wait until a change is complete, and meanwhile load what was written first of it. Whether
/// there was a quiet moment.
async fn load_first_until_quiet(
    project: &Project,
    written: &WrittenFiles,
    quiet: impl Future<Output = bool>,
) -> bool {
    let first = async {
        if let Some(path) = written.wait_for_single().await {
            let is_alone = || written.is_single(&path);
            log_report(&project.load_written_script(&path, is_alone).await);
        }
    };
    let (first, quiet) = (pin!(first), pin!(quiet));
    // Whichever is late: what follows looks at everything.
    match select(first, quiet).await {
        Either::Left(((), quiet)) => quiet.await,
        Either::Right((was_quiet, _)) => was_quiet,
    }
}

fn hangup_signals() -> Option<tokio::signal::unix::Signal> {
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok()
}

/// The files that were written since there was a quiet moment: closed by whoever wrote them,
/// or renamed into their place.
#[derive(Default)]
struct WrittenFiles {
    /// Each with when that was.
    paths: Mutex<BTreeMap<PathBuf, Instant>>,
    added: Notify,
}

impl WrittenFiles {
    fn note_event(&self, event: &notify::Event, list: &WatchList) {
        use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
        let is_complete = matches!(
            event.kind,
            EventKind::Access(AccessKind::Close(AccessMode::Write))
                | EventKind::Modify(ModifyKind::Name(RenameMode::To))
        );
        let concerned = event.paths.iter().filter(|path| list.concerns_path(path));
        if is_complete {
            let now = Instant::now();
            let mut paths = self.paths.lock();
            // A file may be closed long after its last change.
            paths.retain(|_, then| now.duration_since(*then) < CHANGE_QUIET_PERIOD);
            paths.extend(concerned.map(|path| (path.clone(), now)));
            drop(paths);
            self.added.notify_one();
        }
    }

    /// The first file that is written, unless another follows at once.
    async fn wait_for_single(&self) -> Option<PathBuf> {
        let first = loop {
            let added = self.added.notified();
            let first = self.paths.lock().keys().next().cloned();
            match first {
                Some(first) => break first,
                None => added.await,
            }
        };
        tokio::time::sleep(SINGLE_FILE_PERIOD).await;
        self.is_single(&first).then_some(first)
    }

    fn is_single(&self, path: &Path) -> bool {
        let paths = self.paths.lock();
        paths.len() == 1 && paths.contains_key(path)
    }

    fn clear(&self) {
        self.paths.lock().clear();
    }
}

/// Files as they were at one moment: what tells one version of each from another.
#[derive(PartialEq)]
struct FileStamps(Vec<(PathBuf, Option<FileStamp>)>);

/// When a file was changed, how long it is, and which it is.
type FileStamp = (SystemTime, u64, u64);

impl FileStamps {
    fn read_stamps(files: &[PathBuf]) -> FileStamps {
        let stamp = |file: &PathBuf| {
            let there = file.metadata().ok()?;
            Some((there.modified().ok()?, there.len(), there.ino()))
        };
        FileStamps(files.iter().map(|file| (file.clone(), stamp(file))).collect())
    }
}

/// Changes anywhere below some folders, gathered as above.
pub struct FolderChanges {
    events: mpsc::Receiver<()>,
    _watcher: RecommendedWatcher,
}

impl FolderChanges {
    pub fn watch_below(paths: &[PathBuf]) -> moonlark_core::Result<FolderChanges> {
        let problem = |error: notify::Error| {
            moonlark_core::Problem::unavailable(format!("changes cannot be noticed: {error}"))
        };
        let (sender, events) = mpsc::channel::<()>(1);
        let mut watcher = change_watcher(sender, is_change).map_err(problem)?;
        for path in paths {
            watcher.watch(path, RecursiveMode::Recursive).map_err(problem)?;
        }
        Ok(FolderChanges { events, _watcher: watcher })
    }

    /// Wait for the next.
    pub async fn next(&mut self) {
        if self.events.recv().await.is_some() {
            wait_for_quiet(&mut self.events).await;
        }
    }
}

/// Tells of every event that `concerns` somebody.
fn change_watcher(
    sender: mpsc::Sender<()>,
    concerns: impl Fn(&notify::Event) -> bool + Send + 'static,
) -> notify::Result<RecommendedWatcher> {
    notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| concerns(&event)) {
            let _ = sender.try_send(());
        }
    })
}

/// Reading is not changing, and our own reading would wake us for ever.
fn is_change(event: &notify::Event) -> bool {
    !event.kind.is_access()
}

/// Wait until no event has come for a moment; not for ever. Whether there was one.
async fn wait_for_quiet(events: &mut mpsc::Receiver<()>) -> bool {
    let quiet = async {
        while let Ok(Some(())) = tokio::time::timeout(CHANGE_QUIET_PERIOD, events.recv()).await {}
    };
    tokio::time::timeout(MAX_CHANGE_WAIT, quiet).await.is_ok()
}

/// Whether there is one that was not watched before.
fn watch_new_folders(
    watcher: &mut RecommendedWatcher,
    watched: &mut HashSet<PathBuf>,
    folders: &BTreeSet<PathBuf>,
) -> bool {
    // A folder that was removed and made again needs a new watch.
    watched.retain(|folder| folder.is_dir());
    let mut is_new = false;
    for folder in folders {
        if !watched.contains(folder)
            && folder.is_dir()
            && watcher.watch(folder, RecursiveMode::NonRecursive).is_ok()
        {
            watched.insert(folder.clone());
            is_new = true;
        }
    }
    is_new
}

fn log_report(report: &ReloadReport) {
    for change in &report.changes {
        tracing::info!("reload: {change}");
    }
    for ReloadProblem { problem, last_good_stays } in &report.problems {
        if *last_good_stays {
            tracing::warn!("reload: the last good version stays in use\n{problem}");
        } else {
            tracing::warn!("reload: not in use\n{problem}");
        }
    }
}
