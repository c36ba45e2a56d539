//! Input and output schemas: compiled once, checked on every call.
//!
//! A schema never fetches anything: a `$ref` that leaves the document is a
//! Problem when the tool loads.

mod complexity;

use std::sync::{Arc, OnceLock};

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind};
use jsonschema::{FancyRegex, PatternOptions};
use serde_json::{Map, Value as Json, json};

use self::complexity::is_too_complex;
use crate::nearest::nearest;
use crate::problem::{Problem, Result};
use crate::value::{MAX_DEPTH, Object, Value, shorten};

/// Of one pattern as it is compiled, and of what it remembers while it is used.
const MAX_PATTERN_BYTES: usize = 2 << 20;
/// Of one pattern with look-around or references, for one text.
const MAX_PATTERN_BACKTRACKS: usize = 100_000;
const TOO_COMPLEX: &str = "its alternatives multiply: checking a small value could take minutes";

/// Keywords that judge an object as a whole.
const WHOLE: [&str; 11] = [
    "required",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "minProperties",
    "dependentRequired",
    "dependentSchemas",
];

/// Cheap to clone; all clones are the same schema.
#[derive(Clone)]
pub struct Schema {
    made: Arc<OnceLock<Made>>,
    /// For one that is made when it is first needed.
    make: Option<Arc<Make>>,
}

type Make = dyn Fn() -> Made + Send + Sync;

struct Made {
    json: Arc<Map<String, Json>>,
    /// None for what the host checks by its own argument types.
    validator: Option<Arc<jsonschema::Validator>>,
    defaults: Arc<Defaults>,
    /// Of somebody else's tool.
    foreign: bool,
}

impl Schema {
    /// Compile a JSON Schema of an object.
    pub fn compile(json: Map<String, Json>) -> Result<Schema> {
        let whole = Json::Object(json);
        if is_too_complex(&whole) {
            return Err(Problem::bad_script(format!("the schema is not valid: {TOO_COMPLEX}"))
                .hint("give each alternative a definition of its own, or fewer of them"));
        }
        let validator = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .with_pattern_options(pattern_options())
            .build(&whole)
            .map_err(|error| Problem::bad_script(format!("the schema is not valid: {error}")))?;
        let defaults = Defaults::of(&whole, 0)?;
        let Json::Object(json) = whole else { unreachable!("built from a map above") };
        Ok(Schema::ready(Made {
            json: Arc::new(json),
            validator: Some(Arc::new(validator)),
            defaults: Arc::new(defaults),
            foreign: false,
        }))
    }

    fn ready(made: Made) -> Schema {
        Schema { made: Arc::new(OnceLock::from(made)), make: None }
    }

    /// The schema of somebody else's tool, made when it is first needed: there
    /// may be thousands of which a few are called.
    pub fn deferred(make: impl Fn() -> Map<String, Json> + Send + Sync + 'static) -> Schema {
        Schema { made: Arc::default(), make: Some(Arc::new(move || Made::foreign(make()).0)) }
    }

    /// The same for one that only describes.
    pub fn deferred_description(
        make: impl Fn() -> Map<String, Json> + Send + Sync + 'static,
    ) -> Schema {
        Schema { made: Arc::default(), make: Some(Arc::new(move || Made::described(make()))) }
    }

    fn made(&self) -> &Made {
        self.made.get_or_init(|| match &self.make {
            Some(make) => make(),
            None => Made::described(Map::new()),
        })
    }

    /// What it says, without keeping that if nobody has needed it yet.
    pub fn outline(&self) -> Arc<Map<String, Json>> {
        match (self.made.get(), &self.make) {
            (None, Some(make)) => make().json,
            _ => self.json().clone(),
        }
    }

    /// A schema that describes arguments which typed code checks by itself.
    pub fn described(json: Map<String, Json>) -> Schema {
        Schema::ready(Made::described(json))
    }

