//! Two runs, compared: their scripts, calls, answers, results and logs.
//!
//! Calls with the same tool and the same arguments are the same call, as for a fork: at
//! the same place if there is one, and otherwise in the order in which they were made.

use serde_json::{Value as Json, json};

use super::RUN_META_KEY;
use super::answer_sequencer::CallSite;
use super::fork_replay::{
    ForkDifference, ForkReplay, ForkedCall, NewCallFate, NewCallPolicy, RunFork,
};
use super::replay_log::last_calls_by_place;
use super::value_changes::{LineChange, ValueChange, line_changes, shown_value, value_changes};
use crate::journal::{CallRecord, RedactionScopes, RunRecord, redaction};
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::Result;
use moonlark_core::record_id::RecordId;
use moonlark_core::secret::{Secrets, secrets_from_literals};
use moonlark_core::value::Value;

/// Calls of each kind that are named.
const MAX_NAMED_CALLS: usize = 1000;

/// What differs between two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunComparison {
    pub before: RecordId,
    pub after: RecordId,
    pub script: Vec<LineChange>,
    /// Calls that both have made and that were answered the same.
    pub same_calls: usize,
    pub changed_answers: Vec<ChangedAnswer>,
    pub only_before: Vec<ForkedCall>,
    pub only_after: Vec<ForkedCall>,
    pub first_difference: Option<ForkDifference>,
    pub result: Vec<ValueChange>,
    pub logs: Vec<LineChange>,
}

/// A call that both have made, and that was answered otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedAnswer {
    pub call: ForkedCall,
    /// Where the other run made it.
    pub place_before: CallSite,
    pub changes: Vec<ValueChange>,
}

/// What differs between `before` and `after`.
pub fn compare_runs(before: &RunRecord, after: &RunRecord) -> RunComparison {
    let secrets =
        secrets_from_literals(&format!("{}\n{}", before.began.script, after.began.script));
    let fork = RunFork {
        source: before.began.run,
        clock: before.began.at,
        new_calls: NewCallPolicy::Refuse,
    };
    let matching = ForkReplay::new(&fork, before, &after.began);
    let mut calls: Vec<CallRecord> = last_calls_by_place(after).into_values().collect();
    calls.sort_by_key(|call| call.began.call);
    let (mut same_calls, mut changed_answers) = (0, Vec::new());
    for call in &calls {
        let at: CallSite = call.began.place.as_deref().unwrap_or_default().into();
        matching.claim_same_call(&at, &call.began.tool, &call.began.args);
        let Some((place_before, then)) = matching.recorded_call(&at) else {
            matching.note_fate(&at, NewCallFate::Made);
            continue;
        };
        let changes = value_changes(&call_end(&then, &secrets), &call_end(call, &secrets));
        if changes.is_empty() {
            same_calls += 1;
        } else {
            let (tool, args) = (call.began.tool.clone(), call.began.args.clone());
            let call = ForkedCall { tool, place: at, args, fate: None };
            changed_answers.push(ChangedAnswer { call, place_before, changes });
        }
    }
    let report = matching.report();
    let answer = |run: &RunRecord| run.ended.as_ref().and_then(|ended| ended.answer.clone());
    let (old, new) = (answer(before), answer(after));
    let result = |answer: &Option<Result<ToolAnswer>>| match answer {
        Some(answer) => plain_result(answer, &secrets),
        None => Value::Null,
    };
    let logs = |answer: &Option<Result<ToolAnswer>>| {
        answer.as_ref().map(|it| answer_logs(it).join("\n")).unwrap_or_default()
    };
    RunComparison {
        before: before.began.run,
        after: after.began.run,
        script: line_changes(&before.began.script, &after.began.script, &secrets),
        same_calls,
        changed_answers,
        only_before: report.dropped,
        only_after: report.new,
        first_difference: report.first_difference,
        result: value_changes(&result(&old), &result(&new)),
        logs: line_changes(&logs(&old), &logs(&new), &secrets),
    }
}

/// How a call ended, as a value.
fn call_end(call: &CallRecord, secrets: &Secrets) -> Value {
    let answer = call.ended.as_ref().and_then(|ended| ended.answer.as_ref());
    match answer {
        None => Value::from_fields([("unanswered", Value::Bool(true))]),
        Some(Ok(answer)) => secrets.redact_answer(answer.clone()).into_plain_value(),
        Some(Err(problem)) => problem_value(problem, secrets),
    }
}

