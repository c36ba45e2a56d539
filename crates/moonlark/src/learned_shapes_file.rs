//! Learned result shapes, kept over restarts in `.moonlark/learned.json`.
//!
//! It can always be learned again, so nothing here stops anything: a file that
//! cannot be read is a warning, and one that cannot be written is one warning.
//! Several processes may keep the same file: each adds what it knows to what is
//! there.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use moonlark_child::spawn_owned;
use moonlark_gateway::Gateway;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use moonlark_state::state_folder::create_state_folder;
use moonlark_state::write_private_file;

/// The least time between two writings.
const LEARNED_WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// Several times what is ever written.
const MAX_LEARNED_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Take over what earlier processes learned.
pub(crate) fn import_learned_shapes(gateway: &Gateway, state: &Path) {
    let file = learned_shapes_path(state);
    if let Err(why) = import_file(gateway, &file) {
        tracing::warn!("{}: {why}; it is learned anew", file.display());
    }
}

/// Writes what is new from now on, until it is stopped.
pub(crate) struct LearnedShapesWriter {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl LearnedShapesWriter {
    pub(crate) fn start(gateway: Gateway, state: &Path) -> LearnedShapesWriter {
        let (stop, file) = (CancellationToken::new(), learned_shapes_path(state));
        // From now on, not from when the task begins.
        let changes = gateway.learned_shapes().subscribe_to_changes();
        let kept = *changes.borrow();
        let task = spawn_owned(write_until_stopped(gateway, changes, kept, file, stop.clone()));
        LearnedShapesWriter { stop, task }
    }

    /// Write what is still unwritten.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        // A panic in there is no reason not to end orderly.
        let _ = self.task.await;
    }
}

async fn write_until_stopped(
    gateway: Gateway,
    mut changes: watch::Receiver<u64>,
    mut kept: u64,
    file: PathBuf,
    stop: CancellationToken,
) {
    let mut over = false;
    while !over {
        tokio::select! {
            _ = changes.changed() => {}
            () = stop.cancelled() => {}
        }
        // What is learned first is written soon, what follows with it.
        tokio::select! {
            () = tokio::time::sleep(LEARNED_WRITE_INTERVAL) => {}
            () = stop.cancelled() => {}
        }
        over = stop.is_cancelled();
        let known = *changes.borrow_and_update();
        if known == kept {
            continue;
        }
        kept = known;
        let (gateway, file) = (gateway.clone(), file.clone());
        let written = tokio::task::spawn_blocking(move || export_file(&gateway, &file)).await;
        if let Ok(Err(why)) = written {
            tracing::warn!("what tools answer is not kept: {why}");
            return;
        }
    }
}

fn learned_shapes_path(state: &Path) -> PathBuf {
    state.join("learned.json")
}

fn import_file(gateway: &Gateway, file: &Path) -> Result<(), String> {
    // Opening a pipe would wait for somebody to write.
    if file.metadata().is_ok_and(|kind| !kind.is_file()) {
        return Err("it is not a regular file".to_owned());
    }
    let mut text = Vec::new();
    match std::fs::File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
        Ok(file) => file
            .take(MAX_LEARNED_FILE_BYTES + 1)
            .read_to_end(&mut text)
            .map_err(|error| error.to_string())?,
    };
    if text.len() as u64 > MAX_LEARNED_FILE_BYTES {
        return Err("the file is too large".to_owned());
    }
    gateway.learned_shapes().import_json(&text).map_err(|problem| problem.message)
}

fn export_file(gateway: &Gateway, file: &Path) -> Result<(), String> {
    // What others have written since; if it is broken, it is replaced.
    let _ = import_file(gateway, file);
    let folder = file.parent().unwrap_or(Path::new("."));
    let text = gateway.learned_shapes().export_json().to_string();
    let written = create_state_folder(folder).and_then(|()| write_private_file(file, text));
    written.map_err(|error| format!("{}: {error}", file.display()))
}