    /// The schema of somebody else's tool: checked as far as it can be, changed
    /// in nothing. One that cannot be compiled only describes, and the Problem
    /// says why.
    pub fn foreign(json: Map<String, Json>) -> (Schema, Option<Problem>) {
        let (made, problem) = Made::foreign(json);
        (Schema::ready(made), problem)
    }

    /// The schema of a tool without parameters.
    pub fn empty() -> Schema {
        let json = json!({"type": "object", "properties": {}, "additionalProperties": false});
        let Json::Object(json) = json else { unreachable!("an object literal") };
        Schema::compile(json).unwrap_or_else(|_| Schema::described(Map::new()))
    }

    pub fn json(&self) -> &Arc<Map<String, Json>> {
        &self.made().json
    }

    /// Fill in defaults, then check; the Problem names every bad parameter.
    pub fn check(&self, mut args: Value) -> Result<Value> {
        self.check_in_place(&mut args).map(|()| args)
    }

    /// The same for whoever needs the arguments afterwards, fitting or not.
    pub fn check_in_place(&self, args: &mut Value) -> Result<()> {
        let made = self.made();
        if made.validator.is_none() {
            return Ok(());
        }
        if !matches!(args, Value::Object(_)) {
            return Err(Problem::bad_request(format!(
                "the parameters must be an object, got {}",
                args.kind()
            )));
        }
        made.defaults.fill(args);
        match self.violations(args, "parameter") {
            Ok(()) => Ok(()),
            // Many agents write null for what they leave out, and many servers
            // take it: one that does not will say so.
            Err(_) if made.foreign && self.violations(&without_nulls(args), "").is_ok() => Ok(()),
            Err(message) => Err(Problem::bad_request(message)),
        }
    }

    /// What is wrong with `value`, in words; `noun` is what its fields are called.
    pub fn violations(&self, value: &Value, noun: &str) -> Result<(), String> {
        let Some(validator) = &self.made().validator else { return Ok(()) };
        let json = value.to_json_lossy();
        if validator.is_valid(&json) {
            return Ok(());
        }
        let errors: Vec<String> =
            validator.iter_errors(&json).take(5).map(|error| self.describe(&error, noun)).collect();
        Err(errors.join("; "))
    }

    /// Whether each default would itself be accepted.
    pub fn check_defaults(&self) -> Result<(), String> {
        let mut filled = Value::Object(Object::new());
        self.made().defaults.fill(&mut filled);
        // What else there must be, beside those with defaults, is another matter.
        let mut lenient = (**self.json()).clone();
        lenient.retain(|keyword, _| !WHOLE.contains(&keyword.as_str()));
        match Schema::compile(lenient) {
            Ok(schema) => schema.violations(&filled, "parameter"),
            Err(problem) => Err(problem.message),
        }
    }

    /// The names of the parameters, for "did you mean".
    pub fn properties(&self) -> impl Iterator<Item = &str> {
        self.json()
            .get("properties")
            .and_then(Json::as_object)
            .into_iter()
            .flat_map(|properties| properties.keys().map(String::as_str))
    }

