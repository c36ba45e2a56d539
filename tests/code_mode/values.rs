//! Every kind of content that a server can answer with: what a script makes of
//! it, and that it comes back unchanged when the script returns it.

use serde_json::{Value, json};

use super::upstream::{Offer, Upstream, structured, text};
use super::world::{ERAS, Era, Ran, World, server};
use crate::harness::Project;

const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";
const WAV: &str = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQgAAAAAAAAAAAAAAA==";

fn content(blocks: Value) -> Value {
    json!({ "content": blocks })
}

fn block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn image() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

fn audio() -> Value {
    json!({"type": "audio", "data": WAV, "mimeType": "audio/wav"})
}

fn resource() -> Value {
    let resource = json!({"uri": "file:///song.txt", "mimeType": "text/plain", "text": "la li"});
    json!({"type": "resource", "resource": resource})
}

fn blob() -> Value {
    let resource = json!({"uri": "file:///song.bin", "mimeType": "audio/x-lark", "blob": "AP/+"});
    json!({"type": "resource", "resource": resource})
}

fn link() -> Value {
    json!({"type": "resource_link", "uri": "file:///songs", "name": "songs", "title": "Songs"})
}

/// What is hardest to keep.
fn subtle() -> Value {
    json!({
        "nothing": null,
        "nested": {"nothing": null, "something": 1},
        "empty_list": [],
        "empty_object": {},
        "list_of_empty": [[], {}, [null]],
        "nulls": [null, 1, null],
        "big": 9_007_199_254_740_993_i64,
        "biggest": i64::MAX,
        "smallest": i64::MIN,
        "bigs": [9_007_199_254_740_993_i64, -9_007_199_254_740_993_i64],
        "half": 0.5,
        "text": "ζ \u{1F426} \\ \" \u{0}",
        "a-b c": true,
        "1": "a key that is a number",
        "end": false,
    })
}

