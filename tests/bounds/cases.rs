//! Which calls are made: for every parameter of every function of every module,
//! from their descriptors, so that a new function is covered by being there.

use moonlark_core::Module;
use moonlark_core::module::{ExampleOutcome, FunctionParam, ModuleFunction, ScriptLanguage};
use serde_json::{Map, Value as Json, json};

use crate::measure::SeededNumbers;

/// A function that scripts can call.
pub struct Target {
    pub name: String,
    pub params: Vec<FunctionParam>,
    /// Arguments that it takes.
    base: Map<String, Json>,
}

/// What the arguments of functions that touch the world are, where the examples
/// would only be refused.
fn world(param: &str, port: u16) -> Option<Json> {
    Some(match param {
        "url" => json!(format!("http://127.0.0.1:{port}/zeros")),
        "path" => json!("data.db"),
        "sql" => json!("SELECT 1 AS one"),
        "cmd" => json!("cat"),
        "table" => json!("t"),
        _ => return None,
    })
}

/// The functions of all modules that scripts of a language have.
pub fn host_functions(modules: &[Module], language: ScriptLanguage, port: u16) -> Vec<Target> {
    modules
        .iter()
        .filter(|module| module.is_for_language(language) && !module.only_in_tests)
        .flat_map(|module| &module.functions)
        .map(|function| Target {
            name: function.tool.name.clone(),
            params: function.params.to_vec(),
            base: base_arguments(function, port),
        })
        .collect()
}

fn base_arguments(function: &ModuleFunction, port: u16) -> Map<String, Json> {
    let works = |it: &&moonlark_core::module::FunctionExample| {
        !matches!(it.outcome, ExampleOutcome::Fails(_))
    };
    let example = function.examples.iter().find(works).or(function.examples.first());
    let mut base = example.and_then(|it| it.args.as_object()).cloned().unwrap_or_default();
    if function.needs.is_some() {
        let touching = function.params.iter().filter(|param| param.required);
        base.extend(touching.filter_map(|it| Some((it.name.clone(), world(&it.name, port)?))));
    }
    base
}

/// One call.
#[derive(Clone)]
pub struct Case {
    pub name: String,
    /// By place, then by name; each a shape of `probe.luau` and `probe.star`.
    pub places: Vec<Json>,
    pub named: Map<String, Json>,
    pub returns: bool,
}

impl Case {
    pub fn plan(&self) -> Json {
        json!({"plan": {
            "name": self.name, "places": self.places, "named": self.named, "returns": self.returns,
        }})
    }

    /// All shapes that were made up, for a message.
    pub fn shapes(&self) -> Vec<Json> {
        let all = self.places.iter().chain(self.named.values());
        all.filter(|shape| shape["kind"] != "value").cloned().collect()
    }
}

/// How large arguments are, in bytes.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub largest: usize,
}

impl Target {
    /// A call with one or two of the parameters made up; `turn` goes through the
    /// parameters one after the other.
    pub fn case(&self, turn: usize, sizes: Sizes, numbers: &mut SeededNumbers) -> Case {
        let count = self.params.len().max(1);
        let first = turn % count;
        let second = (numbers.below(3) == 0).then(|| numbers.below(count));
        // Both together are as large as one alone.
        let sizes = if second.is_some_and(|second| second != first) {
            Sizes { largest: sizes.largest / 2 }
        } else {
            sizes
        };
        let mut case = Case {
            name: self.name.clone(),
            places: Vec::new(),
            named: Map::new(),
            returns: numbers.below(2) == 0,
        };
        let mut skipped = false;
        for (index, param) in self.params.iter().enumerate() {
            let made_up = index == first || Some(index) == second;
            let shape = match self.base.get(&param.name) {
                _ if made_up => shape_for(&param.schema, sizes, numbers),
                Some(value) => json!({"kind": "value", "value": value}),
                None => {
                    skipped |= param.positional;
                    if param.positional && index < first.max(second.unwrap_or(0)) {
                        case.places.push(json!({"kind": "value"}));
                    }
                    continue;
                }
            };
            if param.positional {
                let _ = skipped;
                case.places.push(shape);
            } else {
                case.named.insert(param.name.clone(), shape);
            }
        }
        case
    }
}

/// Something of the kind that the parameter takes, as a rule.
fn shape_for(schema: &Json, sizes: Sizes, numbers: &mut SeededNumbers) -> Json {
    let kinds: Vec<&str> = match &schema["type"] {
        Json::String(kind) => vec![kind.as_str()],
        Json::Array(kinds) => kinds.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    };
    let kind = if numbers.below(8) == 0 || kinds.is_empty() {
        *["document", "fill", "table", "number", "table"].get(numbers.below(5)).unwrap()
    } else {
        match kinds[numbers.below(kinds.len())] {
            "string" => ["document", "fill"][numbers.below(2)],
            "array" | "object" => "table",
            "boolean" => "boolean",
            _ => "number",
        }
    };
    shape(kind, sizes, numbers)
}

pub fn shape(kind: &str, sizes: Sizes, numbers: &mut SeededNumbers) -> Json {
    // Large more often than small: half of them as large as may be.
    let bytes = sizes.largest >> [0, 0, 0, 2, 5, 9][numbers.below(6)];
    json!({"kind": kind, "pick": numbers.below(1 << 20), "bytes": bytes})
}

/// A call of one of the language's own functions, with anything at all.
pub fn builtin_case(name: &str, sizes: Sizes, numbers: &mut SeededNumbers) -> Case {
    let kinds = ["fill", "document", "number", "number", "table", "callback", "buffer", "fill"];
    let usual = match name.split('.').next().unwrap_or_default() {
        "string" | "utf8" | "str" => "fill",
        "table" | "list" | "dict" | "set" | "tuple" | "sorted" | "zip" | "enumerate" => "table",
        "buffer" => "buffer",
        _ => "number",
    };
    let count = 1 + numbers.below(4);
    let places = (0..count)
        .map(|place| {
            let kind = if place == 0 && (name.starts_with("str.") || numbers.below(4) != 0) {
                usual
            } else {
                kinds[numbers.below(kinds.len())]
            };
            shape(kind, sizes, numbers)
        })
        .collect();
    Case { name: name.to_owned(), places, named: Map::new(), returns: numbers.below(2) == 0 }
}