/// How a call ended, as a text without secrets that is not long.
pub(super) fn shown_call_end(call: &CallRecord, secrets: &Secrets) -> String {
    shown_value("answer", &call_end(call, secrets))
}

fn problem_value(problem: &moonlark_core::problem::Problem, secrets: &Secrets) -> Value {
    let error = Value::from_fields([
        ("code", problem.code.as_str().into()),
        ("message", secrets.redact_text(&problem.message).into_owned().into()),
    ]);
    Value::from_fields([("error", error)])
}

/// What a script returned, without what was said about the run.
pub fn plain_result(answer: &Result<ToolAnswer>, secrets: &Secrets) -> Value {
    let mut content = match answer {
        Ok(ToolAnswer::Content(content)) => content.clone(),
        Ok(other) => return secrets.redact_answer(other.clone()).into_plain_value(),
        Err(problem) => return problem_value(problem, secrets),
    };
    let is_said = |block: &Value| {
        let text = block.get("text").and_then(Value::as_str).unwrap_or_default();
        text.starts_with("logs:\n") || text.starts_with("fork of run ")
    };
    while content.blocks.len() > 1 && content.blocks.last().is_some_and(is_said) {
        content.blocks.pop();
    }
    secrets.redact_answer(ToolAnswer::Content(content)).into_plain_value()
}

/// What a script said while it ran, as far as its answer has it.
pub fn answer_logs(answer: &Result<ToolAnswer>) -> Vec<String> {
    let content = match answer {
        Ok(ToolAnswer::Content(content)) => content,
        Ok(_) => return Vec::new(),
        Err(problem) => match &problem.content {
            Some(content) => content,
            None => return Vec::new(),
        },
    };
    let run = content.extra.get("_meta").and_then(|meta| meta.get(RUN_META_KEY));
    match run.and_then(|run| run.get("logs")) {
        Some(Value::Array(lines)) => {
            lines.iter().filter_map(|line| line.as_str().map(str::to_owned)).collect()
        }
        _ => Vec::new(),
    }
}

impl RunComparison {
    /// Whether nothing differs.
    pub fn is_same(&self) -> bool {
        self.script.is_empty()
            && self.changed_answers.is_empty()
            && self.only_before.is_empty()
            && self.only_after.is_empty()
            && self.first_difference.is_none()
            && self.result.is_empty()
            && self.logs.is_empty()
    }

    /// As REST answers and `--json` prints it.
    pub fn to_json(&self) -> Json {
        let calls = |calls: &[ForkedCall]| -> Vec<Json> {
            calls.iter().take(MAX_NAMED_CALLS).map(call_json).collect()
        };
        let answers = self.changed_answers.iter().take(MAX_NAMED_CALLS).map(|it| {
            let mut call = call_json(&it.call);
            call["place_before"] = (*it.place_before).into();
            call["changes"] = changes_json(&it.changes);
            call
        });
        let difference = self.first_difference.as_ref().map(|it| {
            json!({
                "place": &*it.place,
                "was": it.was.as_ref().map(call_json),
                "now": it.now.as_ref().map(call_json),
            })
        });
        json!({
            "before": self.before.to_string(),
            "after": self.after.to_string(),
            "same": self.is_same(),
            "script": lines_json(&self.script),
            "same_calls": self.same_calls,
            "changed_answers": answers.collect::<Vec<_>>(),
            "only_before": calls(&self.only_before),
            "only_after": calls(&self.only_after),
            "first_difference": difference,
            "result": changes_json(&self.result),
            "logs": lines_json(&self.logs),
        })
    }
}

fn call_json(call: &ForkedCall) -> Json {
    json!({"tool": call.tool, "place": &*call.place, "arguments": shown_arguments(call)})
}

/// The arguments of a call as JSON text, without secrets.
pub fn shown_arguments(call: &ForkedCall) -> String {
    redaction::redact_arguments(&call.args, &RedactionScopes::default())
}

fn changes_json(changes: &[ValueChange]) -> Json {
    let change =
        |it: &ValueChange| json!({"path": it.path, "before": it.before, "after": it.after});
    changes.iter().map(change).collect()
}

fn lines_json(changes: &[LineChange]) -> Json {
    let change = |it: &LineChange| {
        let what = if it.is_added { "added" } else { "removed" };
        json!({"change": what, "line": it.line, "text": it.text})
    };
    changes.iter().map(change).collect()
}
