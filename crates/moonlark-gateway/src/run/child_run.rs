//! A saved script that a script calls: a run of its own, whose id follows from the run and
//! the place that it was called at. Whoever resumes the one finds the other.

use std::sync::Arc;
use std::time::Duration;

use super::replay::stays_inside;
use super::{CallSite, Run, seeded_random};
use moonlark_core::problem::{Problem, Result};
use moonlark_core::record_id::RecordId;
use moonlark_core::tool::Tool;

/// How a saved script is to run that is asked for by name.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SavedRunRequest {
    /// The time it may take, where it is not the usual one.
    pub timeout: Option<Duration>,
    /// It only collects what it would change.
    pub plan: bool,
}

impl Run {
    /// The id of the run of a saved script that this one calls at a place: always the same.
    pub fn child_id(&self, at: &CallSite) -> RecordId {
        let mut drawn = [0; 16];
        seeded_random::fill_seeded(&self.seed, &format!("run {at}"), 0, &mut drawn);
        RecordId::derived_from(self.id, drawn)
    }

    /// From now on it makes no call that may change something: its script is the saved one of
    /// this name, which says that it only reads.
    pub fn hold_to_reading(&self, script: &str) {
        self.reading_script.get_or_init(|| script.into());
    }

    /// Whether it may call this tool, by what its script says of itself. Others rely on that:
    /// a script that only reads is run where nothing may be changed.
    pub(super) fn check_only_reads(&self, tool: &Tool) -> Result<()> {
        match self.reading_script.get() {
            Some(script) if !tool.effects.read_only && !stays_inside(tool) => {
                Err(Problem::denied(format!(
                    "the saved script {script} says that it only reads, and calls {}, which may change something",
                    tool.name
                ))
                .with_hint("leave that call out, or take read_only out of the script's annotations"))
            }
            _ => Ok(()),
        }
    }

    /// From now on this run is a part of `parent`: what it waits for, that one waits for.
    pub fn set_parent(&self, parent: &Arc<Run>) {
        let _ = self.parent.set(parent.clone());
    }
}
