//! `moonlark approvals`: calls that need a decision.

use clap::{Args, Subcommand};
use moonlark_gateway::approval::{ApprovalDecider, ApprovalDecision};
use moonlark_gateway::call::LOCAL_CALLER;
use moonlark_journal::{ApprovalStore, ApprovalView, JournalReader, RecordedState};
use serde_json::json;

use super::runs::{caller_label, format_local_time, short_id};
use super::{
    CommandResult, GlobalArgs, load_config, pretty_json, print_json, print_line, print_text,
};
use crate::project_journal;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    command: Option<ApprovalsCommand>,
    #[command(flatten)]
    list: ApprovalsListArgs,
}

#[derive(Subcommand)]
enum ApprovalsCommand {
    /// List pending calls (the default of `moonlark approvals`).
    List(ApprovalsListArgs),
    /// Show a pending call with its exact arguments.
    Show {
        /// The approval's id, or the beginning or end of it.
        id: String,
    },
    /// Approve the call, once.
    Approve {
        /// The approval's id, or the beginning or end of it.
        id: String,
    },
    /// Deny the call.
    Deny {
        /// The approval's id, or the beginning or end of it.
        id: String,
    },
}

#[derive(Args)]
struct ApprovalsListArgs {
    /// Also calls that were approved, denied or have expired.
    #[arg(long)]
    all: bool,
}

impl ApprovalsArgs {
    pub(crate) fn run(self, global: &GlobalArgs) -> CommandResult {
        let loaded = load_config(global)?;
        let (store, reader) =
            (project_journal::approval_store(&loaded), project_journal::journal_reader(&loaded));
        match self.command.unwrap_or(ApprovalsCommand::List(self.list)) {
            ApprovalsCommand::List(ApprovalsListArgs { all }) => {
                list_approvals(&store, all, global)
            }
            ApprovalsCommand::Show { id } => show_approval(&store, &id, global),
            ApprovalsCommand::Approve { id } => {
                decide_approval(&store, &reader, &id, ApprovalDecision::Approve, global)
            }
            ApprovalsCommand::Deny { id } => {
                decide_approval(&store, &reader, &id, ApprovalDecision::Deny, global)
            }
        }
    }
}

fn list_approvals(store: &ApprovalStore, all: bool, global: &GlobalArgs) -> CommandResult {
    let listed = store.list_approvals(all)?;
    if global.json {
        print_json(&json!({ "approvals": listed }));
    } else if listed.is_empty() {
        print_line("nothing waits for a decision");
    } else {
        listed.iter().for_each(|approval| print_line(approval_line(approval)));
    }
    Ok(())
}

/// `41f0a2b9  waiting   until 2026-11-16 08:40:12  ci (rest)  jira.delete_issue {"id":1}`
fn approval_line(approval: &ApprovalView) -> String {
    let id = short_id(approval.id);
    // Nobody should decide on what they do not see.
    let left_out = match approval.left_out {
        Some(_) => format!("[shortened: see `moonlark approvals show {id}`] "),
        None => String::new(),
    };
    format!(
        "{id}  {:<9} until {}  {}  {left_out}{} {}",
        approval.state,
        format_local_time(approval.expires_at),
        caller_label(&approval.caller),
        approval.tool,
        approval.arguments,
    )
}

fn show_approval(store: &ApprovalStore, id: &str, global: &GlobalArgs) -> CommandResult {
    let id = store.find_id(id)?;
    let approval = store.show_approval(id)?;
    // Whoever decides must see what they decide on: all of it, as it is.
    let exact = store.exact_arguments(id)?;
    if global.json {
        let mut json = json!(ApprovalView { left_out: None, ..approval });
        json["arguments"] = exact.to_json_lossy();
        print_json(&json);
        return Ok(());
    }
    print_line(format!("approval {id}"));
    print_line(format!(
        "  {} by {}",
        format_local_time(approval.at),
        caller_label(&approval.caller)
    ));
    match &approval.decided_by {
        Some(by) => print_line(format!("  {} by {by}", approval.state)),
        None => print_line(format!(
            "  {} until {}",
            approval.state,
            format_local_time(approval.expires_at)
        )),
    }
    if let Some(run) = approval.run {
        print_line(format!("  part of a run: `moonlark runs {run}`"));
    }
    print_line("");
    print_line(format!("{}, which is marked {}", approval.tool, approval.effects.join(", ")));
    print_text(pretty_json(&exact).unwrap_or_else(|_| exact.to_json_lossy().to_string()));
    Ok(())
}

fn decide_approval(
    store: &ApprovalStore,
    reader: &JournalReader,
    id: &str,
    decision: ApprovalDecision,
    global: &GlobalArgs,
) -> CommandResult {
    let id = store.find_id(id)?;
    store.decide_now(id, decision, ApprovalDecider::Operator(LOCAL_CALLER.to_owned()))?;
    let approval = store.show_approval(id)?;
    if global.json {
        print_json(&json!(approval));
        return Ok(());
    }
    let next = match (decision, approval.run) {
        (ApprovalDecision::Deny, _) => "it will not be made",
        (ApprovalDecision::Approve, None) => "made again, the same call goes through, once",
        (ApprovalDecision::Approve, Some(_)) => "it is made when its run goes on",
    };
    print_line(format!("{} {}: {next}", approval.tool, approval.state));
    if let Some(run) = approval.run {
        print_line(match reader.show_run(run) {
            Ok(shown) if !shown.line.is_alive && shown.line.state != RecordedState::Ended => {
                format!(
                    "the process of the run is gone: `moonlark runs resume {run}` goes on with it, and so does the project's server, if one runs"
                )
            }
            _ => format!("the run goes on by itself: `moonlark runs {run}` shows it"),
        });
    }
    Ok(())
}
