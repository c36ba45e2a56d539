//! The journal of this project: where it is, when it is kept, and the runs in it
//! that go on by themselves.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use moonlark_core::record_id::RecordId;
use moonlark_core::{Result, Value};
use moonlark_gateway::artifacts::ArtifactArchive;
use moonlark_gateway::gateway::CallRecords;
use moonlark_gateway::{Caller, Gateway};
use moonlark_journal::{
    ApprovalSettings, ApprovalStore, ArtifactFiles, Journal, JournalReader, JournalSettings,
    JournalWatcher,
};
use tokio::task::JoinSet;

use moonlark_config::config_file::LoadedConfig;
use moonlark_config::{ApproverConfig, JournalDurability};

/// How often a server looks for runs that it can go on with.
const DECISION_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Where artifacts are kept, in the state folder.
const ARTIFACTS_FOLDER: &str = "artifacts";
/// After so many looks it counts the interrupted ones, whether there is news or not.
const POLLS_PER_INTERRUPTED_COUNT: u32 = 10;

/// Kept by the commands that call tools, from when they begin to.
#[derive(Default)]
pub(crate) struct ProjectJournal(OnceLock<(Arc<Journal>, ApprovalStore)>);

impl ProjectJournal {
    /// Open one, if the configuration says so.
    pub(crate) fn open_records(&self, loaded: &LoadedConfig) -> CallRecords {
        if !loaded.config.journal.enabled || self.0.get().is_some() {
            return CallRecords::default();
        }
        let opened = Journal::open(journal_settings(loaded));
        let Ok(journal) = opened.inspect_err(|problem| tracing::error!("{problem}")) else {
            return CallRecords::default();
        };
        let approvals = approval_store(loaded);
        let _ = self.0.set((journal.clone(), approvals.clone()));
        CallRecords {
            recorder: Some(journal),
            approvals: Some(Arc::new(approvals)),
            ..CallRecords::default()
        }
    }

    /// The configuration has changed.
    pub(crate) fn apply_config(&self, loaded: &LoadedConfig) {
        if let Some((journal, approvals)) = self.0.get() {
            journal.configure(journal_settings(loaded));
            approvals.configure(approval_settings(loaded));
        }
    }

    /// To count the runs that were interrupted; none if none is kept.
    pub(crate) fn journal(&self) -> Option<Arc<Journal>> {
        self.0.get().map(|(journal, _)| journal.clone())
    }

    /// Write the rest.
    pub(crate) async fn flush_and_close(&self) {
        if let Some((journal, _)) = self.0.get() {
            journal.close().await;
        }
    }
}

/// The journal, for a command that reads exactly what happened.
pub(crate) fn open_journal(loaded: &LoadedConfig) -> Result<Arc<Journal>> {
    Journal::open(journal_settings(loaded))
}

/// Artifacts that outlive this process; none if the folder cannot be made.
pub(crate) fn open_artifact_files(state: &Path) -> Option<Arc<dyn ArtifactArchive>> {
    match ArtifactFiles::open(state.join(ARTIFACTS_FOLDER)) {
        Ok(files) => Some(Arc::new(files)),
        Err(error) => {
            tracing::warn!("artifacts will end with this process: {error}");
            None
        }
    }
}

/// How many runs a crash has left behind; none if that cannot be found out.
pub(crate) async fn count_interrupted_runs(journal: Arc<Journal>) -> Option<usize> {
    let counted = tokio::task::spawn_blocking(move || journal.count_interrupted()).await;
    counted.ok()?.inspect_err(|problem| tracing::warn!("{problem}")).ok()
}