    fn describe(&self, error: &ValidationError<'_>, noun: &str) -> String {
        let path = dotted(error.instance_path().as_str());
        let at = if path.is_empty() { format!("the {noun}s") } else { format!("{noun} '{path}'") };
        let inside =
            |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                format!("missing required {noun}: {}", inside(property.as_str().unwrap_or("?")))
            }
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let names: Vec<String> = unexpected
                    .iter()
                    .take(5)
                    .map(|name| self.unknown(noun, &inside(name), name, path.is_empty()))
                    .collect();
                names.join("; ")
            }
            ValidationErrorKind::Type { kind } => {
                let expected = match kind {
                    TypeKind::Single(kind) => kind.to_string(),
                    TypeKind::Multiple(kinds) => {
                        let kinds: Vec<String> =
                            kinds.iter().map(|kind| kind.to_string()).collect();
                        kinds.join(" or ")
                    }
                };
                format!("{at} must be {expected}, got {}", kind_of(error.instance()))
            }
            ValidationErrorKind::Enum { options } => {
                let options: Vec<String> =
                    options.as_array().into_iter().flatten().map(plain).collect();
                format!(
                    "{at} must be one of {}, got {}",
                    options.join(", "),
                    plain(error.instance())
                )
            }
            ValidationErrorKind::Minimum { limit } => format!("{at} must be at least {limit}"),
            ValidationErrorKind::Maximum { limit } => format!("{at} must be at most {limit}"),
            ValidationErrorKind::Pattern { pattern } => format!("{at} must match {pattern}"),
            _ => format!("{at}: {}", shorten(&error.to_string())),
        }
    }

    fn unknown(&self, noun: &str, full: &str, name: &str, top: bool) -> String {
        let full = shorten(full);
        match nearest(name, self.properties()) {
            Some(known) if top => format!("unknown {noun}: {full} (did you mean {known}?)"),
            _ => format!("unknown {noun}: {full}"),
        }
    }
}

/// What every pattern of a schema may take: they meet whatever callers send.
fn pattern_options() -> PatternOptions<FancyRegex> {
    PatternOptions::fancy_regex()
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES)
        .backtrack_limit(MAX_PATTERN_BACKTRACKS)
}

impl Made {
    fn described(json: Map<String, Json>) -> Made {
        Made { json: Arc::new(json), validator: None, defaults: Arc::default(), foreign: false }
    }

    fn foreign(json: Map<String, Json>) -> (Made, Option<Problem>) {
        let whole = Json::Object(json);
        // The draft is whichever it names.
        let compiled = match depth_over(&whole, MAX_DEPTH) {
            true => Err(format!("it nests deeper than {MAX_DEPTH} levels")),
            false if is_too_complex(&whole) => Err(TOO_COMPLEX.to_owned()),
            false => jsonschema::options()
                .with_pattern_options(pattern_options())
                .build(&whole)
                .map_err(|error| error.to_string()),
        };
        let Json::Object(json) = whole else { unreachable!("built from a map above") };
        let (validator, problem) = match compiled {
            Ok(validator) => (Some(Arc::new(validator)), None),
            Err(why) => {
                let message = format!("its arguments are not checked: {}", shorten(&why));
                (None, Some(Problem::bad_script(message)))
            }
        };
        (Made { json: Arc::new(json), validator, defaults: Arc::default(), foreign: true }, problem)
    }
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Schema({:?})", self.outline())
    }
}

/// `/items/0/name` as `items[0].name`.
fn dotted(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() {
            path.push_str(&format!("[{part}]"));
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&part.replace("~1", "/").replace("~0", "~"));
        }
    }
    shorten(&path).into_owned()
}

