//! Two-phase runs: what a script would change, collected; and a run that may
//! change just that.

use std::collections::HashMap;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::answers::At;
use super::known::diverged;
use crate::content::Answer;
use crate::journal::{RunRecord, same};
use crate::problem::{Problem, Result};
use crate::tool::Tool;
use crate::value::Value;

/// A call that a plan has collected.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    pub at: At,
    pub tool: String,
    pub args: Value,
    /// Which answer of the run it was.
    pub order: u64,
}

/// What a run may change.
#[derive(Default)]
pub(super) enum Mode {
    #[default]
    Anything,
    /// Nothing: it is collected.
    Plans(Mutex<Vec<Planned>>),
    Follows(Plan),
}

/// What another run has collected, and what it was told on the way.
#[derive(Debug, Default)]
pub struct Plan {
    /// When the script's clock began.
    pub(super) began: Option<SystemTime>,
    calls: HashMap<At, Planned>,
    answers: HashMap<At, Told>,
}

#[derive(Debug)]
struct Told {
    tool: String,
    args: Value,
    answer: Result<Answer>,
    order: u64,
}

impl Plan {
    /// The plan of a run, from its record and the calls it has collected.
    pub fn of(record: &RunRecord, calls: Vec<Planned>) -> Plan {
        let answers = record.calls.iter().filter_map(|call| {
            let ended = call.ended.as_ref()?;
            let told = Told {
                tool: call.began.tool.clone(),
                args: call.began.args.clone(),
                answer: ended.answer.clone()?,
                order: ended.order?,
            };
            Some((At::from(call.began.place.as_deref()?), told))
        });
        Plan {
            began: Some(record.began.at),
            answers: answers.collect(),
            calls: calls.into_iter().map(|call| (call.at.clone(), call)).collect(),
        }
    }

    /// In which order answers were given when the plan was made.
    pub(super) fn orders(&self) -> Vec<(u64, At)> {
        let told = self.answers.iter().map(|(at, told)| (told.order, at.clone()));
        let planned = self.calls.iter().map(|(at, call)| (call.order, at.clone()));
        told.chain(planned).collect()
    }

    /// The Problem of a script that does not come to a place of the plan.
    pub(super) fn missing(&self, at: &str) -> Problem {
        let told = self.answers.get(at).map(|told| &told.tool);
        let tool = self.calls.get(at).map(|call| &call.tool).or(told);
        let tool = tool.map_or("a tool", String::as_str);
        stray(format!("the script does not come to {at}, where it called {tool} for the plan"))
    }

    /// What a call that only reads was answered when the plan was made.
    pub(super) fn answer(&self, at: &str, tool: &Tool, args: &Value) -> Option<Result<Answer>> {
        let told = self.answers.get(at).filter(|told| told.tool == tool.name)?;
        let filled = || tool.input.check(args.clone()).ok();
        let is_same = same(&told.args, args) || filled().is_some_and(|it| same(&told.args, &it));
        is_same.then(|| told.answer.clone())
    }

    /// Whether a call that changes something is in the plan, as it is.
    pub(super) fn allows(&self, at: &str, tool: &Tool, args: &Value) -> Result<()> {
        let Some(planned) = self.calls.get(at) else {
            return Err(stray(format!("{} at {at} is not in the plan", tool.name)));
        };
        if planned.tool != tool.name {
            let message = format!(
                "at {at} the plan has {}, and the script calls {}",
                planned.tool, tool.name
            );
            return Err(stray(message));
        }
        if !same(&planned.args, args) {
            let message = format!("{} at {at} has other arguments than in the plan", tool.name);
            return Err(stray(message));
        }
        Ok(())
    }
}

fn stray(message: String) -> Problem {
    diverged(message).hint(
        "nothing was called that is not in the plan. What was done before is on record: make a \
         new plan for the rest",
    )
}
