//! Fields of the answers of one run.
//!
//! Only names are held here, of this run's own answers, and no values. What the script
//! reads in vain is for [`crate::missing_values`] to say.

use std::collections::{HashMap, HashSet};

use moonlark_core::sdk::to_identifier;
use moonlark_core::value::{Value, shorten_text};
use moonlark_gateway::Call;
use parking_lot::Mutex;

use crate::answer_tree::{AnswerTree, MAX_ANSWER_VALUES};
use crate::field_reads::{find_script_reads, may_read_results};
use crate::missing_values::{MAX_MISSING_VALUE_LINES, MissingValue, MissingValueJudge};
use crate::other_languages::{FieldReceiver, hint_for_field};

/// Names that are held of one tool whose answers have too many places; with more, nothing
/// is said of it.
const MAX_FIELD_NAMES: usize = 2000;
/// Bytes of what is held of all answers of one run, about. Of tools that would take more,
/// nothing is said.
const MAX_HELD_BYTES: usize = 4 << 20;
/// Fields of texts that are noted in one run.
const MAX_NOTED_TEXT_FIELDS: usize = 20;
/// The longest text that is tried as JSON.
const MAX_JSON_TEXT_BYTES: usize = 64 * 1024;

#[derive(Default)]
pub(crate) struct ResultFields {
    answered: Mutex<AnsweredTools>,
    /// Fields of texts that the script read, with their lines.
    of_texts: Mutex<Vec<(u32, String)>>,
}

#[derive(Default)]
struct AnsweredTools {
    by_name: HashMap<String, AnsweredFields>,
    held_bytes: usize,
}

/// What one tool answered.
#[derive(Default)]
pub(crate) struct AnsweredFields {
    pub(crate) known: KnownFields,
    pub(crate) tables: usize,
    pub(crate) texts: usize,
    /// The fields of the first text that is JSON.
    pub(crate) decoded_names: Option<Vec<String>>,
}

/// The fields that a tool's answers had.
pub(crate) enum KnownFields {
    ByPlace(AnswerTree),
    /// There are too many places; the names alone.
    ByName(HashSet<String>),
    /// There are too many of everything.
    TooMany,
}

impl Default for KnownFields {
    fn default() -> Self {
        KnownFields::ByPlace(AnswerTree::default())
    }
}

impl ResultFields {
    /// Look at what a tool answered.
    pub(crate) fn record_answer(&self, tool: &str, answer: &Value) {
        if !matches!(answer, Value::Object(_) | Value::Array(_) | Value::Str(_)) {
            return;
        }
        let mut answered = self.answered.lock();
        let AnsweredTools { by_name, held_bytes } = &mut *answered;
        let fields = match by_name.get_mut(tool) {
            Some(fields) => fields,
            None => by_name.entry(tool.to_owned()).or_default(),
        };
        if let Value::Str(text) = answer {
            return fields.record_text(text);
        }
        fields.tables += 1;
        // Of a new tool, nothing is held yet.
        *held_bytes = held_bytes.saturating_sub(fields.known.count_bytes());
        fields.known.add_answer(answer);
        if *held_bytes + fields.known.count_bytes() > MAX_HELD_BYTES {
            fields.known = KnownFields::TooMany;
        }
        *held_bytes += fields.known.count_bytes();
    }

    /// A script read a field of a text that no text has.
    pub(crate) fn note_text_field(&self, line: u32, name: &str) {
        let mut noted = self.of_texts.lock();
        let is_known = noted.iter().any(|(at, known)| *at == line && known == name);
        if noted.len() < MAX_NOTED_TEXT_FIELDS && !is_known {
            noted.push((line, shorten_text(name).into_owned()));
        }
    }