fn kind_of(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(number) if number.is_f64() => "number",
        Json::Number(_) => "integer",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn plain(json: &Json) -> String {
    match json {
        Json::String(text) => shorten(text).into_owned(),
        other => shorten(&other.to_string()).into_owned(),
    }
}

/// The defaults of a schema, level by level.
#[derive(Default)]
struct Defaults {
    values: Vec<(String, Value)>,
    inside: Vec<(String, Defaults)>,
}

impl Defaults {
    fn of(schema: &Json, depth: usize) -> Result<Defaults> {
        let mut defaults = Defaults::default();
        let properties = schema.get("properties").and_then(Json::as_object);
        if depth > 16 {
            return Ok(defaults);
        }
        for (name, property) in properties.into_iter().flatten() {
            if let Some(default) = property.get("default") {
                defaults.values.push((name.clone(), Value::from_json(default.clone())?));
            }
            let inner = Defaults::of(property, depth + 1)?;
            if !inner.values.is_empty() || !inner.inside.is_empty() {
                defaults.inside.push((name.clone(), inner));
            }
        }
        Ok(defaults)
    }

    fn fill(&self, value: &mut Value) {
        let Value::Object(object) = value else { return };
        self.fill_object(object);
    }

    fn fill_object(&self, object: &mut Object) {
        for (name, default) in &self.values {
            if !object.contains_key(name) {
                object.insert(name.clone(), default.clone());
            }
        }
        for (name, inner) in &self.inside {
            if let Some(value) = object.get_mut(name) {
                inner.fill(value);
            }
        }
    }
}

fn without_nulls(args: &Value) -> Value {
    let Value::Object(fields) = args else { return args.clone() };
    let set = fields.iter().filter(|(_, value)| **value != Value::Null);
    Value::Object(set.map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// Whether `json` nests deeper than `left` levels.
fn depth_over(json: &Json, left: usize) -> bool {
    let deeper = |item: &Json| left == 0 || depth_over(item, left - 1);
    match json {
        Json::Array(items) => items.iter().any(deeper),
        Json::Object(fields) => fields.values().any(deeper),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: Json) -> String {
        let Json::Object(schema) = json!({
            "type": "object",
            "properties": {
                "title": {"type": "string"},
                "priority": {"type": "string", "enum": ["Low", "High"], "default": "Low"},
                "count": {"type": "integer", "minimum": 1},
                "ids": {"type": "array", "items": {"type": "integer"}},
                "opts": {"type": "object", "properties": {"deep": {"type": "boolean", "default": true}}},
            },
            "required": ["title"],
            "additionalProperties": false,
        }) else {
            unreachable!()
        };
        let schema = Schema::compile(schema).unwrap();
        match schema.check(Value::from_json(args).unwrap()) {
            Ok(value) => value.encode_json("args").unwrap(),
            Err(problem) => problem.message,
        }
    }

    #[test]
    fn a_default_is_judged_by_itself_not_by_what_must_be_beside_it() {
        let verdict = |default: Json| {
            let Json::Object(schema) = json!({
                "type": "object",
                "properties": {"via": {"type": "string", "default": default}, "to": {}},
                "allOf": [{"anyOf": [{"required": ["to"]}, {"required": ["phone"]}]}],
                "if": {"properties": {"via": {"const": "post"}}},
                "then": {"required": ["street"]},
            }) else {
                unreachable!()
            };
            Schema::compile(schema).unwrap().check_defaults()
        };
        assert_eq!(verdict(json!("post")), Ok(()));
        assert_eq!(
            verdict(json!(7)),
            Err("parameter 'via' must be string, got integer".to_owned())
        );
    }

    #[test]
    fn defaults_are_filled_in_and_problems_name_the_parameter() {
        for (args, expected) in [
            (json!({"title": "a"}), r#"{"title":"a","priority":"Low"}"#),
            (
                json!({"title": "a", "opts": {}}),
                r#"{"title":"a","opts":{"deep":true},"priority":"Low"}"#,
            ),
            (json!({}), "missing required parameter: title"),
            (json!({"title": 1}), "parameter 'title' must be string, got integer"),
            (
                json!({"title": "a", "priority": "Mid"}),
                "parameter 'priority' must be one of Low, High, got Mid",
            ),
            (json!({"title": "a", "count": 0}), "parameter 'count' must be at least 1"),
            (json!({"title": "a", "count": 1.5}), "parameter 'count' must be integer, got number"),
            (
                json!({"title": "a", "ids": [1, "x"]}),
                "parameter 'ids[1]' must be integer, got string",
            ),
            (
                json!({"titel": "a"}),
                "unknown parameter: titel (did you mean title?); missing required parameter: title",
            ),
            (json!({"title": "a", "zzz": 1}), "unknown parameter: zzz"),
            (json!([]), "the parameters must be an object, got array"),
        ] {
            assert_eq!(check(args), expected);
        }
    }

    #[test]
    fn a_reference_outside_the_schema_is_a_problem() {
        let Json::Object(schema) = json!({"$ref": "https://example.com/s.json"}) else {
            unreachable!()
        };
        assert!(
            Schema::compile(schema).unwrap_err().message.starts_with("the schema is not valid")
        );
    }
}
