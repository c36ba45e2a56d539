use serde_json::{Value as Json, json};

use super::simple_types::{any_value, as_map};
use super::{MAX_SCHEMA_BYTES, PortableInput, SchemaDirection, portable_output, written_bytes};
use crate::value::Value;

fn input(exact: Json) -> Json {
    Json::Object((*PortableInput::from_schema(&as_map(exact)).schema).clone())
}

/// One parameter, as it is listed.
fn param(exact: Json) -> Json {
    input(json!({"type": "object", "properties": {"p": exact}}))["properties"]["p"].clone()
}

fn any() -> Json {
    Json::Object(any_value(SchemaDirection::Input))
}

#[test]
fn an_array_is_not_the_last_alternative_of_anything() {
    let simple =
        json!([{"type": "string"}, {"type": "number"}, {"type": "boolean"}, {"type": "object"}]);
    assert_eq!(
        any(),
        json!({"anyOf": [
            {"type": "string"},
            {"type": "number"},
            {"type": "boolean"},
            {"type": "array", "items": {"anyOf": simple}},
            {"type": "object"},
        ]})
    );
}

#[test]
fn a_schema_that_all_take_stays_as_it_is() {
    let exact = json!({
        "type": "object",
        "title": "find",
        "properties": {
            "text": {"type": "string", "description": "What", "minLength": 1, "pattern": "^[a-z]+$"},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "count": {"type": "integer", "minimum": 1, "maximum": 10, "format": "int32"},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            "opts": {
                "type": "object",
                "properties": {"deep": {"type": "boolean"}},
                "required": ["deep"],
                "additionalProperties": false,
            },
            "either": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
            "map": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "required": ["text"],
        "additionalProperties": false,
    });
    assert_eq!(input(exact.clone()), exact);
    let made = PortableInput::from_schema(&as_map(exact));
    assert!(made.keys.is_empty());
}

#[test]
fn each_place_has_one_type() {
    for (exact, expected) in [
        (json!({"type": ["string"]}), json!({"type": "string"})),
        (
            json!({"type": ["string", "null"], "description": "d", "maxLength": 3}),
            json!({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}], "description": "d"}),
        ),
        (
            json!({"type": ["string", "array"], "items": {"type": "string"}}),
            json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
        ),
        (json!({"type": ["integer", "number"]}), json!({"type": "number"})),
        (
            json!({"type": "string", "nullable": true}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ),
        (json!({"enum": ["a", "b"]}), json!({"type": "string", "enum": ["a", "b"]})),
        (
            json!({"type": ["string", "null"], "enum": ["a", null]}),
            json!({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        ),
        (json!({"const": "a"}), json!({"type": "string", "enum": ["a"]})),
        (
            json!({"properties": {"a": {"type": "string"}}}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
        ),
        (
            json!({"items": {"type": "string"}}),
            json!({"type": "array", "items": {"type": "string"}}),
        ),
        (json!({"minLength": 1}), json!({"type": "string", "minLength": 1})),
        (json!({"minimum": 1}), json!({"type": "number", "minimum": 1})),
        (
            json!({"additionalProperties": {}}),
            json!({"type": "object", "additionalProperties": true}),
        ),
        (json!({"type": "array"}), json!({"type": "array", "items": any()})),
        (json!({"type": "array", "items": {}}), json!({"type": "array", "items": any()})),
        (json!(true), any()),
        (json!({}), any()),
        (json!({"type": "strange"}), any()),
    ] {
        assert_eq!(param(exact.clone()), expected, "{exact}");
    }
    let mut described = any();
    described["description"] = json!("Anything");
    assert_eq!(param(json!({"description": "Anything"})), described);
}

#[test]
fn values_that_models_do_not_take_in_a_list_are_told() {
    for (exact, expected) in [
        (
            json!({"type": "integer", "enum": [1, 2, 3]}),
            json!({"type": "integer", "minimum": 1, "maximum": 3, "description": "One of 1, 2, 3."}),
        ),
        (
            json!({"const": true, "description": "Yes"}),
            json!({"type": "boolean", "description": "Yes. Always true."}),
        ),
        (json!({"enum": [true, false]}), json!({"type": "boolean"})),
        (json!({"enum": [0.5, 1]}), json!({"type": "number", "description": "One of 1, 0.5."})),
        (json!({"enum": ["", "asc", "asc"]}), json!({"type": "string", "enum": ["asc"]})),
        (json!({"type": "string", "enum": [""]}), json!({"type": "string"})),
        (json!({"type": "string", "enum": []}), json!({"type": "string"})),
        (
            json!({"type": "string", "format": "email", "description": "Whom"}),
            json!({"type": "string", "description": "Whom. Format: email."}),
        ),
        (json!({"type": "integer", "format": "epoch"}), json!({"type": "integer"})),
        (json!({"type": "string", "pattern": "^(?!x)"}), json!({"type": "string"})),
        (
            json!({"type": "number", "minimum": 0, "exclusiveMinimum": true}),
            json!({"type": "number", "exclusiveMinimum": 0}),
        ),
    ] {
        assert_eq!(param(exact.clone()), expected, "{exact}");
    }
}

#[test]
fn alternatives_are_one_flat_list() {
    for (exact, expected) in [
        (
            json!({"oneOf": [{"type": "string"}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}]}),
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ),
        (json!({"anyOf": [{"type": "string"}]}), json!({"type": "string"})),
        (
            json!({"type": "string", "anyOf": [{"const": "a"}, {"enum": ["b", "c"]}]}),
            json!({"type": "string", "enum": ["a", "b", "c"]}),
        ),
        (
            json!({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}},
                             {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}),
            json!({"type": "object", "required": ["b"],
                   "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                   "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
            json!({"type": "object", "description": "Give a, or b.",
                   "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}),
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]}),
            json!({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}}),
        ),
        (
            json!({"type": "array", "items": [{"type": "string"}, {"type": "string"}], "minItems": 2}),
            json!({"type": "array", "items": {"type": "string"}, "minItems": 2}),
        ),
    ] {
        assert_eq!(param(exact.clone()), expected, "{exact}");
    }
}

#[test]
fn alternatives_of_the_whole_become_one_object() {
    let by_id = json!({
        "type": "object",
        "properties": {"kind": {"const": "id"}, "id": {"type": "string"}},
        "required": ["kind", "id"],
    });
    let by_name = json!({
        "type": "object",
        "properties": {"kind": {"const": "name"}, "name": {"type": "string"}},
        "required": ["kind", "name"],
    });
    let expected = json!({
        "type": "object",
        "description": "Give id, or name.",
        "properties": {
            "kind": {"type": "string", "enum": ["id", "name"]},
            "id": {"type": "string"},
            "name": {"type": "string"},
        },
        "required": ["kind"],
    });
    assert_eq!(input(json!({"oneOf": [by_id, by_name]})), expected);
    let far = json!({"$ref": "#/$defs/all", "$defs": {"all": {"anyOf": [by_id, by_name]}}});
    assert_eq!(input(far), expected);
    // What judges the whole otherwise is left to the check.
    let judged = json!({
        "type": "object", "properties": {"a": {"type": "string"}},
        "not": {"required": ["b"]}, "if": {"required": ["a"]}, "then": {"required": ["c"]},
        "dependentRequired": {"a": ["b"]}, "patternProperties": {"^x": {}}, "additionalProperties": false,
    });
    assert_eq!(input(judged), json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    assert_eq!(input(json!({})), json!({"type": "object", "properties": {}}));
}

#[test]
fn references_are_written_out_and_end() {
    let tree = json!({
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node", "description": "All of it"}},
        "$defs": {"node": {
            "type": "object",
            "description": "A node",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
        }},
    });
    let node = |items: Json| {
        json!({"type": "object", "description": "A node", "properties": {
            "name": {"type": "string"}, "children": {"type": "array", "items": items},
        }})
    };
    let mut expected = node(node(json!({"type": "object"})));
    expected["description"] = json!("All of it");
    assert_eq!(input(tree), json!({"type": "object", "properties": {"tree": expected}}));
    assert_eq!(
        input(json!({"type": "object", "properties": {"lost": {"$ref": "#/$defs/none"}}})),
        json!({"type": "object", "properties": {"lost": any()}})
    );
}

#[test]
fn a_reference_is_followed_however_it_is_written() {
    let text = json!({"type": "string"});
    let exact = json!({
        "$id": "https://example.com/find.json",
        "type": "object",
        "properties": {
            "encoded": {"$ref": "#/$defs/a%20b"},
            "anchor": {"$ref": "#item"},
            "relative": {"$ref": "page.json"},
            "whole": {"$ref": "https://example.com/find.json#/$defs/c"},
            "self": {"$ref": "#"},
        },
        "$defs": {
            "a b": text, "item": {"$anchor": "item", "type": "string"}, "c": text,
            "page": {"$id": "page.json", "$ref": "#/$defs/own", "$defs": {"own": text}},
        },
    });
    let listed = input(exact.clone());
    for name in ["encoded", "anchor", "relative", "whole"] {
        assert_eq!(listed["properties"][name], text, "{name}");
    }
    assert_eq!(listed["properties"]["self"]["properties"]["encoded"], text);
    let result = Json::Object(portable_output(&as_map(exact)).unwrap());
    assert_eq!(result["properties"]["relative"], text);
}

#[test]
fn a_renamed_key_is_described_by_the_name_that_the_tool_has_for_it() {
    let described = |text: &str| json!({"type": "string", "description": text});
    let exact = json!({
        "type": "object",
        "properties": {
            "ключ": {"type": "string"},
            "запрос": described("What to look for"),
            "$top": described("As $top of OData"),
            "plain": described("Left alone"),
            "list": {"type": "array", "items": {"type": "object", "properties": {"имя": {}}}},
        },
    });
    let listed = input(exact);
    let fields: Vec<&Json> = listed["properties"].as_object().unwrap().values().collect();
    assert_eq!(*fields[0], described("Original name: ключ"));
    assert_eq!(*fields[1], described("What to look for (original name: запрос)"));
    assert_eq!(*fields[2], described("As $top of OData"));
    assert_eq!(*fields[3], described("Left alone"));
    let inner = fields[4]["items"]["properties"].as_object().unwrap().values().next().unwrap();
    assert_eq!(inner["description"], "Original name: имя");
}

/// Every definition has all others as fields: written out it would be endless.
fn knot(definitions: usize) -> Json {
    let refs = |word: &str| -> Json {
        let of = |n: usize| (format!("{word}{n}"), json!({"$ref": format!("#/$defs/d{n}")}));
        (0..definitions).map(of).collect()
    };
    let one = json!({"type": "object", "properties": refs("f"), "anyOf": [{"$ref": "#/$defs/d0"}, {"$ref": "#/$defs/d1"}]});
    let all: Json = (0..definitions).map(|n| (format!("d{n}"), one.clone())).collect();
    json!({"type": "object", "properties": refs("p"), "$defs": all})
}

#[test]
fn what_would_grow_beyond_all_bounds_is_cut() {
    let started = std::time::Instant::now();
    for definitions in [2, 8, 40] {
        let exact = as_map(knot(definitions));
        let most = MAX_SCHEMA_BYTES.max(written_bytes(&exact)) * 2;
        let made = PortableInput::from_schema(&exact);
        assert!(written_bytes(&made.schema) <= most, "{} bytes", written_bytes(&made.schema));
        assert_eq!(made.schema["properties"].as_object().unwrap().len(), definitions);
    }
    // One that leads to the next a thousand times.
    let of = |n: usize| {
        (
            format!("d{n}"),
            json!({"anyOf": [{"$ref": format!("#/$defs/d{}", n + 1)}, {"type": "null"}]}),
        )
    };
    let chain: Json = (0..1000).map(of).collect();
    let exact =
        json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/d0"}}, "$defs": chain});
    assert!(input(exact)["properties"]["p"]["anyOf"].is_array());
    assert!(started.elapsed().as_secs() < 20);
}

#[test]
fn keys_are_listed_as_models_take_them_and_put_back() {
    let exact = json!({
        "type": "object",
        "properties": {
            "page[size]": {"type": "integer"},
            "$filter": {"type": "object", "properties": {"@type": {"type": "string"}}, "required": ["@type"]},
            "steps": {"type": "array", "items": {"anyOf": [
                {"type": "object", "properties": {"$match": {"type": "object"}}},
                {"type": "object", "properties": {"plain": {"type": "string"}}},
            ]}},
            "by_name": {"type": "object", "additionalProperties": {
                "type": "object", "properties": {"a.b": {"type": "string"}},
            }},
        },
        "required": ["page[size]"],
    });
    let made = PortableInput::from_schema(&as_map(exact));
    let listed: Vec<&String> = made.schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(listed, ["page_size", "filter", "steps", "by_name"]);
    assert_eq!(made.schema["required"], json!(["page_size"]));
    assert_eq!(made.schema["properties"]["filter"]["required"], json!(["type"]));
    // Their descriptions say the original keys.
    let size = json!({"type": "integer", "description": "Original name: page[size]"});
    assert_eq!(made.schema["properties"]["page_size"], size);
    let restored = |args: Json| {
        let mut args = Value::from_json(args).unwrap();
        made.keys.restore_keys(&mut args);
        args.to_json_lossy()
    };
    let original = json!({
        "page[size]": 5,
        "$filter": {"@type": "x", "type": "y"},
        "steps": [{"$match": {"match": 1}}, {"plain": "z"}],
        "by_name": {"any": {"a.b": "c"}},
        "other": true,
    });
    // Whoever knows the original names is understood too.
    assert_eq!(restored(original.clone()), original);
    let mut listed = original.clone();
    listed["$filter"] = json!({"type": "x"});
    let mut expected = original;
    expected["$filter"] = json!({"@type": "x"});
    let listed = json!({
        "page_size": 5, "filter": listed["$filter"], "steps": [{"match": {"match": 1}}, {"plain": "z"}],
        "by_name": {"any": {"a_b": "c"}}, "other": true,
    });
    assert_eq!(restored(listed), expected);
}

#[test]
fn a_parameter_that_travels_in_a_header_is_left_alone() {
    let exact = json!({"type": ["string", "null"], "x-mcp-header": "Region", "format": "uri"});
    assert_eq!(param(exact.clone()), exact);
}

#[test]
fn a_result_that_fits_the_exact_schema_fits_the_listed_one() {
    let exact = json!({
        "type": "object",
        "properties": {
            "any": {}, "maybe": {"type": ["string", "null"]}, "level": {"enum": [1, 2]},
            "pair": {"prefixItems": [{"type": "string"}]}, "loose": {"properties": {"a": {"type": "string"}}},
            "node": {"$ref": "#/$defs/node"}, "$odd": {"type": "string", "format": "uri"},
        },
        "required": ["$odd"],
        "oneOf": [{"required": ["any"]}, {"properties": {"loose": {"const": 1}}}],
        "$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}},
    });
    let listed = Json::Object(portable_output(&as_map(exact.clone())).unwrap());
    let (exact, listed) =
        (jsonschema::validator_for(&exact).unwrap(), jsonschema::validator_for(&listed).unwrap());
    let deep = (0..20).fold(json!(null), |next, _| json!({ "next": next }));
    for value in [
        json!({"$odd": "x", "any": null, "maybe": null, "level": 2, "pair": ["a", 1, {}], "loose": [1]}),
        json!({"$odd": "", "any": [{}], "loose": "text", "node": deep}),
        json!({"$odd": "x", "loose": 1, "more": {}}),
    ] {
        assert!(exact.is_valid(&value), "{value}");
        assert!(listed.is_valid(&value), "{value}");
    }
    assert_eq!(portable_output(&as_map(json!({"type": "array"}))), None);
}

/// Arguments with their keys put back, by the keys that were listed for `exact`.
fn restored(exact: &Json, args: Json) -> Json {
    let mut args = Value::from_json(args).unwrap();
    PortableInput::from_schema(&as_map(exact.clone())).keys.restore_keys(&mut args);
    args.to_json_lossy()
}

/// The keys of all alternatives of `p`, as they are listed.
fn keys_of_p(exact: &Json) -> Vec<String> {
    let place = input(exact.clone())["properties"]["p"].clone();
    let options = place.get("anyOf").and_then(Json::as_array).cloned().unwrap_or(vec![place]);
    let properties = options.iter().filter_map(|it| it["properties"].as_object());
    properties.flat_map(|it| it.keys().cloned()).collect()
}

#[test]
fn a_plain_key_stays_itself_where_other_keys_are_taken() {
    let text = json!({"type": "string"});
    for (keyword, said) in [
        ("additionalProperties", json!(true)),
        ("additionalProperties", json!({"type": "string"})),
        ("patternProperties", json!({"^x": text})),
        ("propertyNames", json!({"maxLength": 3})),
        ("unevaluatedProperties", json!(true)),
        ("if", json!({"required": ["$x"]})),
        ("dependentSchemas", json!({"$x": {"properties": {"x": text}}})),
    ] {
        let mut place = json!({"type": "object", "properties": {"$x": text}});
        place[keyword] = said;
        let exact = json!({"type": "object", "properties": {"p": place}});
        let keys = keys_of_p(&exact);
        assert!(keys[0].starts_with("x_") && keys[0].len() == 10, "{keyword}: {keys:?}");
        let plain = json!({"p": {"x": "mine"}});
        assert_eq!(restored(&exact, plain.clone()), plain, "{keyword}");
        assert_eq!(
            restored(&exact, json!({"p": {keys[0].as_str(): "theirs"}})),
            json!({"p": {"$x": "theirs"}})
        );
        let listed = serde_json::to_string(&input(exact)).unwrap();
        assert!(!listed.contains("moonlark"), "{listed}");
    }
    // Another alternative of the same place may take any key.
    for other in [
        json!({"type": "object"}),
        json!({}),
        json!({"type": "object", "additionalProperties": text}),
    ] {
        let object =
            json!({"type": "object", "properties": {"$x": text}, "additionalProperties": false});
        let exact = json!({"type": "object", "properties": {"p": {"anyOf": [object, other]}}});
        let plain = json!({"p": {"x": "mine"}});
        assert_eq!(restored(&exact, plain.clone()), plain, "{other}");
    }
    // And so may one of the whole.
    let whole = json!({"type": "object", "anyOf": [
        {"properties": {"$x": text}}, {"properties": {"y": text}, "additionalProperties": true},
    ]});
    assert_eq!(restored(&whole, json!({"x": "mine"})), json!({"x": "mine"}));
}

#[test]
fn one_listed_key_means_the_same_in_all_alternatives() {
    let object = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "additionalProperties": false});
    let of = |place: Json| json!({"type": "object", "properties": {"p": place}});
    for exact in [
        of(json!({"anyOf": [object("x"), object("$x")]})),
        of(json!({"anyOf": [object("$x"), object("x")]})),
        of(json!({"anyOf": [object("$x"), {"oneOf": [object("@x"), object("x")]}]})),
        of(json!({"oneOf": [object("$x"), object("@x")]})),
        of(
            json!({"type": "object", "properties": {"k": {"type": "string"}}, "anyOf": [object("$x"), object("x")]}),
        ),
    ] {
        let keys = keys_of_p(&exact);
        let reached: Vec<Json> =
            keys.iter().map(|key| restored(&exact, json!({"p": {key.as_str(): "v"}}))).collect();
        let distinct: std::collections::BTreeSet<String> =
            reached.iter().map(Json::to_string).collect();
        assert_eq!(distinct.len(), keys.len(), "{keys:?} are {reached:?}");
        let names = serde_json::to_string(&exact).unwrap();
        for name in ["$x", "@x", "x"].iter().filter(|it| names.contains(&format!("\"{it}\""))) {
            assert!(reached.contains(&json!({"p": {*name: "v"}})), "{name} is not in {reached:?}");
        }
        let plain = json!({"p": {"x": "v"}});
        if names.contains("\"x\"") {
            assert_eq!(restored(&exact, plain.clone()), plain);
        }
    }
    // The same where alternatives meet further inside: in lists, fields and maps.
    let deep = |name: &str| json!({"type": "object", "additionalProperties": {"type": "array", "items": object(name)}});
    let fields = |name: &str| json!({"type": "object", "properties": {"f": {"type": "array", "items": object(name)}}});
    for exact in [
        of(json!({"anyOf": [deep("x"), deep("$x")]})),
        of(json!({"anyOf": [fields("x"), fields("$x")]})),
        of(json!({"anyOf": [fields("x"), deep("$x")]})),
    ] {
        let plain = json!({"p": {"f": [{"x": "v"}]}});
        assert_eq!(restored(&exact, plain.clone()), plain, "{exact}");
    }
    // A field that is described is none of the others.
    let map = json!({"type": "object", "properties": {"f": object("x")}, "additionalProperties": object("$x")});
    assert_eq!(
        restored(&of(map), json!({"p": {"f": {"x": 1}, "other": {"x": 1}}})),
        json!({"p": {"f": {"x": 1}, "other": {"$x": 1}}})
    );
}

