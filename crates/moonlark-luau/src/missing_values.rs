//! Missing values: fields and items that a script reads of results and no answer had.
//!
//! A misspelt field is nil and no error, and the answer that is made of it looks right. So
//! does the length of an object, which is 0.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};

use moonlark_core::Tool;
use moonlark_core::nearest::nearest_name;
use moonlark_core::value::shorten_text;
use moonlark_gateway::Call;
use serde_json::Value as Json;

use crate::answer_tree::{AnswerPart, AnswerTree, PlaceKinds};
use crate::check::tested_values::OperandRole;
use crate::declared_fields::{FieldDeclaration, find_field_declaration};
use crate::field_reads::{ResultFieldRead, ResultListUse, ScriptReads};
use crate::other_languages::{FieldReceiver, hint_for_field};
use crate::result_fields::{AnsweredFields, KnownFields};
use crate::result_flow::{ResultPath, ResultStep};

/// Places of answers that are looked at for one script, letters of names that are compared
/// for near misses, and fields that are looked for in schemas.
const MAX_JUDGED_PLACES: usize = 8_000_000;
const MAX_COMPARED_LETTERS: usize = 20_000_000;
const MAX_DECLARATION_LOOKUPS: usize = 500;
/// Lines about missing values in one run, and names that a line lists.
pub(crate) const MAX_MISSING_VALUE_LINES: usize = 5;
const MAX_LISTED_NAMES: usize = 10;

/// Something that the script reads and no answer had.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MissingValue {
    /// Where the script reads it.
    pub(crate) lines: Vec<u32>,
    pub(crate) message: String,
}

/// Holds what a script reads against the answers.
pub(crate) struct MissingValueJudge<'x> {
    tools: &'x HashMap<String, AnsweredFields>,
    reads: &'x ScriptReads,
    call: &'x Call,
    /// What was learned of tools that declare nothing, as schemas.
    learned: RefCell<HashMap<String, Option<Json>>>,
    places_left: Cell<usize>,
    letters_left: Cell<usize>,
    lookups_left: Cell<usize>,
}

