//! The gateway's step: a call that a person decides on is made when they have.
//!
//! First what is on record, then the user of the client, where it can be asked.
//! Otherwise a call from outside is answered how to go on, and a script waits:
//! without a thread, and without its time running.

use std::sync::Arc;
use std::time::Duration;

use super::{Approvals, Decider, Decision, Request, Standing, Ticket};
use crate::call::Call;
use crate::client::Question;
use crate::content::Answer;
use crate::journal::{Entry, RunPaused, Secrecy};
use crate::policy::{Action, Effect};
use crate::problem::{Code, Problem, Result};
use crate::run::Run;
use crate::tool::Tool;
use crate::value::Value;
use crate::visible_text::{visible_in_line, visible_json};

/// How long a wait is held at a time: less than a person may take to answer.
const PART: Duration = Duration::from_secs(300);

/// Whether the call may be made, now.
pub(crate) async fn granted(call: &Call, tool: &Tool, args: &Value) -> Result<()> {
    let rule = call.rule().filter(|rule| rule.terms.action == Action::Approve);
    let Some(rule) = rule else { return Ok(()) };
    let Some(approvals) = call.gateway().approvals() else {
        let message = format!("tool '{}' needs an approval, and none is kept anywhere", tool.name);
        return Err(Problem::new(Code::Forbidden, message)
            .hint(format!("set journal.enabled = true, or change {}", rule.place)));
    };
    // Apart, so that calls nobody decides on do not carry it around.
    Box::pin(decided(call, tool, args, approvals)).await
}

async fn decided(
    call: &Call,
    tool: &Tool,
    args: &Value,
    approvals: &Arc<dyn Approvals>,
) -> Result<()> {
    let mut asked = false;
    loop {
        let ticket = match approvals.stand(request(call, tool, args)).await? {
            Standing::Granted { token } => {
                call.spend(token);
                return Ok(());
            }
            Standing::Waiting(ticket) => ticket,
        };
        if !asked && ticket.is_for_caller() {
            asked = true;
            if let Some(decision) = ask_client(call, &ticket).await {
                let by = Decider::Caller(call.caller().name().to_owned());
                approvals.decide(ticket.id, decision, by).await?;
                continue;
            }
        }
        let Some(run) = call.run() else {
            call.note_ticket(&ticket);
            return Err(ticket.problem());
        };
        if wait(call, run, approvals, &ticket).await?.is_none() {
            let message = format!("nobody has decided whether {} may be called", tool.name);
            return Err(Problem::new(Code::Forbidden, message)
                .hint("run the script again to ask anew, or raise approvals.expiry"));
        }
    }
}

/// A tool that failed because something it called waits for a decision: what is
/// to be decided gets lost on the way through a script.
pub(crate) fn with_ticket(root: &Call, answer: Result<Answer>) -> Result<Answer> {
    answer.map_err(|mut problem| {
        if problem.code == Code::ApprovalRequired && problem.approval.is_none() {
            problem.approval = root.take_ticket().map(Box::new);
        }
        problem
    })
}

fn request(call: &Call, tool: &Tool, args: &Value) -> Request {
    Request {
        tool: tool.name.clone(),
        source: tool.source.name.clone(),
        effects: tool.effects,
        args: args.clone(),
        caller: call.caller().clone(),
        run: call.run().map(|run| run.id()),
        place: call.spot().map(|(_, at)| at.to_string()),
        tokens: call.tokens(),
        // What a tool calls in turn may be about another of its tokens.
        strict: call.depth() == 1,
        secrets: Secrecy([tool.scope.clone(), call.caller_scope().clone()]),
    }
}

/// What the user of the client says; nothing if there is nobody to ask, or
/// nobody answers.
async fn ask_client(call: &Call, ticket: &Ticket) -> Option<Decision> {
    let question = question(ticket);
    if !call.can_ask(&question) {
        return None;
    }
    let answer = call.ask(question).await.ok()?;
    let agreed = answer.get("content").and_then(|content| content.get("approve"));
    match (answer.get("action").and_then(Value::as_str), agreed) {
        (Some("accept"), Some(Value::Bool(true))) => Some(Decision::Approve),
        (Some("accept"), Some(Value::Bool(false))) | (Some("decline"), _) => Some(Decision::Deny),
        // Put aside: it can still be decided otherwise.
        _ => None,
    }
}

fn question(ticket: &Ticket) -> Question {
    let effects: Vec<&str> = Effect::all_of(ticket.effects).map(Effect::as_str).collect();
    let message = format!(
        "Allow this call?\n\n{}({})\n\nIt is marked {}. Approval {}.",
        visible_in_line(&ticket.tool),
        visible_json(&ticket.arguments.text),
        effects.join(", "),
        ticket.id
    );
    let field = Value::object([
        ("type", "boolean".into()),
        ("title", "Approve".into()),
        ("description", "Make the call, once, with these arguments".into()),
        ("default", false.into()),
    ]);
    let schema = Value::object([
        ("type", "object".into()),
        ("properties", Value::object([("approve", field)])),
        ("required", Value::Array(vec!["approve".into()])),
    ]);
    let params = Value::object([("message", message.into()), ("requestedSchema", schema)]);
    Question {
        method: "elicitation/create".to_owned(),
        params: params.as_object().cloned().unwrap_or_default(),
        name: None,
    }
}

/// The script waits until somebody has decided.
async fn wait(
    call: &Call,
    run: &Arc<Run>,
    approvals: &Arc<dyn Approvals>,
    ticket: &Ticket,
) -> Result<Option<Decision>> {
    let place = call.spot().map(|(_, at)| at.to_string());
    let paused = RunPaused { run: run.id(), approval: ticket.id, place };
    // Whoever is told that the run waits relies on what it did so far: a Problem
    // with the journal is known elsewhere, and no reason not to wait.
    if let Some(recorder) = call.gateway().recorder() {
        let _ = recorder.durable(Entry::RunPaused(paused.clone())).await;
    }
    let _pausing = Pausing::begin(call, run, ticket, paused);
    let mut decided = approvals.decided(ticket.id);
    // In parts: the script's time stands still for a bounded time only.
    let decided = loop {
        let part = call.while_asking(tokio::time::timeout(PART, &mut decided)).await;
        if let Ok(decided) = part {
            break decided;
        }
    };
    call.come_back().await;
    decided
}

/// A run that waits, on record as such for as long as it does.
struct Pausing<'a> {
    call: &'a Call,
    run: &'a Arc<Run>,
    ticket: &'a Ticket,
}

impl<'a> Pausing<'a> {
    fn begin(call: &'a Call, run: &'a Arc<Run>, ticket: &'a Ticket, paused: RunPaused) -> Self {
        run.wait_for(ticket.clone(), paused);
        Self { call, run, ticket }
    }
}

impl Drop for Pausing<'_> {
    fn drop(&mut self) {
        // It may wait for something else at the same time.
        let entry = match self.run.waited_for(self.ticket.id) {
            Some(other) => Entry::RunPaused(other),
            None => Entry::RunWentOn(self.run.id()),
        };
        if let Some(recorder) = self.call.gateway().recorder() {
            recorder.record(entry);
        }
    }
}
