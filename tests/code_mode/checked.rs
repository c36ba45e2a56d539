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
    assert_eq!(ran.value(), json!([3]));
    // Without a check, it is said when the answer has come, and only once.
    let said = "logs:\nscript:2: the result of sdk.here.get has no field titel; it has title";
    assert_eq!(ran.said().as_deref(), Some(said));
}

/// Code that the type checker runs, and that ended the whole server once. It may
/// come to its own end, or to that of the process.
const GROWING: [&str; 3] = [
    "type function f(t) return types.singleton(string.rep('x', 2^30)) end local x: f<number> = 1 return x",
    "type function f(t) local s = {} while true do table.insert(s, string.rep('x', 1e6)) end end \
     local x: f<number> = 1 return x",
    "type function f(t) local s = 'x' while true do s = s .. s end end local x: f<number> = 1 return x",
];

/// The same without an end of its own; it took one checker after the other.
const ENDLESS: &str =
    "type function f(t) while true do end return t end local x: f<number> = 1 return x";

#[test]
fn a_script_that_the_checker_cannot_follow_is_refused_and_everything_else_goes_on() {
    let upstream = Upstream::start(vec![Offer::of("get", structured(json!({"title": "x"})))]);
    let world = World::new(&[("here", &upstream)]);
    std::thread::scope(|scope| {
        let world = &world;
        for end in ["", " -- again"] {
            scope.spawn(move || {
                let (code, message) = world.run(&format!("{ENDLESS}{end}")).problem();
                assert_eq!(code, "bad_script", "{message}");
                assert!(message.contains("cannot be checked: checking it takes"), "{message}");
            });
        }
        // Meanwhile, others are checked and run.
        world.run("return sdk.here.got()").fails("bad_script", &["has no function got"]);
        assert_eq!(world.run("return sdk.here.get().title").value(), json!("x"));
    });
    for script in GROWING {
        world.run(script);
    }
    // One that is harmless is nobody's mistake.
    let harmless = "type function f(t) return t end local x: f<number> = 1 return x";
    assert_eq!(world.run(harmless).value(), json!(1));
    // Where a check only warns, it says so and the script runs.
    let world = World::with("[execute]\ncheck = \"warn\"", &[("here", &upstream)]);
    let ran = world.run(ENDLESS);
    assert_eq!(ran.value(), json!(1));
    assert!(ran.said().is_some_and(|said| said.contains("cannot be checked")), "{:?}", ran.said());
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
