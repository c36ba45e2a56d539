//! The rules in force: those of `[policy]`, then those that the tables of
//! scripts make with `approve`, `rate` and `concurrency`.

use moonlark_core::policy::{Action, Per, Policy, Terms};
use moonlark_core::tool::SourceKind;
use toml::de::DeTable;

use crate::config_file::Loaded;
use crate::scripts::shown;

pub(crate) fn in_force(loaded: &Loaded) -> Policy {
    let config = &loaded.config;
    let lines = rule_lines(loaded);
    let place = |index: usize| match lines.get(index) {
        Some(line) => format!("policy rule {} (line {line})", index + 1),
        None => format!("policy rule {}", index + 1),
    };
    let rules = config.policy.rules.iter().enumerate();
    let mut all: Vec<(String, Terms)> =
        rules.map(|(index, rule)| (place(index), rule.terms())).collect();
    for (name, tool) in &config.tools.script {
        let file = shown(&loaded.root, &loaded.root.join(&tool.path));
        let place = format!("tools.script.{name}");
        let limits = (tool.approve, &tool.rate, tool.concurrency);
        all.extend(own(place, limits, SourceKind::Script, file));
    }
    let dir = loaded.root.join(&config.extensions.dir);
    for (name, extension) in &config.extensions.script {
        let main = extension.path.clone().unwrap_or_else(|| format!("{name}.star"));
        let file = shown(&loaded.root, &dir.join(main));
        let place = format!("extensions.script.{name}");
        let limits = (extension.approve, &extension.rate, extension.concurrency);
        all.extend(own(place, limits, SourceKind::Extension, file));
    }
    Policy::new(all)
}

/// The lines of the configuration file that the rules begin in; none where that is
/// not known.
fn rule_lines(loaded: &Loaded) -> Vec<usize> {
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
fn own(
    place: String,
    (approve, rate, concurrency): (bool, &Option<String>, Option<u32>),
    kind: SourceKind,
    file: String,
) -> Option<(String, Terms)> {
    let terms = Terms {
        kinds: vec![kind],
        sources: vec![file],
        action: if approve { Action::Approve } else { Action::Allow },
        rate: rate.as_ref().and_then(|rate| rate.parse().ok()),
        concurrency: concurrency.map(|most| most as usize),
        per: Per::Tool,
        ..Terms::default()
    };
    (approve || rate.is_some() || concurrency.is_some()).then_some((place, terms))
}
