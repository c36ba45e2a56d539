//! Every kind of content: its value in a script, and what comes back when the
//! script returns it.

use serde_json::json;

use super::world::{IMAGE, World, answer, content};

fn text(text: &str) -> serde_json::Value {
    json!({"type": "text", "text": text})
}

#[tokio::test]
async fn every_kind_of_content_has_its_value() {
    for (call, shown) in [
        ("sdk.calc.add({ a = 1, b = 2 }).sum", "3"),
        ("sdk.content.text()", r#""hello""#),
        ("content.text():await()", r#""hello""#),
        ("sdk.content.json()", r#""{\"n\": [1, null]}""#),
        ("content.json():await()", r#"{"n":[1,null]}"#),
        ("sdk.content.texts()", r#"["a","b"]"#),
        ("content.texts():await()", r#"["a","b"]"#),
        ("sdk.content.nothing()", "[]"),
        (
            "sdk.content.structured()",
            r#"{"big":9007199254740993,"empty":[],"none":null,"nothing":{}}"#,
        ),
        (
            "content.structured():await()",
            r#"{"big":9007199254740993,"empty":[],"none":null,"nothing":{}}"#,
        ),
        ("#sdk.content.several()", "3"),
        ("sdk.content.several()[3]", r#""b""#),
        ("type(sdk.content.image())", r#""table""#),
        ("sdk.content.image().mimeType", r#""image/png""#),
        ("sdk.content.image().size", "8"),
        ("tostring(sdk.content.image().data)", r#""nil""#),
        ("string.match(sdk.content.image().handle, '^art_')", r#""art_""#),
        ("sdk.content.blob().resource.size", "3"),
        ("sdk.content.note().resource.text", r#""note""#),
        ("sdk.content.link().uri", r#""a:b""#),
        ("tostring(sdk.content.structured().none)", r#""nil""#),
    ] {
        assert_eq!(answer(&format!("return {call}")).await, shown, "{call}");
    }
}

#[tokio::test]
async fn what_a_tool_answers_comes_back_unchanged_when_returned() {
    let image = json!({"type": "image", "mimeType": "image/png", "data": IMAGE});
    let audio =
        json!({"type": "audio", "mimeType": "audio/wav", "_meta": {"a": 1}, "data": "AAEC"});
    let blob = json!({"type": "resource", "resource": {"uri": "a:b", "blob": "AAEC"}});
    let note = json!({"type": "resource", "resource": {"uri": "a:b", "text": "note"}});
    let link = json!({"type": "resource_link", "uri": "a:b", "name": "b"});
    for (name, blocks) in [
        ("text", json!([text("hello")])),
        ("several", json!([text("a"), image, text("b")])),
        ("image", json!([image])),
        ("audio", json!([audio])),
        ("blob", json!([blob])),
        ("note", json!([note])),
        ("link", json!([link])),
    ] {
        assert_eq!(
            content(&format!("return sdk.content.{name}()")).await,
            json!({"content": blocks}),
            "{name}"
        );
    }
}

#[tokio::test]
async fn results_become_content_by_their_kind() {
    let structured = |value: serde_json::Value| json!({"content": [text(&value.to_string())], "structured": value});
    for (result, expected) in [
        ("{ a = 1 }", structured(json!({"a": 1}))),
        ("{ 1, 2 }", structured(json!([1, 2]))),
        ("5", structured(json!(5))),
        ("nil", structured(json!(null))),
        ("'text'", json!({"content": [text("text")]})),
        ("{ content = { { type = 'text', text = 'x' } } }", json!({"content": [text("x")]})),
        (
            "{ content = {}, structuredContent = { n = 1 } }",
            json!({"content": [], "structured": {"n": 1}}),
        ),
        ("{ content = 'other' }", structured(json!({"content": "other"}))),
        ("{ type = 'text', text = 'x' }", json!({"content": [text("x")]})),
        ("{ type = 'image' }", structured(json!({"type": "image"}))),
    ] {
        assert_eq!(content(&format!("return {result}")).await, expected, "{result}");
        assert_eq!(content(&format!("result({result})")).await, expected, "{result}");
    }
}

#[tokio::test]
async fn an_image_inside_an_object_comes_after_it() {
    let answer = content("return { shot = sdk.content.image(), title = 'x' }").await;
    let image = json!({"type": "image", "mimeType": "image/png", "data": IMAGE});
    assert_eq!(answer["content"][1], image);
    assert_eq!(answer["content"].as_array().unwrap().len(), 2);
    let shot = &answer["structured"]["shot"];
    assert!(shot["handle"].as_str().unwrap().starts_with("art_"), "{shot}");
    assert_eq!(shot["size"], 8);
    let whole = content("return { content = { sdk.content.image() } }").await;
    assert_eq!(whole, json!({"content": [image]}));
}

#[tokio::test]
async fn a_result_that_says_it_is_an_error_is_one() {
    let script = "return { content = { { type = 'text', text = 'not today' } }, isError = true }";
    assert_eq!(answer(script).await, "error[tool_error]: not today");
}

#[tokio::test]
async fn what_is_no_value_is_refused_with_its_place() {
    for (script, message) in [
        ("return { x = print }", "result.x is a function, which is not a value"),
        ("return { calc.add({}) }", "result[0] is a promise: call :await() first"),
        ("return sdk.calc", "result is sdk.calc, a source of functions"),
        ("return sdk", "result is sdk, which is no value"),
        ("local t = {} t.t = t return t", "result.t refers back to a table that contains it"),
        ("return '\\255'", "result is not UTF-8 text, which JSON cannot hold"),
    ] {
        let answer = answer(script).await;
        let first = answer.lines().next().unwrap();
        assert_eq!(first, format!("error[tool_error]: {message}"), "{script}");
    }
}

#[tokio::test]
async fn a_large_result_is_kept_and_a_later_script_reads_it() {
    let world = World { result: 1000, ..World::new() };
    let gateway = world.gateway();
    let script = "local items = {} for n = 1, 500 do items[n] = { id = n, name = 'item ' .. n } end return { items = items }";
    let kept = super::world::execute(&gateway, script).await.unwrap();
    let structured = kept.structured.unwrap();
    let handle = structured.get("artifact").unwrap().as_str().unwrap();
    let shape = structured.get("shape").unwrap().as_str().unwrap();
    assert!(shape.contains("items") && shape.contains("name: string"), "{shape}");
    let shown = kept.blocks[0].get("text").unwrap().as_str().unwrap();
    assert!(shown.contains(handle) && shown.len() < 2500, "{shown}");
    for (script, expected) in [
        ("return #artifact(H).items", "500"),
        ("return artifact(H, { path = 'items[3].name' })", "\"item 3\""),
        (
            "local some = artifact(H, { path = 'items', from = 499, count = 10 }) return { #some, some[1].id }",
            "[2,499]",
        ),
        ("return (pcall(artifact, 'art_none'))", "false"),
        (
            "return select(2, pcall(artifact)).message",
            "\"script:1: artifact takes a handle such as \\\"art_…\\\"\"",
        ),
    ] {
        let script = script.replace('H', &format!("{handle:?}"));
        let ended = super::world::execute(&gateway, &script).await;
        assert_eq!(super::world::said(ended), expected, "{script}");
    }
}
