use std::sync::Arc;

use serde_json::json;

use super::*;
use moonlark_core::schema::Schema;
use moonlark_core::sdk::Sdk;
use moonlark_core::tool::{Source, SourceKind, Tool};
use moonlark_core::tool_body::SealedBody;

fn sdk(tools: &[(&str, Json, Option<Json>)]) -> Sdk {
    let tool = |(name, input, output): &(&str, Json, Option<Json>)| {
        let (source, _) = name.split_once('.').unwrap();
        let source = Arc::new(Source { kind: SourceKind::Upstream, name: source.to_owned() });
        let schema = |json: &Json| Schema::description_only(json.as_object().unwrap().clone());
        let body = SealedBody::empty();
        let mut tool = Tool::new(*name, source, schema(input), body);
        tool.description = "What it does.\n\nAnd more.".to_owned();
        tool.output = output.as_ref().map(schema);
        Arc::new(tool)
    };
    Sdk::new(&tools.iter().map(tool).collect::<Vec<_>>())
}

fn docs(input: Json, output: Option<Json>) -> SdkFunctionDocs {
    let sdk = sdk(&[("s.f", input, output)]);
    let source = &sdk.sources()[0];
    sdk_function_docs(source, &source.functions[0], None)
}

#[track_caller]
fn check(input: Json, expected: &str) {
    assert_eq!(docs(input, None).signature, format!("function sdk.s.f({expected}): any"));
}

#[test]
fn arguments_are_one_table_that_is_optional_when_nothing_is_required() {
    check(json!({"type": "object"}), "args: { [string]: any }?");
    check(json!({"type": "object", "properties": {}}), "");
    check(json!({"type": "object", "properties": {}, "additionalProperties": false}), "");
    check(json!({}), "args: any");
    check(
        json!({"type": "object", "properties": {"path": {"type": "string"}, "head": {"type": "integer"}},
            "required": ["path"]}),
        "args: { path: string, head: number? }",
    );
    check(
        json!({"type": "object", "properties": {"a-b": {"enum": ["x", "y"]}}}),
        "args: { [\"a-b\"]: (\"x\" | \"y\")? }?",
    );
}

#[test]
fn choices_and_parts_are_drawn_as_tables() {
    check(
        json!({"allOf": [
            {"$ref": "#/$defs/Base"},
            {"properties": {"b": {"type": "number"}}, "required": ["b"]},
        ], "$defs": {"Base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}}),
        "args: { a: string, b: number }",
    );
    check(
        json!({"type": "object", "properties": {"to": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"type": "null"}]}}}),
        "args: { to: (string | {string})? }?",
    );
    check(
        json!({"type": "object", "properties": {"id": {"type": ["string", "integer"]}}, "patternProperties": {"^x-": {}}}),
        "args: { id: (string | number)?, [string]: any }?",
    );
}

#[test]
fn definitions_become_named_types_with_all_they_refer_to() {
    let text = docs(
        json!({
            "type": "object",
            "properties": {
                "pet": {"$ref": "#/$defs/NewPet"},
                "id": {"$ref": "#/$defs/Id"},
                "limit": {"type": "integer", "default": 10, "minimum": 1, "maximum": 50,
                    "description": "How many\n  at most."},
            },
            "required": ["pet"],
            "$defs": {
                "Id": {"type": "string"},
                "NewPet": {"type": "object", "properties": {
                    "name": {"type": "string", "description": "Its name."},
                    "tag": {"$ref": "#/$defs/pet_tag"},
                    "parent": {"$ref": "#/$defs/NewPet"},
                }, "required": ["name"]},
                "pet_tag": {"enum": ["good", "bad"]},
                "Unused": {"type": "object"},
            },
        }),
        Some(json!({"type": "object", "properties": {"items": {"type": "array", "items": {"$ref": "#/definitions/Pet"}}},
            "definitions": {"Pet": {"type": "object", "properties": {"id": {"type": "number"}}}}})),
    )
    .to_text();
    assert_eq!(
        text,
        "\
-- What it does.
--
-- And more.
-- @param limit - How many at most. (default 10, 1 to 50)
function sdk.s.f(args: { pet: NewPet, id: string?, limit: number? }): { items: {Pet}? }

export type NewPet = {
    name: string, -- Its name.
    tag: PetTag?,
    parent: NewPet?,
}

export type PetTag = \"good\" | \"bad\"

export type Pet = {
    id: number?,
}
"
    );
}

