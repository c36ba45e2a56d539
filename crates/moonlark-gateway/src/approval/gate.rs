//! The approval step of the gateway: a call is made when it has been approved.
//!
//! First what is on record, then the user of the client, where it can be asked.
//! Otherwise a call from outside is answered how to go on, and a script waits:
//! without a thread, and without its time running.

use std::sync::Arc;
use std::time::Duration;

use super::{ApprovalDecider, ApprovalDecision, ApprovalLedger, ApprovalRequest, ApprovalStatus};
use crate::call::Call;
use crate::call_client::ClientQuestion;
use crate::journal::{JournalEntry, RedactionScopes, RunPaused};
use crate::policy::RuleAction;
use crate::run::Run;
use moonlark_core::approval_ticket::ApprovalTicket;
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::{Problem, ProblemCode, Result};
use moonlark_core::tool::{EffectKind, Tool};
use moonlark_core::value::Value;
use moonlark_core::visible_text::{visible_in_line, visible_json};

/// How long a wait is held at a time: less than a person may take to answer.
const DECISION_WAIT_SLICE: Duration = Duration::from_secs(300);

/// Whether the call may be made, now.
pub(crate) async fn ensure_approved(call: &Call, tool: &Tool, args: &Value) -> Result<()> {
    let rule = call.rule().filter(|rule| rule.terms.action == RuleAction::Approve);
    let Some(rule) = rule else { return Ok(()) };
    // The author of a test stands for the approver: there is nobody else to decide.
    if call.mocks().is_some() {
        return Ok(());
    }
    let Some(approvals) = call.gateway().approval_ledger() else {
        let message = format!("tool '{}' needs an approval, and none is kept anywhere", tool.name);
        return Err(Problem::forbidden(message)
            .with_hint(format!("set journal.enabled = true, or change {}", rule.place)));
    };
    // Apart, so that calls nobody decides on do not carry it around.
    Box::pin(obtain_approval(call, tool, args, approvals)).await
}

async fn obtain_approval(
    call: &Call,
    tool: &Tool,
    args: &Value,
    approvals: &Arc<dyn ApprovalLedger>,
) -> Result<()> {
    let mut asked = false;
    loop {
        let ticket =
            match approvals.claim_approval(build_approval_request(call, tool, args)).await? {
                ApprovalStatus::Granted { token } => {
                    call.use_approval_token(token);
                    return Ok(());
                }
                ApprovalStatus::Waiting(ticket) => ticket,
            };
        if !asked && ticket.can_caller_decide() {
            asked = true;
            if let Some(decision) = ask_client(call, &ticket).await {
                let by = ApprovalDecider::Caller(call.caller().name().to_owned());
                approvals.record_decision(ticket.id, decision, by).await?;
                continue;
            }
        }
        let Some(run) = call.run() else {
            call.set_pending_ticket(&ticket);
            return Err(ticket.into_problem());
        };
        if pause_until_decided(call, run, approvals, &ticket).await?.is_none() {
            let message = format!("the approval of {} was not decided in time", tool.name);
            return Err(Problem::forbidden(message)
                .with_hint("run the script again to ask anew, or raise approvals.expiry"));
        }
    }
}

/// A tool that failed because something it called waits for a decision: what is
/// to be decided gets lost on the way through a script.
pub(crate) fn attach_ticket(root: &Call, answer: Result<ToolAnswer>) -> Result<ToolAnswer> {
    answer.map_err(|mut problem| {
        if problem.code == ProblemCode::ApprovalRequired && problem.approval.is_none() {
            problem.approval = root.take_pending_ticket().map(Box::new);
        }
        problem
    })
}

fn build_approval_request(call: &Call, tool: &Tool, args: &Value) -> ApprovalRequest {
    ApprovalRequest {
        tool: tool.name.clone(),
        source: tool.source.name.clone(),
        effects: tool.effects,
        args: args.clone(),
        caller: call.caller().clone(),
        run: call.run().map(|run| run.id()),
        place: call.call_site().map(|(_, at)| at.to_string()),
        tokens: call.approval_tokens(),
        // What a tool calls in turn may be about another of its tokens.
        strict: call.depth() == 1,
        secrets: RedactionScopes([tool.scope.clone(), call.caller_scope().clone()]),
    }
}