impl<'x> MissingValueJudge<'x> {
    pub(crate) fn new(
        tools: &'x HashMap<String, AnsweredFields>,
        reads: &'x ScriptReads,
        call: &'x Call,
    ) -> MissingValueJudge<'x> {
        MissingValueJudge {
            tools,
            reads,
            call,
            learned: RefCell::default(),
            places_left: Cell::new(MAX_JUDGED_PLACES),
            letters_left: Cell::new(MAX_COMPARED_LETTERS),
            lookups_left: Cell::new(MAX_DECLARATION_LOOKUPS),
        }
    }

    /// What the script reads in vain, in its order and each once.
    pub(crate) fn find_missing_values(&self) -> Vec<MissingValue> {
        let mut said = self.find_missing_fields();
        said.extend(self.reads.lists.iter().filter_map(|it| self.explain_list_use(it)));
        said.sort_by_key(|(line, _)| *line);
        let mut found: Vec<MissingValue> = Vec::new();
        for (line, message) in said {
            match found.iter().position(|it| it.message == message) {
                Some(known) => found[known].lines.push(line),
                None if found.len() == MAX_MISSING_VALUE_LINES => {}
                None => found.push(MissingValue { lines: vec![line], message }),
            }
        }
        found
    }

    /// Lines and sentences for the fields that were in no answer.
    fn find_missing_fields(&self) -> Vec<(u32, String)> {
        let mut said = Vec::new();
        // In the order of the script, for whatever needs one.
        let mut groups: BTreeMap<usize, Vec<&ResultFieldRead>> = BTreeMap::new();
        for read in &self.reads.fields {
            match read.test {
                Some(test) => groups.entry(test.group).or_default().push(read),
                None => {
                    if let FieldVerdict::Missing(missing) = self.judge_read(read)
                        && (missing.is_near_miss || !missing.comes_and_goes)
                    {
                        said.push((read.line, missing.sentence(&[&read.field])));
                    }
                }
            }
        }
        for group in groups.values() {
            self.judge_alternatives(group, &mut said);
        }
        said
    }

    /// Of alternatives one is enough. Where there is none, they are said together.
    fn judge_alternatives(&self, group: &[&ResultFieldRead], said: &mut Vec<(u32, String)>) {
        let mut missing: Vec<(&ResultFieldRead, MissingField)> = Vec::new();
        for read in group {
            let is_guard = read.test.is_some_and(|test| test.role == OperandRole::Guard);
            match self.judge_read(read) {
                FieldVerdict::Missing(it) => missing.push((read, it)),
                FieldVerdict::Present | FieldVerdict::Unknown if !is_guard => return,
                _ => {}
            }
        }
        missing.retain(|(read, missing)| is_worth_saying(read, missing));
        let mut sentences: Vec<(u32, &MissingField, Vec<&str>)> = Vec::new();
        for (read, missing) in &missing {
            let is_same = |it: &&mut (u32, &MissingField, Vec<&str>)| {
                it.1.before == missing.before && it.1.after == missing.after
            };
            match sentences.iter_mut().find(is_same) {
                Some((_, _, names)) if names.contains(&read.field.as_str()) => {}
                Some((_, _, names)) => names.push(&read.field),
                None => sentences.push((read.line, missing, vec![&read.field])),
            }
        }
        said.extend(sentences.into_iter().map(|(line, it, names)| (line, it.sentence(&names))));
    }

    /// Whether any call that may have given a field had it. Those that were not made say
    /// nothing.
    fn judge_read(&self, read: &ResultFieldRead) -> FieldVerdict {
        let mut first = None;
        let mut is_unreached = false;
        for origin in &read.origins {
            let Some((tool, path)) = origin.find_tool(self.call.catalog().sdk()) else {
                return FieldVerdict::Unknown;
            };
            let Some(fields) = self.tools.get(&tool.name) else { continue };
            match self.judge_field(fields, (origin, &path), &read.field, tool) {
                FieldVerdict::Missing(missing) => {
                    first.get_or_insert(missing);
                }
                FieldVerdict::Unreached => is_unreached = true,
                verdict => return verdict,
            }
        }
        match first {
            Some(missing) => FieldVerdict::Missing(missing),
            None if is_unreached => FieldVerdict::Unreached,
            None => FieldVerdict::Unknown,
        }
    }

    /// Whether the answers had the field `name` of the table at `at`. `path` is how messages
    /// name the tool.
    fn judge_field(
        &self,
        fields: &AnsweredFields,
        (at, path): (&ResultPath, &str),
        name: &str,
        tool: &Tool,
    ) -> FieldVerdict {
        let whose = format!("the result of {path}");
        if fields.texts > 0 {
            if fields.tables > 0 {
                return FieldVerdict::Unknown;
            }
            if !at.path.is_empty() {
                return FieldVerdict::Unreached;
            }
            let after = match (hint_for_field(FieldReceiver::Text, name), &fields.decoded_names) {
                (Some(hint), _) => format!(": {hint}"),
                (None, Some(names)) => format!("; json.decode gives {}", list_names(names, "")),
                (None, None) => String::new(),
            };
            let before = format!("{whose} is a text, which has no field ");
            return FieldVerdict::Missing(MissingField::new(before, after));
        }
        let place = shorten_text(&at.display_path()).into_owned();
        let inside = if place.is_empty() { String::new() } else { format!(" in {place}") };
        let tree = match &fields.known {
            KnownFields::ByPlace(tree) => tree,
            KnownFields::ByName(names) => {
                return self.judge_by_name(names, at, name, tool, (&whose, &inside));
            }
            KnownFields::TooMany => return FieldVerdict::Unknown,
        };
        let Some(part) = self.find_part(tree, &at.path) else { return FieldVerdict::Unreached };
        if part.has_field(name) {
            return FieldVerdict::Present;
        }
        // Fields of texts are noted when they are read, and those of numbers raise.
        if part.kinds.texts || !(part.kinds.objects || part.kinds.lists) {
            return FieldVerdict::Unknown;
        }
        let declaration = self.find_declaration(at, name, tool);
        if declaration == FieldDeclaration::Declared {
            return FieldVerdict::Present;
        }
        if part.kinds == PlaceKinds::ONLY_LISTS {
            let hint = hint_for_field(FieldReceiver::List, name).unwrap_or("its items have fields");
            let what = if place.is_empty() { "is a list" } else { "has a list" };
            let before = format!("{whose} {what}{inside}, which has no field ");
            return FieldVerdict::Missing(MissingField::new(before, format!(": {hint}")));
        }
        let near = self.find_near_name(name, &part);
        let is_undeclared = declaration == FieldDeclaration::Undeclared;
        FieldVerdict::Missing(MissingField {
            is_undeclared,
            // A script that reads the other name as well knows what it does.
            is_near_miss: near.is_some_and(|near| !self.reads.names.contains(near)),
            comes_and_goes: !is_undeclared
                && names_next_page(name)
                && !fields.known.contains_name(name),
            ..MissingField::new(
                format!("{whose} has no field "),
                format!("{inside}; it has {}", list_field_names(&part, near.unwrap_or_default())),
            )
        })
    }

    /// Whether answers of which only the names are known had a field.
    fn judge_by_name(
        &self,
        names: &HashSet<String>,
        at: &ResultPath,
        name: &str,
        tool: &Tool,
        (whose, inside): (&str, &str),
    ) -> FieldVerdict {
        let is_reached = |step: &ResultStep| match step {
            ResultStep::Field(name) => names.contains(name),
            ResultStep::Item => true,
        };
        // Where something is missing on the way there, that was said.
        if !at.path.iter().all(is_reached) {
            return FieldVerdict::Unreached;
        }
        let declaration = self.find_declaration(at, name, tool);
        if names.contains(name) || declaration == FieldDeclaration::Declared {
            return FieldVerdict::Present;
        }
        let is_undeclared = declaration == FieldDeclaration::Undeclared;
        FieldVerdict::Missing(MissingField {
            is_undeclared,
            comes_and_goes: !is_undeclared && names_next_page(name),
            ..MissingField::new(format!("{whose} has no field "), inside.to_owned())
        })
    }

    /// What a tool says of a field. Where it says nothing, a field that was there before
    /// may be there again; where there is no time to look, it counts as declared.
    fn find_declaration(&self, at: &ResultPath, name: &str, tool: &Tool) -> FieldDeclaration {
        let Some(left) = self.lookups_left.get().checked_sub(1) else {
            return FieldDeclaration::Declared;
        };
        self.lookups_left.set(left);
        if let Some(output) = &tool.output {
            return find_field_declaration(output.json(), &at.path, name);
        }
        let mut learned = self.learned.borrow_mut();
        if !learned.contains_key(&tool.name) {
            let shapes = self.call.gateway().learned_shapes();
            let shape = shapes.find_shape(tool, self.call.caller());
            learned.insert(tool.name.clone(), shape.map(|shape| shape.to_schema()));
        }
        let schema = learned.get(&tool.name).and_then(|schema| schema.as_ref()?.as_object());
        match schema.map(|schema| find_field_declaration(schema, &at.path, name)) {
            Some(FieldDeclaration::Declared) => FieldDeclaration::Declared,
            _ => FieldDeclaration::Unsaid,
        }
    }

    /// What the answers had at a path, while there is time for it.
    fn find_part<'t>(&self, tree: &'t AnswerTree, path: &[ResultStep]) -> Option<AnswerPart<'t>> {
        self.places_left.set(self.places_left.get().checked_sub(tree.count_places())?);
        tree.find_part(path)
    }

    /// The field that is meant, most likely.
    fn find_near_name<'t>(&self, name: &str, part: &AnswerPart<'t>) -> Option<&'t str> {
        let names = part.field_names();
        let letters: usize = names.iter().map(|known| known.len() * name.len()).sum();
        self.letters_left.set(self.letters_left.get().checked_sub(letters)?);
        nearest_name(name, names)
    }

    /// What is wrong with taking an object for a list.
    fn explain_list_use(&self, read: &ResultListUse) -> Option<(u32, String)> {
        let mut first = None;
        for origin in &read.origins {
            let (tool, path) = origin.find_tool(self.call.catalog().sdk())?;
            let Some(fields) = self.tools.get(&tool.name) else { continue };
            let KnownFields::ByPlace(tree) = &fields.known else { return None };
            let Some(part) = self.find_part(tree, &origin.path) else { continue };
            let names = part.field_names();
            // An empty table may be either.
            if fields.texts > 0 || part.kinds != PlaceKinds::ONLY_OBJECTS || names.is_empty() {
                return None;
            }
            // `if #r == 0 then use(r.items) end` knows that it may be an object.
            if read.is_compared && names.iter().any(|name| self.reads.names.contains(*name)) {
                return None;
            }
            first.get_or_insert_with(|| {
                let count = match names.len() {
                    1 => "1 field".to_owned(),
                    many => format!("{many} fields"),
                };
                let place = shorten_text(&origin.display_path()).into_owned();
                let (what, inside) = if place.is_empty() {
                    ("is an object", String::new())
                } else {
                    ("has an object", format!(" in {place}"))
                };
                let effect = read.operation.describe_for_object();
                let listed = list_field_names(&part, "");
                format!(
                    "the result of {path} {what} with {count}{inside}, not a list, so {effect}; \
                     it has {listed}"
                )
            });
        }
        Some((read.line, first?))
    }
}

