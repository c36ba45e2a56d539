//! Scripts that are wrong, against servers that remember: they are refused, and
//! nobody was called. What is said about each is in `check_corpus`.

use serde_json::{Map, Value, json};

use super::upstream::{Offer, Reply, Upstream, structured};
use super::world::World;
use crate::check_corpus::{corpus, scripts};

#[test]
fn a_script_that_is_refused_has_called_nobody() {
    let upstreams = upstreams();
    let named: Vec<(&str, &Upstream)> =
        upstreams.iter().map(|(name, upstream)| (name.as_str(), upstream)).collect();
    let world = World::new(&named);
    // Calls do arrive, when nothing is wrong.
    world.run("return sdk.db.list_tables()").result();
    assert_eq!(upstreams.iter().map(|(_, it)| it.seen().calls.len()).sum::<usize>(), 1);
    for (path, script) in scripts("wrong") {
        // Something right comes first, so that there is something to call.
        let (code, message) = world.run(&format!("sdk.db.list_tables() {script}")).problem();
        assert_eq!(code, "bad_script", "{}: {message}", path.display());
    }
    assert_eq!(upstreams.iter().map(|(_, it)| it.seen().calls.len()).sum::<usize>(), 1);
}

#[test]
fn a_check_that_only_warns_refuses_nothing() {
    let upstream = Upstream::start(vec![
        Offer::of("get", structured(json!({"title": "x"})))
            .gives(json!({"type": "object", "properties": {"title": {"type": "string"}}})),
    ]);
    let script = "local got = sdk.here.get()\nreturn { #tostring(got.titel) }";
    let world = World::new(&[("here", &upstream)]);
    world.run(script).fails("bad_script", &["has no field titel"]);
    let world = World::with("[execute]\ncheck = \"warn\"", &[("here", &upstream)]);
    let ran = world.run(script);
    assert_eq!(ran.value(), json!([3]));
    assert!(ran.said().is_some_and(|said| said.contains("has no field titel")), "{:?}", ran.said());
    let world = World::with("[execute]\ncheck = \"off\"", &[("here", &upstream)]);
    let ran = world.run(script);
    assert_eq!((ran.value(), ran.said()), (json!([3]), None));
}

/// The servers of the corpus.
fn upstreams() -> Vec<(String, Upstream)> {
    let text = std::fs::read_to_string(corpus().join("catalog.json")).unwrap();
    let sources: Map<String, Value> = serde_json::from_str(&text).unwrap();
    let offer = |definition: &Value| {
        Offer::defined(definition.clone(), |_| Reply::Now(structured(json!({}))))
    };
    let start =
        |listed: &Value| Upstream::start(listed.as_array().unwrap().iter().map(offer).collect());
    sources.iter().map(|(name, listed)| (name.clone(), start(listed))).collect()
}
