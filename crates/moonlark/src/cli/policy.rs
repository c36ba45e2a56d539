//! `moonlark policy`: what the rules make of a call.

use std::sync::Arc;

use clap::{Args, Subcommand};
use moonlark_core::call::ANONYMOUS;
use moonlark_core::limits::seconds;
use moonlark_core::policy::{Action, Effect, Explanation, Miss, Per, Terms};
use moonlark_core::{Catalog, Result, Tool};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::served::ServedCommand;
use super::servers::Servers;
use super::{Done, Global, print, print_json, settle};
use crate::project::Project;

#[derive(Subcommand)]
pub(crate) enum Policy {
    /// Say which rule decides on a tool, and why no earlier one does.
    Explain(Explain),
}

#[derive(Args, Serialize, Deserialize)]
pub(crate) struct Explain {
    /// The tool's name.
    tool: String,
    /// The caller's name.
    #[arg(long, value_name = "NAME", default_value = ANONYMOUS)]
    caller: String,
    #[serde(skip)]
    #[command(flatten)]
    servers: Servers,
}

impl Policy {
    pub(crate) async fn run(self, global: &Global) -> Done {
        match self {
            Policy::Explain(explain) => explain.run(global).await,
        }
    }
}

impl Explain {
    async fn run(mut self, global: &Global) -> Done {
        let servers = std::mem::take(&mut self.servers);
        ServedCommand::Explain(self).run(servers, global).await
    }

    pub(crate) async fn run_in(self, project: &Arc<Project>, global: &Global) -> Done {
        settle(project).await;
        // All that there is: what is denied is what is asked about.
        let catalog = project.gateway.catalog();
        let tool = find(&catalog, &self.tool)?;
        let explained = project.gateway.policy().explain(&catalog, tool, &self.caller);
        match global.json {
            true => print_json(&as_json(tool, &self.caller, &explained)),
            false => as_lines(tool, &self.caller, &explained).iter().for_each(print),
        }
        Ok(())
    }
}

/// By any of its names.
fn find<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Arc<Tool>> {
    match (catalog.find(name), catalog.sdk().find(name)) {
        (Err(_), Ok((_, function))) => Ok(&function.tool),
        (found, _) => found,
    }
}

fn as_lines(tool: &Tool, caller: &str, explained: &Explanation) -> Vec<String> {
    let effects = match tool.only_calls {
        true => "no effects but those of its calls".to_owned(),
        false => Effect::seen_in(tool).map(Effect::as_str).collect::<Vec<_>>().join(" "),
    };
    let mut lines = vec![format!(
        "{}, {} {}, {}, called by {caller}",
        tool.name,
        tool.source.kind.as_str(),
        tool.source.name,
        effects
    )];
    let own = tool.original_name();
    if !tool.name.ends_with(own) {
        lines.push(format!("  its source calls it {own}: rules for that name hold as well"));
    }
    for (place, terms, miss) in &explained.looked_at {
        let why = match miss {
            Some(miss) => format!("does not match: {}", because(*miss, terms, tool, caller)),
            None => format!("decides: {}", says(terms, tool)),
        };
        lines.push(format!("  {place} {why}"));
    }
    let verdict = match explained.decides() {
        None if explained.looked_at.is_empty() => "There are no rules: the call is allowed.",
        None => "No rule matches: the call is allowed.",
        Some((_, terms)) => match terms.action {
            Action::Allow => "The call is allowed.",
            Action::Deny => "The tool does not exist for this caller.",
            Action::Approve => "A person decides on the call.",
        },
    };
    lines.push(verdict.to_owned());
    lines
}

fn because(miss: Miss, terms: &Terms, tool: &Tool, caller: &str) -> String {
    match miss {
        Miss::Tools => format!("tools is {:?}", terms.tools),
        Miss::Except => format!("it may be used by {}", terms.callers.join(", ")),
        Miss::Effects => {
            let wanted: Vec<&str> = terms.effects.iter().map(|it| it.as_str()).collect();
            let calls = if tool.only_calls { ", and its calls are judged one by one" } else { "" };
            format!("effects is {wanted:?}{calls}")
        }
        Miss::Kinds => {
            let wanted: Vec<&str> = terms.kinds.iter().map(|it| it.as_str()).collect();
            format!("kinds is {wanted:?}, and it is of kind {}", tool.source.kind.as_str())
        }
        Miss::Sources => {
            format!("sources is {:?}, and it is of {}", terms.sources, tool.source.name)
        }
        Miss::Callers => format!("callers is {:?}, and it is {caller}", terms.callers),
    }
}

fn says(terms: &Terms, tool: &Tool) -> String {
    let mut says = vec![terms.action.as_str().to_owned()];
    says.extend((!terms.except.is_empty()).then(|| format!("as all but {:?}", terms.except)));
    says.extend(terms.rate.map(|rate| format!("at most {rate}")));
    says.extend(terms.concurrency.map(|most| format!("at most {most} at once")));
    let counted = terms.rate.is_some() || terms.concurrency.is_some();
    says.extend(counted.then(|| format!("counted {}", per(terms.per))));
    says.extend(terms.timeout.map(|time| format!("ended after {}", seconds(time))));
    says.extend(terms.cache.map(|time| match tool.effects.read_only {
        true => format!("answers good for {}", seconds(time)),
        false => "answers not kept, since it does not only read".to_owned(),
    }));
    says.join(", ")
}

fn per(per: Per) -> &'static str {
    match per {
        Per::ToolAndCaller => "for each tool and caller",
        Per::Tool => "for each tool",
        Per::Caller => "for each caller",
        Per::Source => "for each source",
    }
}

fn as_json(tool: &Tool, caller: &str, explained: &Explanation) -> Json {
    let miss = |miss: &Miss| match miss {
        Miss::Tools => "tools",
        Miss::Except => "except",
        Miss::Effects => "effects",
        Miss::Kinds => "kinds",
        Miss::Sources => "sources",
        Miss::Callers => "callers",
    };
    let rules: Vec<Json> = (explained.looked_at.iter())
        .map(|(place, _, missed)| json!({"rule": place, "missed": missed.as_ref().map(miss)}))
        .collect();
    let decides = explained.decides();
    let terms = decides.map(|(_, terms)| terms);
    let action = terms.map_or(Action::Allow, |terms| terms.action);
    let secs = |time: Option<std::time::Duration>| time.map(|it| it.as_secs_f64());
    json!({
        "tool": tool.name,
        "original_name": tool.original_name(),
        "names": explained.names,
        "source": tool.source.name,
        "kind": tool.source.kind.as_str(),
        "effects": Effect::seen_in(tool).map(Effect::as_str).collect::<Vec<_>>(),
        "caller": caller,
        "action": action.as_str(),
        "decided_by": decides.map(|(place, _)| place),
        "rate": terms.and_then(|it| it.rate).map(|rate| rate.to_string()),
        "concurrency": terms.and_then(|it| it.concurrency),
        "timeout": secs(terms.and_then(|it| it.timeout)),
        "cache": secs(terms.and_then(|it| it.cache).filter(|_| tool.effects.read_only)),
        "rules": rules,
    })
}