/// Name, and what the server answers.
fn cases() -> Vec<(&'static str, Value)> {
    vec![
        ("words", text("hello")),
        ("no_words", text("")),
        ("json_object", text(r#"{"a": 1, "none": null, "list": []}"#)),
        ("json_list", text("[1, 2]")),
        ("json_number", text("42")),
        ("structure", structured(json!({"sum": 3}))),
        ("subtle", structured(subtle())),
        ("image", content(json!([image()]))),
        ("audio", content(json!([audio()]))),
        ("resource", content(json!([resource()]))),
        ("blob", content(json!([blob()]))),
        ("link", content(json!([link()]))),
        ("several", content(json!([block("first"), image(), resource(), link(), block("last")]))),
        ("texts", content(json!([block("a"), block("{\"b\":1}")]))),
        ("images", content(json!([image(), audio(), blob()]))),
        ("empty", content(json!([]))),
        ("failure", json!({"content": [block("it broke"), image()], "isError": true})),
    ]
}

fn world() -> (Upstream, World) {
    let offers = cases().into_iter().map(|(name, result)| Offer::of(name, result)).collect();
    let upstream = Upstream::start(offers);
    let config = server("values", &upstream, "expose = \"both\"");
    let world = World::of(Project::new(&[]), &config, &[]);
    (upstream, world)
}

/// What a client gets that calls the tool itself.
fn direct(world: &World, era: Era, name: &str) -> Value {
    world.call(era, &format!("values__{name}"), json!({})).unwrap()
}

/// The same value, and its text says the same, in whatever order.
fn same_structure(ran: &Ran, structure: &Value, what: &str) {
    assert_eq!(ran.result()["structuredContent"], *structure, "{what}");
    let content = ran.content();
    let [block] = &content[..] else { panic!("{what}") };
    let said: Value = serde_json::from_str(block["text"].as_str().unwrap()).unwrap();
    assert_eq!(said, *structure, "{what}");
}

#[test]
fn content_that_is_returned_comes_back_unchanged() {
    let (_upstream, world) = world();
    for era in ERAS {
        for (name, _) in cases().into_iter().filter(|(name, _)| *name != "failure") {
            let direct = direct(&world, era, name);
            for script in [
                format!("return sdk.values.{name}()"),
                format!("result(sdk.values.{name}())"),
                format!("local v = sdk.values.{name}() return v"),
            ] {
                let ran = world.run_in(era, &script);
                let what = format!("{script} {era:?}: {}", ran.result());
                match direct.get("structuredContent") {
                    Some(structure) => same_structure(&ran, structure, &what),
                    None => assert_eq!(Value::Array(ran.content()), direct["content"], "{what}"),
                }
            }
        }
    }
}

#[test]
fn what_was_awaited_comes_back_unchanged_too() {
    let (_upstream, world) = world();
    for era in ERAS {
        for (name, _) in cases().into_iter().filter(|(name, _)| *name != "failure") {
            let direct = direct(&world, era, name);
            let ran = world.run_in(era, &format!("return values.{name}():await()"));
            let what = format!("{name} {era:?}: {}", ran.result());
            match name {
                // What was JSON is a value now: the same, in other words.
                "json_object" | "json_list" | "json_number" => {
                    let parse = |blocks: &Value| -> Value {
                        serde_json::from_str(blocks[0]["text"].as_str().unwrap()).unwrap()
                    };
                    let blocks = Value::Array(ran.content());
                    assert_eq!(parse(&blocks), parse(&direct["content"]), "{what}");
                }
                _ => match direct.get("structuredContent") {
                    Some(structure) => same_structure(&ran, structure, &what),
                    None => assert_eq!(Value::Array(ran.content()), direct["content"], "{what}"),
                },
            }
        }
    }
}

#[test]
fn a_text_is_a_text_from_the_sdk_and_json_from_a_promise() {
    let (_upstream, world) = world();
    for (script, expected) in [
        ("sdk.values.words()", json!("hello")),
        ("values.words():await()", json!("hello")),
        ("sdk.values.no_words()", json!("")),
        ("values.no_words():await()", json!("")),
        ("type(sdk.values.json_object())", json!("string")),
        ("type(values.json_object():await())", json!("table")),
        ("values.json_object():await()", json!({"a": 1, "none": null, "list": []})),
        ("json.decode(sdk.values.json_object()).a", json!(1)),
        ("type(sdk.values.json_number())", json!("string")),
        ("values.json_number():await() + 1", json!(43)),
        ("values.json_list():await()[2]", json!(2)),
        ("sdk.values.structure().sum", json!(3)),
        ("values.structure():await().sum", json!(3)),
        ("#sdk.values.texts()", json!(2)),
        ("sdk.values.texts()[2]", json!("{\"b\":1}")),
        ("type(sdk.values.empty())", json!("table")),
        ("#sdk.values.empty()", json!(0)),
    ] {
        assert_eq!(world.value(&format!("return {script}")), expected, "{script}");
    }
}

#[test]
fn fields_that_are_null_read_as_nil_and_big_integers_are_exact() {
    let (_upstream, world) = world();
    for (script, expected) in [
        ("v.nothing == nil", json!(true)),
        ("v.nested.nothing == nil and v.nested.something", json!(1)),
        ("{ taken = v.nested }", json!({"taken": {"nothing": null, "something": 1}})),
        ("{ out = v.empty_list, side = v.empty_object }", json!({"out": [], "side": {}})),
        ("{ big = v.big }", json!({"big": 9_007_199_254_740_993_i64})),
        ("v.big", json!(9_007_199_254_740_993_i64)),
        ("v.bigs[2]", json!(-9_007_199_254_740_993_i64)),
        ("#v.nulls", json!(3)),
        ("v['a-b c']", json!(true)),
    ] {
        let script = format!("local v = sdk.values.subtle() return {script}");
        assert_eq!(world.value(&script), expected, "{script}");
    }
}

#[test]
fn bytes_stay_outside_the_script_and_are_known_by_a_handle() {
    let (_upstream, world) = world();
    for (name, kind, mime, size) in [
        ("image", "image", "image/png", PNG.len() / 4 * 3),
        ("audio", "audio", "audio/wav", WAV.len() / 4 * 3),
    ] {
        for call in [format!("sdk.values.{name}()"), format!("values.{name}():await()")] {
            let script = format!(
                "local v = {call} return {{ type = v.type, mime = v.mimeType, size = v.size, \
                 handle = v.handle, bytes = v.data or v.blob or 'outside' }}"
            );
            let told = world.value(&script);
            let near = told["size"].as_u64().unwrap().abs_diff(size as u64) <= 2;
            assert!(near, "{told} is not about {size}");
            assert!(told["handle"].as_str().unwrap().starts_with("art_"), "{told}");
            let told = (&told["type"], &told["mime"], &told["bytes"]);
            assert_eq!(told, (&json!(kind), &json!(mime), &json!("outside")), "{call}");
        }
    }
    // A resource is as it is, but for its bytes.
    let told = world.value("local v = sdk.values.resource() return { a = v.resource.text }");
    assert_eq!(told, json!({"a": "la li"}));
    let told = world.value("return tostring(sdk.values.blob().resource.blob)");
    assert_eq!(told, json!("nil"));
    let told = world.value("local v = sdk.values.link() return v.name .. ' ' .. v.uri");
    assert_eq!(told, json!("songs mcp://values/file:///songs"));
}

#[test]
fn pictures_inside_an_object_are_beside_it() {
    let (_upstream, world) = world();
    for era in ERAS {
        let ran = world.run_in(era, "return { title = 'dot', picture = sdk.values.image() }");
        let result = ran.result();
        let blocks = ran.content();
        assert!(blocks.contains(&image()), "{result}");
        let structure = &result["structuredContent"];
        assert_eq!(structure["title"], "dot");
        assert_eq!(structure["picture"]["type"], "image");
        assert!(structure["picture"]["handle"].as_str().unwrap().starts_with("art_"), "{result}");
        assert!(!structure.to_string().contains(PNG), "{result}");
    }
    // A list of them is content as it is.
    let both = "return { sdk.values.image(), 'and', sdk.values.audio() }";
    let ran = world.run(both);
    assert_eq!(ran.content(), [image(), block("and"), audio()]);
}

#[test]
fn a_failure_is_raised_and_passed_on_as_it_is() {
    let (_upstream, world) = world();
    for era in ERAS {
        let direct = direct(&world, era, "failure");
        for call in ["sdk.values.failure()", "values.failure():await()"] {
            let (Ok(failed) | Err(failed)) = world.run_in(era, &format!("return {call}")).0;
            assert_eq!(failed["isError"], true, "{failed}");
            assert!(failed["content"][0]["text"].as_str().unwrap().contains("it broke"));
        }
        assert_eq!(direct["isError"], true);
    }
}