/// What the user of the client says; nothing if there is nobody to ask, or
/// nobody answers.
async fn ask_client(call: &Call, ticket: &ApprovalTicket) -> Option<ApprovalDecision> {
    let question = build_approval_question(ticket);
    if !call.can_ask_caller(&question) {
        return None;
    }
    let answer = call.ask_caller(question).await.ok()?;
    let agreed = answer.get("content").and_then(|content| content.get("approve"));
    match (answer.get("action").and_then(Value::as_str), agreed) {
        (Some("accept"), Some(Value::Bool(true))) => Some(ApprovalDecision::Approve),
        (Some("accept"), Some(Value::Bool(false))) | (Some("decline"), _) => {
            Some(ApprovalDecision::Deny)
        }
        // Put aside: it can still be decided otherwise.
        _ => None,
    }
}

fn build_approval_question(ticket: &ApprovalTicket) -> ClientQuestion {
    let effects: Vec<&str> =
        EffectKind::all_for_effects(ticket.effects).map(EffectKind::as_str).collect();
    let message = format!(
        "Allow this call?\n\n{}({})\n\nIt is marked {}. Approval {}.",
        visible_in_line(&ticket.tool),
        visible_json(&ticket.arguments.text),
        effects.join(", "),
        ticket.id
    );
    let field = Value::from_fields([
        ("type", "boolean".into()),
        ("title", "Approve".into()),
        ("description", "Make the call, once, with these arguments".into()),
        ("default", false.into()),
    ]);
    let schema = Value::from_fields([
        ("type", "object".into()),
        ("properties", Value::from_fields([("approve", field)])),
        ("required", Value::Array(vec!["approve".into()])),
    ]);
    let params = Value::from_fields([("message", message.into()), ("requestedSchema", schema)]);
    ClientQuestion {
        method: "elicitation/create".to_owned(),
        params: params.as_object().cloned().unwrap_or_default(),
        name: None,
    }
}

/// The script waits until somebody has decided.
async fn pause_until_decided(
    call: &Call,
    run: &Arc<Run>,
    approvals: &Arc<dyn ApprovalLedger>,
    ticket: &ApprovalTicket,
) -> Result<Option<ApprovalDecision>> {
    let place = call.call_site().map(|(_, at)| at.to_string());
    let paused = RunPaused { run: run.id(), approval: ticket.id, place };
    // Whoever is told that the run waits relies on what it did so far: a Problem
    // with the journal is known elsewhere, and no reason not to wait.
    if let Some(recorder) = call.gateway().recorder() {
        let _ = recorder.record_durably(JournalEntry::RunPaused(paused.clone())).await;
    }
    run.add_pending_ticket(ticket.clone(), paused);
    let _pausing = RunPauseGuard { call, run, ticket };
    let mut decided = approvals.wait_for_decision(ticket.id);
    // In parts: the script's time stands still for a bounded time only.
    let decided = loop {
        let part = call.while_paused(tokio::time::timeout(DECISION_WAIT_SLICE, &mut decided)).await;
        if let Ok(decided) = part {
            break decided;
        }
    };
    call.reacquire_admission().await;
    decided
}

/// A run that waits, on record as such for as long as it does.
struct RunPauseGuard<'a> {
    call: &'a Call,
    run: &'a Arc<Run>,
    ticket: &'a ApprovalTicket,
}

impl Drop for RunPauseGuard<'_> {
    fn drop(&mut self) {
        // It may wait for something else at the same time.
        let entry = match self.run.remove_pending_ticket(self.ticket.id) {
            Some(other) => JournalEntry::RunPaused(other),
            None => JournalEntry::RunWentOn(self.run.id()),
        };
        if let Some(recorder) = self.call.gateway().recorder() {
            recorder.record_entry(entry);
        }
    }
}