/// Whether the answers had a field.
enum FieldVerdict {
    Present,
    /// They did not even have what it would be a field of.
    Unreached,
    Unknown,
    Missing(MissingField),
}

/// A field that was in no answer.
#[derive(Default)]
struct MissingField {
    /// The sentence before and after its name.
    before: String,
    after: String,
    /// The tool declares its result, and this is no part of it.
    is_undeclared: bool,
    /// Another name is meant, most likely.
    is_near_miss: bool,
    /// Fields of this name are there only for some answers, as a rule.
    comes_and_goes: bool,
}

/// Whether it is worth a line that a field is not there which the script only looks for.
fn is_worth_saying(read: &ResultFieldRead, missing: &MissingField) -> bool {
    let is_condition = read.test.is_some_and(|test| test.role != OperandRole::Alternative);
    let is_likely_mistake = missing.is_undeclared || missing.is_near_miss;
    if names_failure(&read.field) || (missing.comes_and_goes && !missing.is_near_miss) {
        return false;
    }
    is_likely_mistake || !is_condition
}

/// `if r.error then`: nobody declares it, and its absence is good news.
fn names_failure(field: &str) -> bool {
    let field = field.to_ascii_lowercase();
    field == "err" || field.contains("error")
}

/// Names of what leads to the next page. The last page has none.
fn names_next_page(field: &str) -> bool {
    let field = field.to_ascii_lowercase().replace(['_', '-'], "");
    ["next", "cursor", "pagetoken", "hasmore", "continu"].iter().any(|part| field.contains(part))
}