/// Go on with runs that waited for a decision when their process ended, as soon
/// as somebody has decided. Until it is aborted. `interrupted` is how many runs were
/// interrupted at the start.
pub(crate) async fn resume_decided_runs(
    loaded: LoadedConfig,
    gateway: Gateway,
    journal: Arc<Journal>,
    interrupted: Option<usize>,
) {
    gateway.loaded_catalog(&Caller::new("resume")).await;
    if let Some(count @ 1..) = interrupted {
        tracing::warn!("{}", interrupted_runs_message(count));
    }
    let mut left = OrphanedRuns { loaded, journal, watched: None, looks_since_count: 0 };
    let mut tried = HashSet::new();
    let mut resumed = JoinSet::new();
    loop {
        while resumed.try_join_next().is_some() {}
        tokio::time::sleep(DECISION_POLL_INTERVAL).await;
        let looked = tokio::task::spawn_blocking(move || (left.poll_decided(), left)).await;
        let Ok((decided, back)) = looked else { return };
        left = back;
        for (run, caller, approval) in decided {
            // What cannot be resumed is for a person to look at.
            if tried.insert((run, approval)) {
                let gateway = gateway.clone();
                resumed.spawn(async move {
                    match resume_run(&gateway, run, caller).await {
                        Ok(()) => tracing::info!("run {run} continues: its approval was decided"),
                        Err(problem) => tracing::warn!("run {run} did not go on: {problem}"),
                    }
                });
            }
        }
    }
}

/// What is said of runs that were interrupted.
pub(crate) fn interrupted_runs_message(count: usize) -> String {
    let runs = match count {
        1 => "1 run was interrupted when its process ended".to_owned(),
        many => format!("{many} runs were interrupted when their processes ended"),
    };
    format!(
        "{runs}: `moonlark runs` lists them, `moonlark runs ID` shows what may have happened, `moonlark runs resume ID` goes on"
    )
}

/// Runs that processes have left: waiting, or interrupted.
struct OrphanedRuns {
    loaded: LoadedConfig,
    journal: Arc<Journal>,
    watched: Option<JournalWatcher>,
    looks_since_count: u32,
}

impl OrphanedRuns {
    /// Those that wait and that somebody has decided on, if anything is new at all.
    fn poll_decided(&mut self) -> Vec<(RecordId, Caller, RecordId)> {
        let reader = journal_reader(&self.loaded);
        if self.watched.is_none() {
            self.watched = reader.watch_changes().ok().flatten();
        }
        let is_news = self.watched.as_mut().is_some_and(|it| it.has_changed().unwrap_or(false));
        self.looks_since_count += 1;
        // That a process was killed is written by nobody.
        if is_news || self.looks_since_count >= POLLS_PER_INTERRUPTED_COUNT {
            self.looks_since_count = 0;
            let _ = self.journal.count_interrupted();
        }
        if !is_news {
            return Vec::new();
        }
        let approvals = approval_store(&self.loaded);
        let decided =
            |approval| approvals.show_approval(approval).is_ok_and(|it| it.decided_by.is_some());
        let mut left = reader.abandoned_waiting_runs().unwrap_or_default();
        left.retain(|(_, _, approval)| decided(*approval));
        left
    }
}

/// As whoever began it: their rules hold.
async fn resume_run(gateway: &Gateway, run: RecordId, caller: Caller) -> Result<()> {
    let call = gateway.open_call_when_admitted(caller).await?;
    let args = Value::from_fields([("resume", run.to_string().into())]);
    gateway.invoke(&call, "execute", args).await.map(|_| ())
}

/// To look at what is kept.
pub(crate) fn journal_reader(loaded: &LoadedConfig) -> JournalReader {
    JournalReader::new(&journal_file(loaded))
}

/// To look at what waits for a decision, and to decide.
pub(crate) fn approval_store(loaded: &LoadedConfig) -> ApprovalStore {
    ApprovalStore::new(journal_file(loaded), approval_settings(loaded))
}

fn approval_settings(loaded: &LoadedConfig) -> ApprovalSettings {
    let config = &loaded.config.approvals;
    ApprovalSettings {
        expiry: config.expiry.to_duration(),
        by_caller: config.by == ApproverConfig::Caller,
    }
}

/// Not the file of the knowledge base: a sync must not hold up a call, and one
/// of them may be damaged or thrown away without the other.
pub(crate) fn journal_file(loaded: &LoadedConfig) -> PathBuf {
    loaded.config.store.sqlite_file(&loaded.root).with_file_name("journal.db")
}

fn journal_settings(loaded: &LoadedConfig) -> JournalSettings {
    let config = &loaded.config.journal;
    JournalSettings {
        file: journal_file(loaded),
        power: config.durability == JournalDurability::Power,
        keep: config.keep.to_duration(),
        size: config.size.bytes(),
    }
}
