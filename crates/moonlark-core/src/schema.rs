//! Input and output schemas: compiled once, checked on every call.
//!
//! A schema never fetches anything: a `$ref` that leaves the document is a
//! Problem when the tool loads.

mod absent_nulls;
mod compiled;
mod complexity;
mod error_work;
mod explanation;
mod plain_schema;
mod references;
mod refused_nulls;
mod step_budget;

pub(crate) use explanation::json_type_name;
pub(crate) use references::place_references;
pub use references::{SchemaNode, find_referenced_json, referenced_name, resolve_reference};

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value as Json, json};

use self::absent_nulls::{remove_absent_nulls, without_nullable};
use self::compiled::CompiledSchema;
use self::explanation::MisfitExplainer;
use self::plain_schema::{fits_plain, is_plain_schema};
use self::refused_nulls::{find_refused_nulls, remove_fields};
use self::step_budget::SchemaVerdict;
use crate::problem::{Problem, Result};
use crate::value::{MAX_VALUE_DEPTH, Object, Value, shorten_text};

/// Searches for refused nulls in the same arguments: some are found only after others were
/// removed.
const MAX_NULL_SEARCHES: usize = 4;
/// Keywords that judge an object as a whole.
const WHOLE_OBJECT_KEYWORDS: [&str; 11] = [
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
    made: Arc<OnceLock<MadeSchema>>,
    /// For one that is made when it is first needed.
    make: Option<Arc<SchemaMaker>>,
}

type SchemaMaker = dyn Fn() -> MadeSchema + Send + Sync;

struct MadeSchema {
    json: Arc<Map<String, Json>>,
    validator: SchemaValidator,
    defaults: Arc<SchemaDefaults>,
}

/// What values are checked with.
enum SchemaValidator {
    /// Nothing: the host checks them by its own argument types.
    Absent,
    Compiled(CompiledSchema),
    /// A few comparisons, where those are enough. The schema is known to compile, which is
    /// done for the first value that may not fit.
    Deferred(OnceLock<Result<CompiledSchema, String>>),
}

impl Schema {
    /// A JSON Schema of an object, compiled at once or known to compile.
    pub fn compile(json: Map<String, Json>) -> Result<Schema> {
        let whole = Json::Object(with_placed_references(json));
        let validator = if is_plain_schema(&whole) {
            SchemaValidator::Deferred(OnceLock::new())
        } else {
            CompiledSchema::compile(&whole, Some(jsonschema::Draft::Draft202012))
                .map(SchemaValidator::Compiled)
                .map_err(|why| Problem::bad_script(format!("the schema is not valid: {why}")))?
        };
        let defaults = SchemaDefaults::from_schema(&whole, 0)?;
        Ok(Schema::from_made(MadeSchema {
            json: Arc::new(into_fields(whole)),
            validator,
            defaults: Arc::new(defaults),
        }))
    }

    /// The schema of a tool of our own, which is known to compile.
    pub fn of_builtin_tool(json: Map<String, Json>) -> Result<Schema> {
        let whole = Json::Object(with_placed_references(json));
        let defaults = Arc::new(SchemaDefaults::from_schema(&whole, 0)?);
        let validator = SchemaValidator::Deferred(OnceLock::new());
        let json = Arc::new(into_fields(whole));
        Ok(Schema::from_made(MadeSchema { json, validator, defaults }))
    }

    fn from_made(made: MadeSchema) -> Schema {
        Schema { made: Arc::new(OnceLock::from(made)), make: None }
    }

    /// The schema of somebody else's tool, made when it is first needed: there
    /// may be thousands of which a few are called.
    pub fn deferred_foreign(
        make: impl Fn() -> Map<String, Json> + Send + Sync + 'static,
    ) -> Schema {
        Schema {
            made: Arc::default(),
            make: Some(Arc::new(move || MadeSchema::from_foreign(make()).0)),
        }
    }

    /// The same for one that only describes.
    pub fn deferred_description(
        make: impl Fn() -> Map<String, Json> + Send + Sync + 'static,
    ) -> Schema {
        Schema {
            made: Arc::default(),
            make: Some(Arc::new(move || MadeSchema::description_only(make()))),
        }
    }

    fn get_or_make(&self) -> &MadeSchema {
        self.made.get_or_init(|| match &self.make {
            Some(make) => make(),
            None => MadeSchema::description_only(Map::new()),
        })
    }

