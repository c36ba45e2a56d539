//! Finding out what there is: what is printed can be called as it is printed.

use serde_json::{Value, json};

use super::upstream::{Offer, Reply, Upstream, structured, text};
use super::world::{Era, World};
use crate::harness::Project;

const STATS: &str = r#"
tool = {
    name = "text_stats",
    description = "Count the words of a text",
    parameters = { { name = "text", type = "string", required = true, description = "The text" } },
}
function tool.execute(params) return { words = #params.text } end
"#;

fn upstream() -> Upstream {
    let weather = json!({
        "city": {"type": "string", "description": "Where"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    });
    Upstream::start(vec![
        Offer::new("get-weather", weather, |args| Reply::Now(structured(json!({"asked": args}))))
            .describe("Current weather and temperature for a city.")
            .needs(&["city"])
            .gives(json!({
                "type": "object",
                "properties": {"asked": {"$ref": "#/$defs/Question"}},
                "$defs": {"Question": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}},
                }},
            })),
        Offer::of("while", text("a reserved word")).describe("Repeat an incantation."),
        Offer::of("a.b", text("dotted")).describe("Fold a paper crane."),
        Offer::of("a_b", text("underscored")).describe("Unfold a paper crane."),
        Offer::of("2nd", text("second")).describe("Award the silver medal."),
    ])
}

fn world() -> (Upstream, World) {
    let upstream = upstream();
    let project = Project::new(&[("tools/text_stats.luau", STATS)]);
    let world = World::of(project, "", &[("sky-watch", &upstream)]);
    // The four tools speak of what is there; the first call waits for it.
    world.value("return sdk.sky_watch['while']()");
    (upstream, world)
}

/// Everything of the form `sdk.source.function` in a text.
pub fn names(text: &str) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut names: Vec<String> = text
        .match_indices("sdk.")
        .filter(|(at, _)| !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        .map(|(at, _)| text[at..].chars().take_while(|c| is_name(*c)).collect::<String>())
        .map(|name| name.trim_end_matches('.').to_owned())
        .filter(|name| name.matches('.').count() == 2)
        .collect();
    names.sort();
    names.dedup();
    names
}

const ALL: [&str; 6] = [
    "sdk.sky_watch._2nd",
    "sdk.sky_watch._while",
    "sdk.sky_watch.a_b",
    "sdk.sky_watch.a_b_2",
    "sdk.sky_watch.get_weather",
    "sdk.tools.text_stats",
];

#[test]
fn four_tools_are_the_whole_surface() {
    let (_upstream, world) = world();
    let tools = world.tools();
    for tool in ["search_docs", "list_functions", "get_function_docs", "execute"] {
        assert!(tools.iter().any(|it| it == tool), "{tools:?}");
    }
    assert!(!tools.iter().any(|it| it.contains("weather")), "{tools:?}");
}

#[test]
fn what_search_finds_is_called_as_it_is_printed() {
    let (_upstream, world) = world();
    for (query, name) in [
        ("temperature in a city", "sdk.sky_watch.get_weather"),
        ("get-weather", "sdk.sky_watch.get_weather"),
        ("count words", "sdk.tools.text_stats"),
        ("incantation", "sdk.sky_watch._while"),
        ("unfold a paper crane", "sdk.sky_watch.a_b"),
        ("silver medal", "sdk.sky_watch._2nd"),
    ] {
        let found = world.text("search_docs", json!({ "query": query }));
        let first = found.find("sdk.").map(|at| &found[at..]).unwrap_or_else(|| panic!("{found}"));
        assert!(first.starts_with(&format!("{name}(")), "{query}: {found}");
    }
    let found = world.text("search_docs", json!({"query": "weather"}));
    // Enough to write the call: argument and result.
    for word in ["city: string", "\"celsius\"", "asked"] {
        assert!(found.contains(word), "{found}");
    }
    let script = "return sdk.sky_watch.get_weather({ city = 'Turku', unit = 'celsius' })";
    assert_eq!(world.value(script), json!({"asked": {"city": "Turku", "unit": "celsius"}}));
    // One source only; and nothing.
    let found = world.text("search_docs", json!({"query": "weather", "source": "tools"}));
    assert!(!found.contains("get_weather"), "{found}");
    let found = world.text("search_docs", json!({"query": "xylophone quantum"}));
    assert!(!found.trim().is_empty());
    let found = world.text("search_docs", json!({"query": "paper crane", "limit": 1}));
    assert_eq!(names(&found).len(), 1, "{found}");
}