#[test]
fn keys_are_put_back_as_deep_as_a_schema_goes_on() {
    let filter = json!({"type": "object", "properties": {
        "$field": {"type": "string"},
        "$and": {"type": "array", "items": {"$ref": "#/$defs/filter"}},
        "named": {"type": "object", "additionalProperties": {"$ref": "#/$defs/filter"}},
    }});
    let exact = json!({
        "type": "object",
        "properties": {"where": {"$ref": "#/$defs/filter"}, "$limit": {"type": "integer"}},
        "$defs": {"filter": filter},
    });
    let deep = |field: &str, and: &str, depth: usize| {
        (0..depth).fold(
            json!({field: "a"}),
            |inner, _| json!({field: "b", and: [inner.clone()], "named": {"x": inner}}),
        )
    };
    for depth in 0..6 {
        let listed = json!({"where": deep("field", "and", depth), "limit": 1});
        let expected = json!({"where": deep("$field", "$and", depth), "$limit": 1});
        assert_eq!(restored(&exact, listed), expected, "{depth}");
    }
    let text = input(exact).to_string();
    assert!(!text.contains("x-moonlark"), "{text}");
    let itself = json!({"type": "object", "properties": {"_next": {"$ref": "#"}}});
    let listed = json!({"next": {"next": {"next": {"next": {"next": {}}}}}});
    let expected = json!({"_next": {"_next": {"_next": {"_next": {"_next": {}}}}}});
    assert_eq!(restored(&itself, listed), expected);
}

#[test]
fn lists_that_are_said_by_their_values_have_items_and_only_texts_describe() {
    let listed = input(json!({"type": "object", "properties": {
        "one": {"const": [1, 2]},
        "some": {"enum": [[1], [2]]},
        "either": {"anyOf": [{"const": []}, {"type": "string"}]},
        "described": {"type": "string", "description": null, "title": 5},
    }}));
    let fields = &listed["properties"];
    for list in [&fields["one"], &fields["some"], &fields["either"]["anyOf"][0]] {
        assert!(list["items"].is_object(), "{list}");
    }
    assert_eq!(fields["described"], json!({"type": "string"}));
}
