use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::tool_body::ToolBody;
use moonlark_core::content::Content;
use moonlark_core::schema::Schema;
use moonlark_core::tool::Source;
use moonlark_core::value::{Object, Value};
use moonlark_render::luau::luau_type;

fn nobody() -> Caller {
    Caller::new("rest")
}

fn value(json: Json) -> Value {
    Value::from_json(json).unwrap()
}

/// The type of all of them, merged in this order.
fn merged(all: &[Json]) -> AnswerShape {
    let mut shapes = all.iter().map(|json| AnswerShape::from_value(&value(json.clone())));
    let mut first = shapes.next().unwrap();
    shapes.for_each(|shape| first.merge(shape));
    first
}

fn check(all: &[Json], expected: &str) {
    assert_eq!(luau_type(&merged(all).to_schema()), expected, "{all:?}");
}

fn tool(description: &str, input: Json) -> Tool {
    let source = Arc::new(Source { kind: SourceKind::Upstream, name: "files".into() });
    let Json::Object(input) = input else { panic!("a schema is an object") };
    let body = ToolBody::from_fn(|_, args| Ok(args));
    let mut tool = Tool::new("files__list", source, Schema::compile(input).unwrap(), body);
    tool.description = description.to_owned();
    tool
}

fn plain() -> Tool {
    tool("Lists.", json!({"type": "object", "properties": {"a": {}, "b": {}}}))
}

fn observe(learned: &LearnedShapes, tool: &Tool, json: Json) {
    learned.observe_answer(tool, &nobody(), &ToolAnswer::Value(value(json)));
}

fn drawn(learned: &LearnedShapes, tool: &Tool) -> Option<String> {
    learned.find_shape(tool, &nobody()).map(|shape| luau_type(&shape.to_schema()))
}

#[test]
fn answers_merge_into_one_type() {
    check(&[json!(1), json!(2)], "number");
    check(&[json!(1), json!("a"), json!(true)], "boolean | number | string");
    check(&[json!("a"), json!(null)], "string?");
    check(&[json!([]), json!([1]), json!(["a", null])], "{(number | string)?}");
    check(&[json!([])], "{any}");
    check(&[json!({})], "{ [string]: any }");
    check(
        &[json!({"id": 1, "tag": "a"}), json!({"id": 2}), json!({"id": 3, "tag": null, "n": []})],
        "{ id: number, tag: string?, n: {any}? }",
    );
    check(&[json!({"a": 1}), json!([{"b": 1}])], "{{ b: number }} | { a: number }");
}

#[test]
fn whole_numbers_stay_apart_from_others() {
    assert_eq!(merged(&[json!(1)]).to_schema(), json!({"type": "integer"}));
    assert_eq!(merged(&[json!(1), json!(1.5)]).to_schema(), json!({"type": "number"}));
}

#[test]
fn what_is_in_every_object_is_required() {
    assert_eq!(
        merged(&[json!({"a": 1, "b": "x"}), json!({"a": 2})]).to_schema(),
        json!({
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
            "required": ["a"],
        })
    );
}