#[test]
fn every_name_that_is_listed_is_documented_and_can_be_called() {
    let (_upstream, world) = world();
    let sources = world.text("list_functions", json!({}));
    assert!(sources.contains("sky_watch") && sources.contains("tools"), "{sources}");
    let mut listed = Vec::new();
    for source in ["sky_watch", "tools"] {
        listed.extend(names(&world.text("list_functions", json!({ "source": source }))));
    }
    listed.sort();
    assert_eq!(listed, ALL);
    // By the name it has itself, too.
    let original = world.text("list_functions", json!({"source": "sky-watch"}));
    assert_eq!(names(&original).len(), 5, "{original}");
    for name in &listed {
        let short = name.strip_prefix("sdk.").unwrap();
        for asked in [name.as_str(), short] {
            let docs = world.text("get_function_docs", json!({"names": [asked]}));
            assert!(docs.contains(&format!("function {name}(")), "{asked}: {docs}");
        }
        let script = format!("return type({name})");
        assert_eq!(world.value(&script), json!("function"), "{name}");
    }
    for (name, said) in [
        ("_while", "a reserved word"),
        ("a_b", "underscored"),
        ("a_b_2", "dotted"),
        ("_2nd", "second"),
    ] {
        assert_eq!(world.value(&format!("return sdk.sky_watch.{name}()")), json!(said));
        assert_eq!(world.value(&format!("return sky_watch.{name}():await()")), json!(said));
    }
}

#[test]
fn documentation_has_every_type_and_says_what_it_does_not_know() {
    let (_upstream, world) = world();
    let docs = world.text("get_function_docs", json!({"names": ["sky_watch.get_weather"]}));
    for word in ["city: string", "unit:", "\"celsius\" | \"fahrenheit\"", "Question", "export type"]
    {
        assert!(docs.contains(word), "no {word:?} in {docs}");
    }
    // One that is not there does not keep the others back.
    let asked = json!({"names": ["sky_watch.get_wether", "tools.text_stats"]});
    let docs = world.text("get_function_docs", asked);
    for word in ["get_weather", "function sdk.tools.text_stats("] {
        assert!(docs.contains(word), "no {word:?} in {docs}");
    }
}

#[test]
fn all_of_it_is_there_as_resources_too() {
    let (_upstream, world) = world();
    let read = |uri: &str| -> String {
        let answer = world.ask(Era::New, "resources/read", json!({ "uri": uri })).answer;
        let answer = answer.unwrap_or_else(|error| panic!("{uri}: {error}"));
        answer["contents"][0]["text"].as_str().unwrap().to_owned()
    };
    for (uri, word) in [
        ("sdk://sky_watch/overview", "sky_watch"),
        ("sdk://sky_watch/functions", "sdk.sky_watch.get_weather"),
        ("sdk://sky_watch/functions/get_weather", "function sdk.sky_watch.get_weather("),
        ("sdk://sky_watch/schemas", "Question"),
    ] {
        assert!(read(uri).contains(word), "{uri}: {}", read(uri));
    }
    let listed = world.ask(Era::New, "resources/list", json!({})).answer.unwrap();
    assert!(listed.to_string().contains("sdk://sky_watch/overview"), "{listed}");
}

#[test]
fn agents_are_told_what_is_connected() {
    let (_upstream, world) = world();
    let said = world.ask(Era::New, "server/discover", json!({})).answer.unwrap();
    let instructions = said["instructions"].as_str().unwrap_or_else(|| panic!("{said}"));
    for word in ["sky_watch", "search_docs", "execute"] {
        assert!(instructions.contains(word), "no {word:?} in {instructions}");
    }
}

#[test]
fn results_of_servers_that_declare_none_are_learned() {
    let upstream = Upstream::start(vec![Offer::of(
        "birds",
        structured(json!({"birds": [{"name": "lark", "song": 9}]})),
    )]);
    let world = World::new(&[("zoo", &upstream)]);
    for _ in 0..3 {
        world.value("return sdk.zoo.birds()");
    }
    let docs = world.text("get_function_docs", json!({"names": ["zoo.birds"]}));
    for word in ["learned", "birds", "song: number"] {
        assert!(docs.contains(word), "no {word:?} in {docs}");
    }
    // What was learned refuses nothing.
    assert_eq!(world.value("return tostring(sdk.zoo.birds().beasts)"), json!("nil"));
    let value: Value = world.value("return sdk.zoo.birds().birds[1].name");
    assert_eq!(value, json!("lark"));
}