    /// What it says, without keeping that if nobody has needed it yet.
    pub fn peek_json(&self) -> Arc<Map<String, Json>> {
        match (self.made.get(), &self.make) {
            (None, Some(make)) => make().json,
            _ => self.json().clone(),
        }
    }

    /// A schema that describes arguments which typed code checks by itself.
    pub fn description_only(json: Map<String, Json>) -> Schema {
        Schema::from_made(MadeSchema::description_only(json))
    }

    /// The schema of somebody else's tool: checked as far as it can be, and the same but for
    /// the spelling of references. One that cannot be compiled only describes, and the
    /// Problem says why.
    pub fn from_foreign(json: Map<String, Json>) -> (Schema, Option<Problem>) {
        let (made, problem) = MadeSchema::from_foreign(json);
        (Schema::from_made(made), problem)
    }

    /// The schema of a tool without parameters.
    pub fn without_parameters() -> Schema {
        let json = json!({"type": "object", "properties": {}, "additionalProperties": false});
        Schema::compile(into_fields(json)).unwrap_or_else(|_| Schema::description_only(Map::new()))
    }

    pub fn json(&self) -> &Arc<Map<String, Json>> {
        &self.get_or_make().json
    }

    /// Fill in defaults, then check; the Problem names every bad parameter.
    pub fn check_arguments(&self, mut args: Value) -> Result<Value> {
        self.check_arguments_in_place(&mut args).map(|()| args)
    }

    /// The same for whoever needs the arguments afterwards, fitting or not.
    pub fn check_arguments_in_place(&self, args: &mut Value) -> Result<()> {
        let made = self.get_or_make();
        if matches!(made.validator, SchemaValidator::Absent) {
            return Ok(());
        }
        if !matches!(args, Value::Object(_)) {
            return Err(Problem::bad_request(format!(
                "the parameters must be an object, got {}",
                args.kind()
            )));
        }
        // What a null stands in for has its default, as if nothing were given.
        remove_absent_nulls(&made.json, args);
        made.defaults.fill_value(args);
        let judged = without_nullable(&made.json, args);
        let Err(why) = self.find_violations(judged.as_ref().unwrap_or(args), "parameter") else {
            return Ok(());
        };
        *args = made.without_refused_nulls(args).ok_or_else(|| Problem::bad_request(why))?;
        Ok(())
    }

    /// What is wrong with `value`, in words; `noun` is what its fields are called.
    pub fn find_violations(&self, value: &Value, noun: &str) -> Result<(), String> {
        let made = self.get_or_make();
        if matches!(made.validator, SchemaValidator::Absent) {
            return Ok(());
        }
        let json = value.to_json_lossy();
        if matches!(made.validator, SchemaValidator::Deferred(_)) && fits_plain(&made.json, &json) {
            return Ok(());
        }
        let Some(compiled) = made.compiled() else { return Ok(()) };
        let compiled = compiled.map_err(|why| format!("the {noun}s cannot be checked: {why}"))?;
        match compiled.check_value(&json) {
            SchemaVerdict::Fits => Ok(()),
            SchemaVerdict::DoesNotFit => {
                Err(MisfitExplainer { schema: &made.json, compiled, noun }.explain_misfit(&json))
            }
            SchemaVerdict::OutOfSteps => Err(format!(
                "the {noun}s cannot be checked: the alternatives of the schema multiply, and a value like this takes too many steps"
            )),
        }
    }

    /// Whether each default would itself be accepted.
    pub fn check_defaults(&self) -> Result<(), String> {
        let made = self.get_or_make();
        if made.defaults.is_empty() && matches!(made.validator, SchemaValidator::Deferred(_)) {
            return Ok(());
        }
        let mut filled = Value::Object(Object::new());
        made.defaults.fill_value(&mut filled);
        // What else there must be, beside those with defaults, is another matter.
        let mut lenient = (**self.json()).clone();
        lenient.retain(|keyword, _| !WHOLE_OBJECT_KEYWORDS.contains(&keyword.as_str()));
        match Schema::compile(lenient) {
            Ok(schema) => schema.find_violations(&filled, "parameter"),
            Err(problem) => Err(problem.message),
        }
    }

    /// The names of the parameters.
    pub fn parameter_names(&self) -> impl Iterator<Item = &str> {
        property_names(self.json())
    }
}

/// The names that an object of this schema must have.
pub fn required_names(schema: &Map<String, Json>) -> impl Iterator<Item = &str> {
    let required = schema.get("required").and_then(Json::as_array);
    required.into_iter().flatten().filter_map(Json::as_str)
}

