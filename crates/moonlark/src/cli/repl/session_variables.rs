//! The variables of a session, from one entry to the next.
//!
//! An entry that defines or names some of them is written so that it also gives back
//! what they are when it ends. Values come again as artifacts, functions as the text
//! that defined them.

use moonlark_core::{Result, Value};
use moonlark_gateway::artifacts::ArtifactHandle;
use moonlark_luau::ParsedReplEntry;

use super::{mentions_name, script_for_entry};

#[derive(Default)]
pub(super) struct SessionVariables {
    /// In the order they were defined.
    kept: Vec<(String, KeptVariable)>,
    /// What the last entry defined that cannot be kept.
    lost: Vec<String>,
    /// What the last entry defined by its text.
    by_text: Vec<(String, String)>,
}

enum KeptVariable {
    Value(Value),
    Definition(String),
}

impl SessionVariables {
    /// Whether an entry has to give its variables back.
    pub(super) fn keeps_variables(&self, entry: &str) -> bool {
        let defined = ParsedReplEntry::parse(entry).is_some_and(|it| !it.defined.is_empty());
        defined || !self.values_named_in(entry).is_empty()
    }

    /// The variables that an entry names, and those that they name, as lines before it.
    pub(super) fn definitions_for(
        &self,
        entry: &str,
        keep: impl Fn(&Value) -> Result<ArtifactHandle>,
    ) -> Result<String> {
        let mut needed = vec![false; self.kept.len()];
        let mut texts = vec![entry];
        while let Some(text) = texts.pop() {
            for (at, (name, variable)) in self.kept.iter().enumerate() {
                if !needed[at] && mentions_name(text, name) {
                    needed[at] = true;
                    if let KeptVariable::Definition(text) = variable {
                        texts.push(text);
                    }
                }
            }
        }
        let mut lines = String::new();
        let chosen = || self.kept.iter().zip(&needed).filter(|(_, needed)| **needed);
        for ((name, variable), _) in chosen() {
            if let KeptVariable::Value(value) = variable {
                let handle = keep(value)?.to_string();
                lines.push_str(&format!("local {name} = artifact({handle:?})\n"));
            }
        }
        // They may use the values.
        for ((_, variable), _) in chosen() {
            if let KeptVariable::Definition(text) = variable {
                lines.push_str(&format!("{text}\n"));
            }
        }
        Ok(lines)
    }

    /// The entry as a script that gives its answer, and its variables if it has some.
    pub(super) fn script_with_variables(&mut self, entry: &str) -> String {
        (self.lost, self.by_text) = (Vec::new(), Vec::new());
        if !self.keeps_variables(entry) || mentions_name(entry, "result") {
            return script_for_entry(entry);
        }
        let mut names = self.values_named_in(entry);
        let expression = ParsedReplEntry::parse(&format!("return {entry}"));
        let with_answer = match (expression, ParsedReplEntry::parse(entry)) {
            (Some(_), _) => format!("local repl_answer = table.pack({entry}\n)"),
            (None, Some(statements)) => {
                for defined in statements.defined {
                    match defined.definition {
                        Some(text) => self.by_text.push((defined.name, text)),
                        None if !names.contains(&defined.name) => names.push(defined.name),
                        None => {}
                    }
                }
                match statements.returned {
                    Some((whole, values)) => format!(
                        "{}local repl_answer = table.pack({}\n)",
                        &entry[..whole.start],
                        &entry[values]
                    ),
                    None => format!("{entry}\nlocal repl_answer = {{ n = 0 }}"),
                }
            }
            (None, None) => return script_for_entry(entry),
        };
        let kept: Vec<String> =
            names.iter().map(|name| format!("{name} = repl_keep({name:?}, {name})")).collect();
        format!(
            "{with_answer}\n\
             local repl_lost = {{}}\n\
             local function repl_keep(name, value)\n\
             if value == nil or pcall(json.encode, value) then return value end\n\
             table.insert(repl_lost, name) return nil end\n\
             local repl_kept = {{ {} }}\n\
             return {{ answer = if repl_answer.n > 1 then {{ table.unpack(repl_answer, 1, repl_answer.n) }} else repl_answer[1], kept = repl_kept, lost = repl_lost }}",
            kept.join(", ")
        )
    }

    /// Take over the variables of an entry; what is left is its answer.
    pub(super) fn take_variables(&mut self, given: Value) -> Value {
        let Value::Object(mut fields) = given else { return given };
        if !fields.contains_key("kept") || !fields.contains_key("lost") {
            return Value::Object(fields);
        }
        for (name, text) in std::mem::take(&mut self.by_text) {
            self.set_variable(name, KeptVariable::Definition(text));
        }
        if let Some(Value::Object(kept)) = fields.swap_remove("kept") {
            for (name, value) in kept {
                self.set_variable(name, KeptVariable::Value(value));
            }
        }
        if let Some(Value::Array(lost)) = fields.swap_remove("lost") {
            self.lost = lost.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect();
        }
        fields.swap_remove("answer").unwrap_or(Value::Null)
    }

    /// What the last entry defined that cannot be kept.
    pub(super) fn lost_names(&self) -> &[String] {
        &self.lost
    }

    fn set_variable(&mut self, name: String, variable: KeptVariable) {
        self.kept.retain(|(known, _)| *known != name);
        self.kept.push((name, variable));
    }

    /// The variables with values that an entry names, and may change.
    fn values_named_in(&self, entry: &str) -> Vec<String> {
        let is_value = |(name, variable): &&(String, KeptVariable)| {
            matches!(variable, KeptVariable::Value(_)) && mentions_name(entry, name)
        };
        self.kept.iter().filter(is_value).map(|(name, _)| name.clone()).collect()
    }
}
