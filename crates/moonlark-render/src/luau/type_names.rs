//! Names for the definitions that a schema refers to.

use std::collections::{HashSet, VecDeque};

use serde_json::Value as Json;

use crate::function_parts::to_pascal_case;
use moonlark_core::schema::referenced_name;
use moonlark_core::sdk::to_identifier;

/// The named types of one tool: a definition gets its name when it is first
/// referred to, before it is drawn, so that cycles end.
pub(super) struct LuauTypeNames {
    /// Before every name, where several tools share a page.
    prefix: String,
    /// For the type checker, which must not doubt: nothing is optional, and
    /// text is any text.
    pub(super) lenient: bool,
    known: Vec<NamedDefinition>,
    taken: HashSet<String>,
    /// Those that have yet to be drawn.
    waiting: VecDeque<usize>,
    /// Whether the definitions of the schema being read are those of the one
    /// before.
    space: usize,
}

struct NamedDefinition {
    space: usize,
    reference: String,
    name: String,
}

impl LuauTypeNames {
    pub(super) fn new(prefix: &str, lenient: bool) -> LuauTypeNames {
        LuauTypeNames {
            prefix: prefix.to_owned(),
            lenient,
            known: Vec::new(),
            taken: HashSet::new(),
            waiting: VecDeque::new(),
            space: 0,
        }
    }

    /// The next references are another schema's: the same words may mean
    /// something else.
    pub(super) fn start_schema(&mut self) {
        self.space += 1;
    }

    /// The name of what `reference` points to; none where it is as short as a
    /// name itself.
    pub(super) fn name_for(&mut self, reference: &str, target: &Json) -> Option<String> {
        if !is_worth_a_name(target) {
            return None;
        }
        let same = |it: &&NamedDefinition| it.space == self.space && it.reference == reference;
        if let Some(known) = self.known.iter().find(same) {
            return Some(known.name.clone());
        }
        let name = self.reserve_name(reference);
        self.waiting.push_back(self.known.len());
        let (space, reference) = (self.space, reference.to_owned());
        self.known.push(NamedDefinition { space, reference, name: name.clone() });
        Some(name)
    }

    /// A definition that has a name and no drawing: the name and the reference.
    pub(super) fn next_undrawn(&mut self) -> Option<(String, String)> {
        let known = &self.known[self.waiting.pop_front()?];
        Some((known.name.clone(), known.reference.clone()))
    }

    fn reserve_name(&mut self, reference: &str) -> String {
        let last = referenced_name(reference);
        let last = if last.is_empty() { "Whole" } else { &last };
        let wanted = format!("{}{}", self.prefix, to_pascal_case(&to_identifier(last)));
        // Only underscores: nothing is left of it.
        let wanted = if wanted.is_empty() { "Part".to_owned() } else { to_identifier(&wanted) };
        let numbered = (2..).map(|number| format!("{wanted}{number}"));
        let found = std::iter::once(wanted.clone())
            .chain(numbered)
            .find(|name| !self.taken.contains(name))
            .unwrap_or(wanted);
        self.taken.insert(found.clone());
        found
    }
}

/// Plain types and mere references are drawn where they are used.
fn is_worth_a_name(target: &Json) -> bool {
    let Json::Object(target) = target else { return false };
    if target.contains_key("$ref") {
        return false;
    }
    let plain = |kind: &str| matches!(kind, "string" | "integer" | "number" | "boolean" | "null");
    let kind = target.get("type").and_then(Json::as_str);
    let choices = ["enum", "const", "anyOf", "oneOf", "allOf"];
    let choosing = choices.iter().any(|key| target.contains_key(*key));
    match kind {
        Some(kind) => choosing || !plain(kind),
        None => choosing || target.contains_key("properties"),
    }
}