/// The names that an object of this schema may have, as far as it lists them.
pub fn property_names(schema: &Map<String, Json>) -> impl Iterator<Item = &str> {
    let properties = schema.get("properties").and_then(Json::as_object);
    properties.into_iter().flat_map(|properties| properties.keys().map(String::as_str))
}

/// A JSON object as its fields.
pub(crate) fn into_fields(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn with_placed_references(json: Map<String, Json>) -> Map<String, Json> {
    place_references(&json).unwrap_or(json)
}

impl MadeSchema {
    fn description_only(json: Map<String, Json>) -> MadeSchema {
        let json = Arc::new(with_placed_references(json));
        MadeSchema { json, validator: SchemaValidator::Absent, defaults: Arc::default() }
    }

    /// What values are checked with, if they are: compiled now if it has not been.
    fn compiled(&self) -> Option<Result<&CompiledSchema, &str>> {
        match &self.validator {
            SchemaValidator::Absent => None,
            SchemaValidator::Compiled(compiled) => Some(Ok(compiled)),
            SchemaValidator::Deferred(compiled) => {
                let compile = || {
                    let whole = Json::Object(Map::clone(&self.json));
                    CompiledSchema::compile(&whole, Some(jsonschema::Draft::Draft202012))
                };
                Some(compiled.get_or_init(compile).as_ref().map_err(String::as_str))
            }
        }
    }

    fn from_foreign(json: Map<String, Json>) -> (MadeSchema, Option<Problem>) {
        let whole = Json::Object(with_placed_references(json));
        // The draft is whichever it names.
        let compiled = if nests_deeper_than(&whole, MAX_VALUE_DEPTH) {
            Err(format!("it nests deeper than {MAX_VALUE_DEPTH} levels"))
        } else {
            compile_by_any_draft(&whole)
        };
        let (validator, problem) = match compiled {
            Ok(compiled) => (SchemaValidator::Compiled(compiled), None),
            Err(why) => {
                let message = format!("its arguments are not checked: {}", shorten_text(&why));
                (SchemaValidator::Absent, Some(Problem::bad_script(message)))
            }
        };
        let json = Arc::new(into_fields(whole));
        (MadeSchema { json, validator, defaults: Arc::default() }, problem)
    }

    /// The arguments without the nulls that their schemas refuse, if they fit then.
    fn without_refused_nulls(&self, args: &Value) -> Option<Value> {
        let compiled = self.compiled()?.ok()?;
        let mut rest = args.clone();
        for _ in 0..MAX_NULL_SEARCHES {
            let judged = without_nullable(&self.json, &rest);
            let json = judged.as_ref().unwrap_or(&rest).to_json_lossy();
            remove_fields(&mut rest, &find_refused_nulls(&self.json, compiled, &json)?);
            self.defaults.fill_value(&mut rest);
            let judged = without_nullable(&self.json, &rest);
            let json = judged.as_ref().unwrap_or(&rest).to_json_lossy();
            if compiled.check_value(&json) == SchemaVerdict::Fits {
                return Some(rest);
            }
        }
        None
    }
}

/// Old servers leave out which draft they write: it is the first that takes the schema.
fn compile_by_any_draft(schema: &Json) -> Result<CompiledSchema, String> {
    let compiled = CompiledSchema::compile(schema, None);
    if compiled.is_ok() || schema.get("$schema").is_some() {
        return compiled;
    }
    let older = [jsonschema::Draft::Draft7, jsonschema::Draft::Draft4];
    let mut older = older.into_iter().map(|draft| CompiledSchema::compile(schema, Some(draft)));
    older.find_map(Result::ok).map_or(compiled, Ok)
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Schema({:?})", self.peek_json())
    }
}

/// The defaults of a schema, level by level.
#[derive(Default)]
struct SchemaDefaults {
    values: Vec<(String, Value)>,
    inside: Vec<(String, SchemaDefaults)>,
}

impl SchemaDefaults {
    fn from_schema(schema: &Json, depth: usize) -> Result<SchemaDefaults> {
        let mut defaults = SchemaDefaults::default();
        let properties = schema.get("properties").and_then(Json::as_object);
        if depth > 16 {
            return Ok(defaults);
        }
        for (name, property) in properties.into_iter().flatten() {
            if let Some(default) = property.get("default") {
                defaults.values.push((name.clone(), Value::from_json(default.clone())?));
            }
            let inner = SchemaDefaults::from_schema(property, depth + 1)?;
            if !inner.is_empty() {
                defaults.inside.push((name.clone(), inner));
            }
        }
        Ok(defaults)
    }

    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.inside.is_empty()
    }

    fn fill_value(&self, value: &mut Value) {
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
                inner.fill_value(value);
            }
        }
    }
}