#[test]
fn a_definition_that_is_only_itself_and_a_pointer_to_nowhere_are_any() {
    check(
        json!({"type": "object", "properties": {
            "a": {"$ref": "#/$defs/Self"}, "b": {"$ref": "#/$defs/None"}, "c": {"$ref": "other.json"},
        }, "required": ["a"], "$defs": {"Self": {"$ref": "#/$defs/Self"}}}),
        "args: { a: any, b: any, c: any }",
    );
}

#[test]
fn a_definition_is_found_however_it_is_referred_to() {
    let item = json!({"type": "object", "properties": {"v": {"type": "string"}}});
    let mut anchored = item.clone();
    anchored["$anchor"] = json!("there");
    let text = docs(
        json!({"type": "object", "properties": {
            "a": {"$ref": "#/$defs/line%20item"}, "b": {"$ref": "#there"}, "c": {"$ref": "item.json"},
        }, "$defs": {
            "line item": item, "named": anchored, "far": {"$id": "item.json", "type": "string"},
        }}),
        None,
    )
    .to_text();
    let signature = "function sdk.s.f(args: { a: LineItem?, b: Named?, c: string? }?): any";
    assert!(text.contains(signature) && text.contains("export type LineItem = {"), "{text}");
}

#[test]
fn a_function_whose_name_has_lost_letters_says_what_it_was() {
    let sdk = sdk(&[
        ("s.поиск", json!({"type": "object"}), None),
        ("s.read-all", json!({"type": "object"}), None),
    ]);
    let source = &sdk.sources()[0];
    let about = |place: usize| {
        let docs = sdk_function_docs(source, &source.functions[place], None);
        (docs.path, docs.about)
    };
    let said = "What it does.\n\nAnd more. (original name: поиск)".to_owned();
    assert_eq!(about(0), ("sdk.s._____".to_owned(), said));
    let said = "What it does.\n\nAnd more.".to_owned();
    assert_eq!(about(1), ("sdk.s.read_all".to_owned(), said));
}

#[test]
fn one_name_with_two_meanings_is_two_types() {
    let of = |kind: &str| {
        json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/Item"}},
        "$defs": {"Item": {"type": "object", "properties": {"v": {"type": kind}}}}})
    };
    let within = docs(of("string"), Some(of("number")));
    assert_eq!(within.signature, "function sdk.s.f(args: { x: Item? }?): { x: Item2? }");

    let sdk = sdk(&[
        ("s.first", of("string"), None),
        ("s.second", of("number"), None),
        ("s.third", of("string"), None),
        ("s.fourth", json!({"type": "object"}), Some(of("string"))),
    ]);
    let source = &sdk.sources()[0];
    let entries: Vec<SdkDocsEntry<'_>> =
        source.functions.iter().map(|it| (source, it, None)).collect();
    let names = docs_for_page(&entries).iter().map(|docs| docs.types.len()).collect::<Vec<_>>();
    assert_eq!(names, [1, 1, 0, 0]);
    assert_eq!(docs_for_page(&entries)[1].types[0].0, "SecondItem");
}

#[test]
fn a_learned_result_says_so() {
    let sdk = sdk(&[("s.f", json!({"type": "object", "properties": {}}), None)]);
    let source = &sdk.sources()[0];
    let learned = ObservedResult { schema: json!({"type": "string"}), calls: 3 };
    let docs = sdk_function_docs(source, &source.functions[0], Some(&learned));
    assert_eq!(
        docs.to_text(),
        "-- What it does.\n--\n-- And more.\n-- result learned from 3 calls\nfunction sdk.s.f(): string\n"
    );
}

#[test]
fn the_checker_sees_results_without_doubt() {
    let sdk = sdk(&[(
        "s.f",
        json!({}),
        Some(json!({"type": "object", "properties": {
            "state": {"enum": ["open", "closed"]},
            "next": {"anyOf": [{"$ref": "#/$defs/Page"}, {"type": "null"}]},
        }, "$defs": {"Page": {"type": "object", "properties": {"n": {"type": "integer"}}}}})),
    )]);
    let (result, types) = declared_result(&sdk.sources()[0].functions[0], "M1_").unwrap();
    assert_eq!(result, "{ state: string, next: M1_Page }");
    assert_eq!(types, [("M1_Page".to_owned(), "{ n: number }".to_owned())]);
}