#[test]
fn a_text_of_json_is_a_text_whose_content_is_known() {
    assert_eq!(
        merged(&[json!(r#"{"a": 1}"#), json!(r#" {"a": 2, "b": [true]} "#)]).to_schema(),
        json!({
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "array", "items": {"type": "boolean"}},
                },
                "required": ["a"],
            },
        })
    );
    // One that is no JSON, and nothing can be said.
    for other in ["{not json}", "plain", "12", "{\"a\": "] {
        let both = merged(&[json!(r#"{"a": 1}"#), json!(other)]);
        assert_eq!(both.to_schema(), json!({"type": "string"}), "{other}");
    }
    let long = format!("[{}1]", "1,".repeat(200_000));
    let long = merged(&[json!(long)]).to_schema();
    assert_eq!(long["contentSchema"], json!({}));
    // Only the answer itself is decoded for anybody.
    check(&[json!({"a": "[1]"})], "{ a: string }");
}

#[test]
fn names_that_are_data_are_not_kept() {
    let names = [
        "ada@example.com",
        "2024-05-01",
        "42",
        "/etc/passwd",
        "550e8400-e29b-41d4-a716-446655440000",
        "a name that is far too long to be that of a field",
        "https://example.com",
        "sk-1234567890",
        "",
        "one sentence. and then another. and.",
    ];
    for name in names {
        let shape = merged(&[json!({"kind": "x", name: 1})]);
        assert!(!format!("{shape:?}").contains(&format!("{name:?}")), "{name}");
        assert_eq!(luau_type(&shape.to_schema()), "{ kind: string, [string]: number }", "{name}");
    }
    for name in ["content-type", "@id", "$ref", "First Name", "utf8", "x.y", "_links", "größe"] {
        let shape = merged(&[json!({name: 1})]);
        assert!(format!("{shape:?}").contains(name), "{name}");
    }
}

#[test]
fn names_that_differ_every_time_are_keys_of_a_map() {
    let users =
        ["ada", "bob", "cy", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kim", "leo", "mia"];
    let each: Vec<Json> = users.iter().map(|user| json!({*user: {"age": 1}})).collect();
    check(&each, "{ [string]: { age: number } }");
    // As many fields that are always there are fields.
    let all: Object = users.iter().map(|user| ((*user).to_owned(), Value::from("x"))).collect();
    let all = Value::Object(all).to_json_lossy();
    assert!(luau_type(&merged(&[all.clone(), all]).to_schema()).contains("mia: string"));
    // Rare fields of different kinds are fields, too.
    let each: Vec<Json> = users
        .iter()
        .enumerate()
        .map(|(index, user)| if index % 2 == 0 { json!({*user: 1}) } else { json!({*user: "x"}) })
        .collect();
    assert!(luau_type(&merged(&each).to_schema()).contains("mia: number?"));
}

#[test]
fn with_too_many_names_all_are_keys() {
    let names = |range: std::ops::Range<u32>| -> Json {
        let fields = range.map(|n| (letters(n), json!(n)));
        Json::Object(fields.collect())
    };
    check(&[names(0..65)], "{ [string]: number }");
    check(&[names(0..40), names(30..70)], "{ [string]: number }");
    check(&[names(0..10_000), json!({"id": "x"})], "{ [string]: number | string }");
}

#[test]
fn the_order_of_answers_does_not_matter() {
    let mut random = Random(7);
    for round in 0..200 {
        let answers: Vec<Json> = (0..6).map(|_| random.value(0)).collect();
        let shape = merged(&answers);
        let mut shuffled = answers.clone();
        for index in (1..shuffled.len()).rev() {
            shuffled.swap(index, random.below(index + 1));
        }
        assert_eq!(merged(&shuffled), shape, "{round}: {answers:?}");
        // Nor how they are grouped.
        let (left, right) = answers.split_at(1 + random.below(answers.len() - 1));
        let mut grouped = merged(left);
        grouped.merge(merged(right));
        assert_eq!(grouped, shape, "{round}: {answers:?}");
        // And what was learned of all is true of each.
        let schema = Schema::compile(shape.to_schema().as_object().unwrap().clone()).unwrap();
        for answer in &answers {
            assert_eq!(schema.find_violations(&value(answer.clone()), "field"), Ok(()), "{answer}");
        }
    }
}

#[test]
fn seeing_the_same_again_changes_nothing_but_the_count() {
    let mut random = Random(11);
    for _ in 0..100 {
        let answer = random.value(0);
        let (once, twice) =
            (merged(std::slice::from_ref(&answer)), merged(&[answer.clone(), answer.clone()]));
        assert_eq!(once.to_schema(), twice.to_schema(), "{answer}");
        assert_eq!((once.calls(), twice.calls()), (1, 2));
    }
}

#[test]
fn hostile_answers_make_small_shapes() {
    let mut deep = Value::Null;
    for _ in 0..120 {
        deep = Value::from_fields([("below", deep)]);
    }
    let wide: Object = (0..50_000).map(|n| (letters(n), Value::Int(1))).collect();
    let mut bushy = Value::Int(1);
    for _ in 0..5 {
        let fields: Object = (0..12).map(|n| (letters(n), bushy.clone())).collect();
        bushy = Value::Object(fields);
    }
    let long: Vec<Value> = (0..50_000).map(|_| Value::from_fields([("a", "x".into())])).collect();
    for (name, hostile) in
        [("deep", deep), ("wide", wide.into()), ("bushy", bushy), ("long", long.into())]
    {
        let mut shape = AnswerShape::from_value(&hostile);
        shape.merge(AnswerShape::from_value(&hostile));
        assert!(shape.approx_bytes() < 30_000, "{name}: {}", shape.approx_bytes());
        assert!(luau_type(&shape.to_schema()).len() < 30_000, "{name}");
    }
}

#[test]
fn ever_fewer_answers_are_looked_at() {
    let learned = LearnedShapes::default();
    let tool = plain();
    (0..1000).for_each(|_| observe(&learned, &tool, json!({"a": 1})));
    // Twenty, then 32, 64, 128, 256 and 512.
    assert_eq!(learned.find_shape(&tool, &nobody()).unwrap().calls(), 25);
}

#[test]
fn a_tool_that_says_what_it_answers_is_not_observed() {
    let learned = LearnedShapes::default();
    let mut declared = plain();
    declared.output = Some(Schema::without_parameters());
    observe(&learned, &declared, json!(1));
    assert!(
        learned.find_shape(&declared, &nobody()).is_none()
            && learned.find_shape(&plain(), &nobody()).is_none()
    );
    let mut builtin = plain();
    builtin.source = Arc::new(Source { kind: SourceKind::Builtin, name: "moonlark".into() });
    observe(&learned, &builtin, json!(1));
    assert!(learned.find_shape(&builtin, &nobody()).is_none());
    learned.observe_answer(&plain(), &nobody(), &ToolAnswer::Raw(Object::new()));
    assert!(learned.find_shape(&plain(), &nobody()).is_none());
}

#[test]
fn a_tool_whose_definition_changed_starts_anew() {
    let learned = LearnedShapes::default();
    observe(&learned, &plain(), json!({"a": 1}));
    assert_eq!(drawn(&learned, &plain()).as_deref(), Some("{ a: number }"));
    // The same with its fields in another order.
    let same = tool("Lists.", json!({"properties": {"b": {}, "a": {}}, "type": "object"}));
    assert!(drawn(&learned, &same).is_some());
    let described = tool("Lists all.", (**plain().input.json()).clone().into());
    let reshaped = tool("Lists.", json!({"type": "object", "properties": {"a": {}}}));
    for changed in [described, reshaped] {
        assert_eq!(drawn(&learned, &changed), None);
    }
    let changed = tool("Lists all.", json!({"type": "object"}));
    observe(&learned, &changed, json!([true]));
    assert_eq!(drawn(&learned, &changed).as_deref(), Some("{boolean}"));
    assert_eq!(drawn(&learned, &plain()), None);
}

#[test]
fn content_is_learned_as_scripts_see_it() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
    let blob = json!({"type": "resource", "resource": {"uri": "a:b", "blob": "aGk="}});
    for (blocks, structured, expected) in [
        (json!([text("a")]), None, "string"),
        (json!([text("a"), text("{}")]), None, "{string}"),
        (json!([]), None, "{any}"),
        (json!([text("a")]), Some(json!({"n": 1})), "{ n: number }"),
        (json!([image]), None, "{ type: string, mimeType: string, size: number, handle: string }"),
        (
            json!([blob]),
            None,
            "{ type: string, resource: { uri: string, size: number, handle: string } }",
        ),
    ] {
        let learned = LearnedShapes::default();
        let Value::Array(blocks) = value(blocks) else { panic!("blocks are a list") };
        let structured = structured.map(value);
        let content = Content { blocks, structured, extra: Object::new() };
        learned.observe_answer(&plain(), &nobody(), &ToolAnswer::Content(content));
        assert_eq!(drawn(&learned, &plain()).as_deref(), Some(expected));
    }
}

#[test]
fn what_was_learned_survives_as_text() {
    let learned = LearnedShapes::default();
    let mut random = Random(3);
    (0..10).for_each(|_| observe(&learned, &plain(), random.value(0)));
    let text = learned.export_json().to_string();
    let again = LearnedShapes::default();
    again.import_json(text.as_bytes()).unwrap();
    assert_eq!(again.find_shape(&plain(), &nobody()), learned.find_shape(&plain(), &nobody()));
    assert_eq!(again.export_json(), learned.export_json());
}

#[test]
fn of_two_that_learned_the_better_informed_is_believed() {
    let (few, more) = (LearnedShapes::default(), LearnedShapes::default());
    observe(&few, &plain(), json!(1));
    observe(&more, &plain(), json!("a"));
    observe(&more, &plain(), json!("b"));
    few.import_json(more.export_json().to_string().as_bytes()).unwrap();
    assert_eq!(drawn(&few, &plain()).as_deref(), Some("string"));
    let one = LearnedShapes::default();
    observe(&one, &plain(), json!(1));
    more.import_json(one.export_json().to_string().as_bytes()).unwrap();
    assert_eq!(drawn(&more, &plain()).as_deref(), Some("string"));
}

#[test]
fn only_what_is_observed_is_news() {
    let learned = LearnedShapes::default();
    let mut changes = learned.subscribe_to_changes();
    learned.import_json(br#"{"version": 2, "callers": {}}"#).unwrap();
    assert!(!changes.has_changed().unwrap());
    observe(&learned, &plain(), json!(1));
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
}

#[test]
fn a_file_that_is_none_of_ours_is_a_problem() {
    let import =
        |text: &str| LearnedShapes::default().import_json(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        import(r#"{"version": 9, "callers": {}}"#),
        "error[bad_config]: no learned shapes: version 9 is not 2"
    );
    let deep = format!(
        r#"{{"version":2,"callers":{{"":{{"a":{{"definition":"","shape":{{"calls":1,"depth":8,"form":{}"#,
        r#"{"list":"#.repeat(100_000)
    );
    for broken in ["", "[]", "{", r#"{"version": 1}"#, &deep] {
        assert!(
            import(broken).starts_with("error[bad_config]: no learned shapes: "),
            "{broken:.40}"
        );
    }
}

#[test]
fn a_file_that_holds_more_than_we_would_is_cut_down() {
    let fields: serde_json::Map<String, Json> =
        (0..500).map(|n| (letters(n), json!({"seen": 1, "form": {"text": true}}))).collect();
    let mut form = json!({"object": {"seen": 1, "known": fields}});
    for _ in 0..30 {
        form = json!({"list": form});
    }
    let wide =
        json!({"object": {"seen": 1, "known": {"1234@x": {"seen": 1, "form": {"null": true}}}}});
    let shape = |form: Json| json!({"calls": 1, "depth": 4_000_000, "form": form});
    let kept = json!({"version": 2, "callers": {"": {
        "a": {"definition": "", "shape": shape(form)},
        "b": {"definition": "", "shape": shape(wide)},
    }}});
    let learned = LearnedShapes::default();
    learned.import_json(kept.to_string().as_bytes()).unwrap();
    let text = learned.export_json().to_string();
    assert!(text.len() < 1000, "{text}");
    assert!(!text.contains("1234@x"), "{text}");
}

#[test]
fn all_shapes_together_are_bounded() {
    let learned = LearnedShapes::default();
    let fields: serde_json::Map<String, Json> = (0..60).map(|n| (letters(n), json!(n))).collect();
    let named = |name: String| {
        let mut tool = plain();
        tool.name = name;
        tool
    };
    let first = named("first".to_owned());
    observe(&learned, &first, Json::Object(fields.clone()));
    for index in 0..500 {
        observe(&learned, &named(format!("tool_{index}")), Json::Object(fields.clone()));
        // Whoever is asked for stays.
        assert!(learned.find_shape(&first, &nobody()).is_some());
    }
    assert!(learned.find_shape(&named("tool_0".to_owned()), &nobody()).is_none());
    assert!(learned.find_shape(&named("tool_499".to_owned()), &nobody()).is_some());
    let store = learned.store.lock();
    assert!(store.bytes <= MAX_SHAPES_BYTES);
    assert_eq!(store.bytes, store.tools.values().map(|entry| entry.bytes).sum::<usize>());
}

/// A name without digits, for each number another.
fn letters(number: u32) -> String {
    number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect()
}

/// The same values on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }

    fn value(&mut self, depth: usize) -> Json {
        let kinds = if depth < 4 { 9 } else { 6 };
        match self.below(kinds) {
            0 => Json::Null,
            1 => json!(true),
            2 => json!(3),
            3 => json!(2.5),
            4 => json!("text"),
            5 => json!("[1]"),
            6 => (0..self.below(4)).map(|_| self.value(depth + 1)).collect(),
            _ => {
                let names = ["a", "b", "c", "d", "2024-01-01", "x@y"];
                let fields = (0..self.below(6))
                    .map(|_| (names[self.below(names.len())].to_owned(), self.value(depth + 1)));
                Json::Object(fields.collect())
            }
        }
    }
}

#[test]
fn what_one_caller_taught_is_not_shown_to_another() {
    let learned = LearnedShapes::default();
    let (alice, bob) = (nobody().with_name("alice"), nobody().with_name("bob"));
    let tool = plain();
    for _ in 0..50 {
        let answer = ToolAnswer::Value(value(json!({"alice_private_project": 1})));
        learned.observe_answer(&tool, &alice, &answer);
    }
    assert!(learned.find_shape(&tool, &alice).is_some());
    assert!(
        learned.find_shape(&tool, &bob).is_none() && learned.find_shape(&tool, &nobody()).is_none()
    );
    // Late as it is, the first answers to somebody else are looked at.
    learned.observe_answer(&tool, &bob, &ToolAnswer::Value(value(json!({"own": true}))));
    let bobs =
        |learned: &LearnedShapes| luau_type(&learned.find_shape(&tool, &bob).unwrap().to_schema());
    assert_eq!(bobs(&learned), "{ own: boolean }");
    let again = LearnedShapes::default();
    again.import_json(learned.export_json().to_string().as_bytes()).unwrap();
    assert_eq!(bobs(&again), "{ own: boolean }");
    assert!(again.find_shape(&tool, &nobody()).is_none());
    // What was learned before callers were told apart is not taken.
    let old = json!({"version": 1, "tools": {}}).to_string();
    assert!(again.import_json(old.as_bytes()).is_err());
}

#[test]
fn one_caller_does_not_push_out_what_others_taught() {
    let learned = LearnedShapes::default();
    let (alice, bob) = (nobody().with_name("alice"), nobody().with_name("bob"));
    let fields: serde_json::Map<String, Json> =
        (0..40).map(|it| (format!("field_{it}"), json!(it))).collect();
    let answer = ToolAnswer::Value(value(Json::Object(fields)));
    let tool = |index: usize| {
        let mut tool = plain();
        tool.name = format!("tool_{index}");
        tool
    };
    learned.observe_answer(&tool(0), &alice, &answer);
    (0..2000).for_each(|index| learned.observe_answer(&tool(index), &bob, &answer));
    assert!(learned.find_shape(&tool(0), &alice).is_some());
    assert!(
        learned.find_shape(&tool(0), &bob).is_none()
            && learned.find_shape(&tool(1999), &bob).is_some()
    );
}