/// Whether `json` nests deeper than `left` levels.
fn nests_deeper_than(json: &Json, left: usize) -> bool {
    let deeper = |item: &Json| left == 0 || nests_deeper_than(item, left - 1);
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
        match schema.check_arguments(Value::from_json(args).unwrap()) {
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

    fn object(json: Json) -> Map<String, Json> {
        let Json::Object(fields) = json else { unreachable!("an object literal") };
        fields
    }

    #[test]
    fn a_value_beyond_a_limit_is_told_the_limit_however_long_it_is() {
        let verdict = |schema: Json, value: Json| {
            let properties = json!({"type": "object", "properties": {"a": schema}});
            let schema = Schema::compile(object(properties)).unwrap();
            let args = Value::from_json(json!({"a": value})).unwrap();
            schema.check_arguments(args).unwrap_err().message
        };
        let long = "list refund ".repeat(3_000);
        for (schema, value, expected) in [
            (
                json!({"maxLength": 10_000}),
                json!(long),
                "must have at most 10000 characters, has 36000",
            ),
            (json!({"minLength": 1}), json!(""), "must have at least 1 character, has 0"),
            (json!({"maxItems": 1}), json!([1, 2]), "must have at most 1 item, has 2"),
            (json!({"minItems": 2}), json!([1]), "must have at least 2 items, has 1"),
            (json!({"uniqueItems": true}), json!([1, 1]), "must not have an item twice"),
            (json!({"multipleOf": 5}), json!(7), "must be a multiple of 5, got 7"),
            (json!({"exclusiveMinimum": 0}), json!(0), "must be more than 0, got 0"),
            (json!({"exclusiveMaximum": 9}), json!(10), "must be less than 9, got 10"),
            (json!({"const": "yes"}), json!("no"), "must be yes, got no"),
        ] {
            assert_eq!(verdict(schema, value), format!("parameter 'a' {expected}"));
        }
        let reason = verdict(json!({"not": {"type": "string"}}), json!(long));
        assert!(reason.starts_with("parameter 'a': ") && !reason.contains("refund"), "{reason}");
    }

    #[test]
    fn a_recursive_schema_says_where_a_small_value_is_wrong_and_ends_for_any_other() {
        let part = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/t"}}});
        let (schema, problem) = Schema::from_foreign(object(json!({
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/t"}, "n": {"type": "integer"}},
            "$defs": {"t": {"anyOf": [part.clone(), part, {"type": "string", "minLength": 3}]}},
        })));
        assert!(problem.is_none());
        let verdict = |args: Json| match schema.check_arguments(Value::from_json(args).unwrap()) {
            Ok(_) => "fits".to_owned(),
            Err(problem) => problem.message,
        };
        let nested =
            |levels: usize| (0..levels).fold(json!("no"), |value, _| json!({ "a": value }));
        assert_eq!(verdict(json!({"tree": {"a": "yes"}})), "fits");
        assert_eq!(verdict(json!({"n": "x"})), "parameter 'n' must be integer, got string");
        assert_eq!(
            verdict(json!({"tree": nested(100), "n": "x"})),
            "parameter 'tree' does not fit its schema; parameter 'n' does not fit its schema"
        );
    }

    #[test]
    fn a_large_value_that_does_not_fit_is_explained_in_few_words_and_little_memory() {
        let rows = |bad: Json| {
            let mut rows: Vec<Json> = (0..200_000).map(|n| json!(n)).collect();
            rows[150_000] = bad;
            json!({"rows": rows})
        };
        let check = |items: Json, args: Json| {
            let schema = json!({"type": "object", "properties": {"rows": {"type": "array", "items": items}}});
            let schema = Schema::compile(object(schema)).unwrap();
            schema.check_arguments(Value::from_json(args).unwrap()).unwrap_err().message
        };
        assert_eq!(
            check(json!({"type": "integer"}), rows(json!("x"))),
            "parameter 'rows[150000]' must be integer, got string"
        );
        // A list of all errors would have 200,000 lines.
        assert_eq!(
            check(json!({"type": "string"}), rows(json!("x"))),
            "parameter 'rows[0]' must be string, got integer"
        );
        assert_eq!(
            check(json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), rows(json!("x"))),
            "parameter 'rows' does not fit its schema"
        );
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