impl MissingField {
    fn new(before: String, after: String) -> MissingField {
        MissingField { before, after, ..MissingField::default() }
    }

    /// For fields that are missing in the same place.
    fn sentence(&self, fields: &[&str]) -> String {
        let names = match fields {
            [one] => shorten_text(one).into_owned(),
            [most @ .., last] if most.len() < MAX_LISTED_NAMES => {
                format!("{} or {}", list_names(most, ""), shorten_text(last))
            }
            many => list_names(many, ""),
        };
        format!("{}{names}{}", self.before, self.after)
    }
}

/// The names of the fields at a place, for a sentence.
fn list_field_names(part: &AnswerPart<'_>, near: &str) -> String {
    let names: Vec<&str> = part.field_names().into_iter().collect();
    list_names(&names, near)
}

/// Some names, `near` among them if it is one.
fn list_names<T: AsRef<str>>(names: &[T], near: &str) -> String {
    let mut shown: Vec<&str> =
        names.iter().take(MAX_LISTED_NAMES).map(|name| name.as_ref()).collect();
    if names.iter().any(|name| name.as_ref() == near) && !shown.contains(&near) {
        shown.pop();
        shown.insert(0, near);
    }
    let more = names.len().saturating_sub(shown.len());
    let shown: Vec<_> = shown.into_iter().map(shorten_text).collect();
    match more {
        _ if names.is_empty() => "other fields".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