    /// Everything that the script reads and no answer and no text had. `relies_on` says
    /// whether a field of that name is read on a line as if it were there.
    pub(crate) fn find_missing_values(
        &self,
        script: &str,
        relies_on: impl Fn(u32, &str) -> bool,
        call: &Call,
    ) -> Vec<MissingValue> {
        let of_texts = self.of_texts.lock();
        let mut found = self.find_missing_in_results(script, !of_texts.is_empty(), call);
        for (line, name) in of_texts.iter() {
            let is_said =
                |it: &MissingValue| it.lines.contains(line) && it.message.contains(name.as_str());
            if found.len() == MAX_MISSING_VALUE_LINES
                || found.iter().any(is_said)
                || !relies_on(*line, name)
            {
                continue;
            }
            let hint = hint_for_field(FieldReceiver::Text, name);
            let hint = hint.map_or_else(String::new, |hint| format!(": {hint}"));
            let message = format!("a text has no field {name}{hint}");
            found.push(MissingValue { lines: vec![*line], message });
        }
        found
    }

    /// `surely` something is missing, so that the script has to be read.
    fn find_missing_in_results(
        &self,
        script: &str,
        surely: bool,
        call: &Call,
    ) -> Vec<MissingValue> {
        let tools = &self.answered.lock().by_name;
        if tools.is_empty() {
            return Vec::new();
        }
        let functions: HashSet<String> = tools
            .keys()
            .map(|tool| to_identifier(tool.rsplit('.').next().unwrap_or(tool)))
            .collect();
        if !surely && !may_read_results(script, |name| functions.contains(name)) {
            return Vec::new();
        }
        MissingValueJudge::new(tools, &find_script_reads(script), call).find_missing_values()
    }
}

impl KnownFields {
    fn add_answer(&mut self, answer: &Value) {
        let flattened = match self {
            KnownFields::ByPlace(tree) => match tree.add_answer(answer) {
                Ok(()) => return,
                Err(_) => KnownFields::ByName(std::mem::take(tree).into_names()),
            },
            KnownFields::ByName(names) => KnownFields::ByName(std::mem::take(names)),
            KnownFields::TooMany => return,
        };
        *self = flattened;
        if let KnownFields::ByName(names) = self
            && !add_names(names, answer)
        {
            *self = KnownFields::TooMany;
        }
    }

    /// What it takes in memory, about.
    fn count_bytes(&self) -> usize {
        match self {
            KnownFields::ByPlace(tree) => tree.count_bytes(),
            KnownFields::ByName(names) => names.iter().map(|name| 64 + name.len()).sum(),
            KnownFields::TooMany => 0,
        }
    }

    /// Whether some answer had a field of this name, wherever.
    pub(crate) fn contains_name(&self, name: &str) -> bool {
        match self {
            KnownFields::ByPlace(tree) => tree.contains_name(name),
            KnownFields::ByName(names) => names.contains(name),
            KnownFields::TooMany => true,
        }
    }
}

/// Whether all names of an answer could be held.
fn add_names(names: &mut HashSet<String>, answer: &Value) -> bool {
    let (mut left, mut name_bytes) = (MAX_ANSWER_VALUES, 0);
    let mut open = vec![answer];
    while let Some(value) = open.pop() {
        let Some(fewer) = left.checked_sub(1) else { return false };
        left = fewer;
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(fields) => {
                for (name, field) in fields {
                    if !names.contains(name) {
                        name_bytes += name.len();
                        if names.len() == MAX_FIELD_NAMES || name_bytes > MAX_HELD_BYTES {
                            return false;
                        }
                        names.insert(name.clone());
                    }
                    open.push(field);
                }
            }
            _ => {}
        }
    }
    true
}

impl AnsweredFields {
    fn record_text(&mut self, text: &str) {
        self.texts += 1;
        if self.decoded_names.is_none()
            && text.len() <= MAX_JSON_TEXT_BYTES
            && let Ok(Value::Object(fields)) = Value::parse_json(text.as_bytes())
        {
            let names = fields.keys().take(MAX_FIELD_NAMES);
            self.decoded_names = Some(names.map(|name| shorten_text(name).into_owned()).collect());
        }
    }
}
