//! Keys of a script's own table that read like a slip of the pen: `alow` for `allow`.
//!
//! Any key is allowed there, so this is a warning. A key in quotes is meant as it is
//! written, and so is one whose value the other key would not take.

use std::borrow::Cow;

use moonlark_core::nearest::nearest_name;
use moonlark_core::problem::Problem;
use moonlark_gateway::policy::CallRate;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{ConfigFinding, DocumentChecker, schema_messages};

impl DocumentChecker<'_> {
    pub(super) fn warn_about_near_miss(
        &mut self,
        schema: &Value,
        table: &DeTable<'_>,
        key: &Spanned<Cow<'_, str>>,
        value: &Spanned<DeValue<'_>>,
    ) {
        let takes_any = schema.get("additionalProperties") != Some(&Value::Bool(false));
        let is_script = self.path.depth() == 3 && self.path.key_names().nth(1) == Some("script");
        let start = key.span().start;
        let in_quotes = self.text.get(start..).is_some_and(|text| text.starts_with(['"', '\'']));
        if !takes_any || !is_script || in_quotes {
            return;
        }
        let own = key.get_ref().as_ref();
        let known = schema_messages::schema_properties(schema).map(|(name, _)| name.as_str());
        // A second key beside ours is mostly the script's own. A second list of grants is
        // not: it grants nothing.
        let known = known.filter(|name| *name == "allow" || !table.contains_key(*name));
        let Some(near) = nearest_name(own, known) else { return };
        let is_set = table.contains_key(near);
        if !self.would_accept_value(&schema["properties"][near], near, value) {
            return;
        }
        let (table, own) = (&self.path, self.path.with_key(own).last_segment());
        let message = format!("{own} in [{table}] is the script's own key, and looks like {near}");
        let question = if is_set {
            format!("did you mean {near}, which is there as well?")
        } else {
            format!("did you mean {near}?")
        };
        let hint = format!(
            "{question} If it is the script's own, write it in quotes: {:?} = …",
            key.get_ref()
        );
        let problem = Problem::bad_config(message).with_hint(hint);
        self.checked.warnings.push(ConfigFinding::at_offset(start, problem));
    }

    /// Whether the value would be right for the key `name`.
    fn would_accept_value(
        &mut self,
        schema: &Value,
        name: &str,
        value: &Spanned<DeValue<'_>>,
    ) -> bool {
        let mut aside = DocumentChecker {
            values: self.values,
            text: self.text,
            path: self.path.with_key(name),
            checked: super::CheckedDocument::default(),
        };
        let taken = aside.check_value(schema, value);
        let is_rate = |text: &str| text.parse::<CallRate>().is_ok();
        taken.is_some_and(|it| name != "rate" || it.as_str().is_some_and(is_rate))
            && aside.checked.findings.is_empty()
    }
}
