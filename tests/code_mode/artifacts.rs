//! Results that are too large to read: a preview, a shape and a handle, with
//! which later scripts go on.

use serde_json::{Value, json};

use super::upstream::{Offer, Reply, Upstream, structured, text};
use super::world::{ERAS, Era, Ran, World};

fn upstream() -> Upstream {
    let birds: Vec<Value> =
        (1..=5000).map(|n| json!({"id": n, "name": format!("bird {n}"), "none": null})).collect();
    Upstream::start(vec![
        Offer::of("birds", structured(json!({ "birds": birds }))),
        Offer::new("text", json!({"size": {"type": "integer"}}), |args| {
            Reply::Now(text(&"abcdefghij".repeat(args["size"].as_u64().unwrap() as usize / 10)))
        }),
    ])
}

/// Everything that was answered, as one text.
fn told(ran: &Ran) -> String {
    ran.result().to_string()
}

fn handle(ran: &Ran) -> String {
    let told = told(ran);
    let at = told.find("art_").unwrap_or_else(|| panic!("no handle: {told}"));
    told[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

#[test]
fn a_large_result_is_shown_in_part_and_read_by_the_next_script() {
    let upstream = upstream();
    let world = World::new(&[("zoo", &upstream)]);
    for era in ERAS {
        let ran = world.run_in(era, "return sdk.zoo.birds().birds");
        let told = told(&ran);
        assert!(told.len() < 64 << 10, "{} bytes", told.len());
        for word in ["bird 1", "name: string", "more"] {
            assert!(told.contains(word), "no {word:?} in {told}");
        }
        let handle = handle(&ran);
        assert_eq!(handle.len(), "art_".len() + 26, "{handle}");
        for (script, expected) in [
            (format!("return #artifact('{handle}')"), json!(5000)),
            (format!("return artifact('{handle}')[5000].name"), json!("bird 5000")),
            (
                format!("return artifact('{handle}', {{ from = 4999, count = 100 }})"),
                json!([
                    {"id": 4999, "name": "bird 4999", "none": null},
                    {"id": 5000, "name": "bird 5000", "none": null},
                ]),
            ),
            (format!("return #artifact('{handle}', {{ from = 11, count = 5 }})"), json!(5)),
        ] {
            assert_eq!(world.value(&script), expected, "{script}");
        }
    }
    // Asked for once.
    assert_eq!(upstream.called("birds"), 2);
}

#[test]
fn parts_of_it_and_texts_are_read_too() {
    let upstream = upstream();
    let world = World::new(&[("zoo", &upstream)]);
    let whole = handle(&world.run("return sdk.zoo.birds()"));
    let script = format!("return #artifact('{whole}', {{ path = 'birds' }})");
    assert_eq!(world.value(&script), json!(5000));
    let script = format!("return artifact('{whole}', {{ path = 'birds', from = 2, count = 1 }})");
    assert_eq!(world.value(&script)[0]["name"], "bird 2");
    let long = handle(&world.run("return sdk.zoo.text({ size = 100000 })"));
    let script = format!("return artifact('{long}', {{ from = 3, count = 4 }})");
    assert_eq!(world.value(&script), json!("cdef"));
    assert_eq!(world.value(&format!("return #artifact('{long}')")), json!(100_000));
    // What is not there says what is.
    for script in [
        format!("return artifact('{whole}', {{ path = 'beasts' }})"),
        "return artifact('art_00000000000000000000000000')".to_owned(),
        "return artifact('nothing')".to_owned(),
        "return artifact(5)".to_owned(),
        format!("return artifact('{long}', {{ from = 0 }})"),
    ] {
        let (Ok(answer) | Err(answer)) = world.run(&script).0;
        assert_eq!(answer["isError"], true, "{script}: {answer}");
    }
}

#[test]
fn a_small_result_is_whole_and_the_limit_is_the_operators() {
    let upstream = upstream();
    let world = World::with("[limits]\nresult = \"1KB\"", &[("zoo", &upstream)]);
    let small = world.run("return sdk.zoo.text({ size = 500 })");
    assert_eq!(small.value(), json!("abcdefghij".repeat(50)));
    let large = world.run("return sdk.zoo.text({ size = 2000 })");
    let handle = handle(&large);
    assert!(told(&large).len() < 4000, "{}", told(&large));
    assert_eq!(world.value(&format!("return #artifact('{handle}')")), json!(2000));
}

#[test]
fn the_oldest_go_when_there_is_no_room() {
    let upstream = upstream();
    let config = "[limits]\nresult = \"1KB\"\nartifacts = \"1MB\"";
    let world = World::with(config, &[("zoo", &upstream)]);
    let make = || handle(&world.run("return sdk.zoo.text({ size = 300000 })"));
    let handles: Vec<String> = (0..6).map(|_| make()).collect();
    let there = |handle: &String| {
        let script = format!("return (pcall(artifact, '{handle}'))");
        world.value(&script) == json!(true)
    };
    assert!(there(&handles[5]) && there(&handles[4]), "the newest are gone");
    assert!(!there(&handles[0]) && !there(&handles[1]), "the oldest are still there");
}

#[test]
fn it_is_searched_and_read_as_a_resource() {
    let upstream = upstream();
    let world = World::new(&[("zoo", &upstream)]);
    let handle = handle(&world.run("return sdk.zoo.birds().birds"));
    let asked = json!({"query": "bird 4321", "source": format!("artifact:{handle}")});
    let found = world.text("search_docs", asked);
    assert!(found.contains("bird 4321"), "{found}");
    let uri = format!("artifact://{handle}");
    let answer = world.ask(Era::New, "resources/read", json!({ "uri": uri })).answer.unwrap();
    let text = answer["contents"][0]["text"].as_str().unwrap();
    let birds: Value = serde_json::from_str(text).unwrap();
    assert_eq!(birds[4999]["name"], "bird 5000");
}

#[test]
fn pictures_are_found_by_their_handles_later() {
    let picture = json!({"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"});
    let shown = json!({"content": [picture]});
    let upstream = Upstream::start(vec![Offer::of("picture", shown)]);
    let world = World::new(&[("zoo", &upstream)]);
    let ran = world.run("return { kept = sdk.zoo.picture() }");
    let handle = handle(&ran);
    let again = world.run(&format!("return artifact('{handle}')"));
    assert_eq!(again.content(), [picture]);
}
