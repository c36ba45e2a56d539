//! `moonlark approvals`: calls that wait for somebody to decide on them.

use clap::{Args, Subcommand};
use moonlark_core::approval::{Decider, Decision};
use moonlark_core::call::LOCAL;
use moonlark_store::{ApprovalShown, ApprovalStore, Reader, State};
use serde_json::json;

use super::runs::{caller, load, short, when};
use super::{Done, Global, pretty, print, print_json, print_text};
use crate::journal;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Approvals {
    #[command(subcommand)]
    command: Option<ApprovalsCommand>,
    #[command(flatten)]
    list: List,
}

#[derive(Subcommand)]
enum ApprovalsCommand {
    /// List the calls that wait for a decision (which `moonlark approvals` does too).
    List(List),
    /// Show one with its exact arguments.
    Show {
        /// Its id, or the beginning or end of it.
        id: String,
    },
    /// Let the call be made, once.
    Approve {
        /// Its id, or the beginning or end of it.
        id: String,
    },
    /// Do not let the call be made.
    Deny {
        /// Its id, or the beginning or end of it.
        id: String,
    },
}

#[derive(Args)]
struct List {
    /// Also those that were decided, or that nobody decided in time.
    #[arg(long)]
    all: bool,
}

impl Approvals {
    pub(crate) fn run(self, global: &Global) -> Done {
        let loaded = load(global)?;
        let (store, reader) = (journal::approvals(&loaded), journal::reader(&loaded));
        match self.command.unwrap_or(ApprovalsCommand::List(self.list)) {
            ApprovalsCommand::List(List { all }) => list(&store, all, global),
            ApprovalsCommand::Show { id } => show(&store, &id, global),
            ApprovalsCommand::Approve { id } => {
                decide(&store, &reader, &id, Decision::Approve, global)
            }
            ApprovalsCommand::Deny { id } => decide(&store, &reader, &id, Decision::Deny, global),
        }
    }
}

fn list(store: &ApprovalStore, all: bool, global: &Global) -> Done {
    let listed = store.list(all)?;
    if global.json {
        print_json(&json!({ "approvals": listed }));
    } else if listed.is_empty() {
        print("nothing waits for a decision");
    } else {
        listed.iter().for_each(|approval| print(line(approval)));
    }
    Ok(())
}

/// `41f0a2b9  waiting   until 2026-11-16 08:40:12  ci (rest)  jira.delete_issue {"id":1}`
fn line(approval: &ApprovalShown) -> String {
    let id = short(approval.id);
    // Nobody should decide on what they do not see.
    let left_out = match approval.left_out {
        Some(_) => format!("[not all is shown: see `moonlark approvals show {id}`] "),
        None => String::new(),
    };
    format!(
        "{id}  {:<9} until {}  {}  {left_out}{} {}",
        approval.state,
        when(approval.expires_at),
        caller(&approval.caller),
        approval.tool,
        approval.arguments,
    )
}

fn show(store: &ApprovalStore, id: &str, global: &Global) -> Done {
    let id = store.find(id)?;
    let approval = store.show(id)?;
    // Whoever decides must see what they decide on: all of it, as it is.
    let exact = store.exact_arguments(id)?;
    if global.json {
        let mut json = json!(ApprovalShown { left_out: None, ..approval });
        json["arguments"] = exact.to_json_lossy();
        print_json(&json);
        return Ok(());
    }
    print(format!("approval {id}"));
    print(format!("  {} by {}", when(approval.at), caller(&approval.caller)));
    match &approval.decided_by {
        Some(by) => print(format!("  {} by {by}", approval.state)),
        None => print(format!("  {} until {}", approval.state, when(approval.expires_at))),
    }
    if let Some(run) = approval.run {
        print(format!("  part of a run: `moonlark runs {run}`"));
    }
    print("");
    print(format!("{}, which is marked {}", approval.tool, approval.effects.join(", ")));
    print_text(pretty(&exact).unwrap_or_else(|_| exact.to_json_lossy().to_string()));
    Ok(())
}

fn decide(
    store: &ApprovalStore,
    reader: &Reader,
    id: &str,
    decision: Decision,
    global: &Global,
) -> Done {
    let id = store.find(id)?;
    store.decide_now(id, decision, Decider::Operator(LOCAL.to_owned()))?;
    let approval = store.show(id)?;
    if global.json {
        print_json(&json!(approval));
        return Ok(());
    }
    let next = match (decision, approval.run) {
        (Decision::Deny, _) => "it will not be made",
        (Decision::Approve, None) => "made again, the same call goes through, once",
        (Decision::Approve, Some(_)) => "it is made when its run goes on",
    };
    print(format!("{} {}: {next}", approval.tool, approval.state));
    if let Some(run) = approval.run {
        print(match reader.run(run) {
            Ok(shown) if !shown.line.is_alive && shown.line.state != State::Ended => format!(
                "the process of the run is gone: `moonlark runs resume {run}` goes on with it, and so does the project's server, if one runs"
            ),
            _ => format!("the run goes on by itself: `moonlark runs {run}` shows it"),
        });
    }
    Ok(())
}
