//! The effective policy: the rules of `[policy]`, then those that the tables of scripts
//! make with `approve`, `rate` and `concurrency`.

use moonlark_core::tool::SourceKind;
use moonlark_gateway::policy::{CallPolicy, CountingScope, RuleAction, RuleTerms};
use toml::de::DeTable;

use crate::scripts::display_path;
use moonlark_config::config_file::LoadedConfig;

pub(crate) fn build_policy(loaded: &LoadedConfig) -> CallPolicy {
    let config = &loaded.config;
    let lines = policy_rule_lines(loaded);
    let place = |index: usize| match lines.get(index) {
        Some(line) => format!("policy rule {} (line {line})", index + 1),
        None => format!("policy rule {}", index + 1),
    };
    let rules = config.policy.rules.iter().enumerate();
    let mut all: Vec<(String, RuleTerms)> =
        rules.map(|(index, rule)| (place(index), rule.to_policy_terms())).collect();
    for (name, tool) in &config.tools.script {
        let file = display_path(&loaded.root, &loaded.root.join(&tool.path));
        let place = format!("tools.script.{name}");
        let limits = (tool.approve, &tool.rate, tool.concurrency);
        all.extend(script_table_rule(place, limits, SourceKind::Script, file));
    }
    let dir = loaded.root.join(&config.extensions.dir);
    for (name, extension) in &config.extensions.script {
        let main = extension.path.clone().unwrap_or_else(|| format!("{name}.star"));
        let file = display_path(&loaded.root, &dir.join(main));
        let place = format!("extensions.script.{name}");
        let limits = (extension.approve, &extension.rate, extension.concurrency);
        all.extend(script_table_rule(place, limits, SourceKind::Extension, file));
    }
    CallPolicy::new(all)
}

/// The lines of the configuration file that the rules begin in; none where that is
/// not known.
fn policy_rule_lines(loaded: &LoadedConfig) -> Vec<usize> {
    let text = loaded.path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
    let text = text.unwrap_or_default();
    let Ok(table) = DeTable::parse(&text) else { return Vec::new() };
    let rules = table
        .get_ref()
        .get("policy")
        .and_then(|policy| policy.get_ref().get("rules"))
        .and_then(|rules| rules.get_ref().as_array());
    let line = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
    rules.into_iter().flatten().map(|rule| line(rule.span().start)).collect()
}

/// What a script's own table says, as a rule for its file.
fn script_table_rule(
    place: String,
    (approve, rate, concurrency): (bool, &Option<String>, Option<u32>),
    kind: SourceKind,
    file: String,
) -> Option<(String, RuleTerms)> {
    let terms = RuleTerms {
        kinds: vec![kind],
        sources: vec![file],
        action: if approve { RuleAction::Approve } else { RuleAction::Allow },
        rate: rate.as_ref().and_then(|rate| rate.parse().ok()),
        concurrency: concurrency.map(|most| most as usize),
        per: CountingScope::Tool,
        ..RuleTerms::default()
    };
    (approve || rate.is_some() || concurrency.is_some()).then_some((place, terms))
}
