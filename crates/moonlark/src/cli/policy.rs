//! `moonlark policy`: which rule decides on a call.

use std::sync::Arc;

use clap::{Args, Subcommand};
use moonlark_core::limits::format_seconds;
use moonlark_core::tool::EffectKind;
use moonlark_core::{Catalog, Result, Tool};
use moonlark_gateway::call::ANONYMOUS_CALLER;
use moonlark_gateway::policy::{
    CountingScope, PolicyExplanation, RuleAction, RuleMismatch, RuleTerms,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::served_command::ServedCommand;
use super::source_args::SourceArgs;
use super::{CommandResult, GlobalArgs, print_json, print_line, wait_for_sources};
use crate::project::Project;

#[derive(Subcommand)]
pub(crate) enum PolicyCommand {
    /// Explain which rule decides on a tool, and why no earlier one does.
    Explain(PolicyExplainArgs),
}

#[derive(Args, Serialize, Deserialize)]
pub(crate) struct PolicyExplainArgs {
    /// The tool's name.
    tool: String,
    /// The caller's name.
    #[arg(long, value_name = "NAME", default_value = ANONYMOUS_CALLER)]
    caller: String,
    #[serde(skip)]
    #[command(flatten)]
    servers: SourceArgs,
}

impl PolicyCommand {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        match self {
            PolicyCommand::Explain(explain) => explain.run(global).await,
        }
    }
}

impl PolicyExplainArgs {
    async fn run(mut self, global: &GlobalArgs) -> CommandResult {
        let servers = std::mem::take(&mut self.servers);
        ServedCommand::Explain(self).run(servers, global).await
    }

    pub(crate) async fn run_in(self, project: &Arc<Project>, global: &GlobalArgs) -> CommandResult {
        wait_for_sources(project).await;
        // All that there is: what is denied is what is asked about.
        let catalog = project.gateway.catalog();
        let tool = find_tool(&catalog, &self.tool)?;
        let explained = project.gateway.policy().explain_call(&catalog, tool, &self.caller);
        if global.json {
            print_json(&explanation_json(tool, &self.caller, &explained))
        } else {
            explanation_lines(tool, &self.caller, &explained).iter().for_each(print_line)
        }
        Ok(())
    }
}

/// By any of its names.
fn find_tool<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Arc<Tool>> {
    match (catalog.find_tool(name), catalog.sdk().find_function(name)) {
        (Err(_), Ok((_, function))) => Ok(&function.tool),
        (found, _) => found,
    }
}

fn explanation_lines(tool: &Tool, caller: &str, explained: &PolicyExplanation) -> Vec<String> {
    let effects = if tool.only_calls {
        "no effects but those of its calls".to_owned()
    } else {
        EffectKind::all_for_tool(tool).map(EffectKind::as_str).collect::<Vec<_>>().join(" ")
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
            Some(miss) => format!("does not match: {}", miss_reason(*miss, terms, tool, caller)),
            None => format!("decides: {}", describe_terms(terms, tool)),
        };
        lines.push(format!("  {place} {why}"));
    }
    let verdict = match explained.deciding_rule() {
        None if explained.looked_at.is_empty() => "There are no rules: the call is allowed.",
        None => "No rule matches: the call is allowed.",
        Some((_, terms)) => match terms.action {
            RuleAction::Allow => "The call is allowed.",
            RuleAction::Deny => "The tool does not exist for this caller.",
            RuleAction::Approve => "A person decides on the call.",
        },
    };
    lines.push(verdict.to_owned());
    lines
}

fn miss_reason(miss: RuleMismatch, terms: &RuleTerms, tool: &Tool, caller: &str) -> String {
    match miss {
        RuleMismatch::Tools => format!("tools is {:?}", terms.tools),
        RuleMismatch::Except => format!("it may be used by {}", terms.callers.join(", ")),
        RuleMismatch::Effects => {
            let wanted: Vec<&str> = terms.effects.iter().map(|it| it.as_str()).collect();
            let calls = if tool.only_calls { ", and its calls are judged one by one" } else { "" };
            format!("effects is {wanted:?}{calls}")
        }
        RuleMismatch::Kinds => {
            let wanted: Vec<&str> = terms.kinds.iter().map(|it| it.as_str()).collect();
            format!("kinds is {wanted:?}, and it is of kind {}", tool.source.kind.as_str())
        }
        RuleMismatch::Sources => {
            format!("sources is {:?}, and it is of {}", terms.sources, tool.source.name)
        }
        RuleMismatch::Callers => format!("callers is {:?}, and it is {caller}", terms.callers),
    }
}

fn describe_terms(terms: &RuleTerms, tool: &Tool) -> String {
    let mut says = vec![terms.action.as_str().to_owned()];
    says.extend((!terms.except.is_empty()).then(|| format!("as all but {:?}", terms.except)));
    says.extend(terms.rate.map(|rate| format!("at most {rate}")));
    says.extend(terms.concurrency.map(|most| format!("at most {most} at once")));
    let counted = terms.rate.is_some() || terms.concurrency.is_some();
    says.extend(counted.then(|| format!("counted {}", describe_counting_scope(terms.per))));
    says.extend(terms.timeout.map(|time| format!("ended after {}", format_seconds(time))));
    says.extend(terms.cache.map(|time| {
        if tool.effects.read_only {
            format!("answers cached for {}", format_seconds(time))
        } else {
            "answers not kept, since it does not only read".to_owned()
        }
    }));
    says.join(", ")
}

fn describe_counting_scope(per: CountingScope) -> &'static str {
    match per {
        CountingScope::ToolAndCaller => "for each tool and caller",
        CountingScope::Tool => "for each tool",
        CountingScope::Caller => "for each caller",
        CountingScope::Source => "for each source",
    }
}

fn explanation_json(tool: &Tool, caller: &str, explained: &PolicyExplanation) -> Json {
    let miss = |miss: &RuleMismatch| match miss {
        RuleMismatch::Tools => "tools",
        RuleMismatch::Except => "except",
        RuleMismatch::Effects => "effects",
        RuleMismatch::Kinds => "kinds",
        RuleMismatch::Sources => "sources",
        RuleMismatch::Callers => "callers",
    };
    let rules: Vec<Json> = (explained.looked_at.iter())
        .map(|(place, _, missed)| json!({"rule": place, "missed": missed.as_ref().map(miss)}))
        .collect();
    let decides = explained.deciding_rule();
    let terms = decides.map(|(_, terms)| terms);
    let action = terms.map_or(RuleAction::Allow, |terms| terms.action);
    let secs = |time: Option<std::time::Duration>| time.map(|it| it.as_secs_f64());
    json!({
        "tool": tool.name,
        "original_name": tool.original_name(),
        "names": explained.names,
        "source": tool.source.name,
        "kind": tool.source.kind.as_str(),
        "effects": EffectKind::all_for_tool(tool).map(EffectKind::as_str).collect::<Vec<_>>(),
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
