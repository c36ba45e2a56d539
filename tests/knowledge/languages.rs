//! Documents in other languages than English.

use serde_json::{Value, json};

use super::{run, run_json};
use crate::harness::{Project, repo};

/// A page for each document of `bench/language_questions.json`.
fn polyglot() -> (Project, Value) {
    let text = std::fs::read_to_string(repo().join("bench/language_questions.json")).unwrap();
    let languages: Value = serde_json::from_str(&text).unwrap();
    let mut files = vec![(
        "moonlark.toml".to_owned(),
        "[connectors.filesystem.pages]\nroot = \"pages\"\nwatch = false\n".to_owned(),
    )];
    for (code, of) in languages.as_object().unwrap() {
        for (number, page) in of["documents"].as_object().unwrap().values().enumerate() {
            files.push((format!("pages/{code}/{number}.md"), page.as_str().unwrap().to_owned()));
        }
    }
    let files: Vec<(&str, &str)> =
        files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    (Project::new(&files), languages)
}

#[test]
fn every_question_finds_the_page_in_its_language() {
    let (project, languages) = polyglot();
    run(&project, &["sync", "--quiet"]);
    let mut missed = Vec::new();
    for (code, of) in languages.as_object().unwrap() {
        let names: Vec<&String> = of["documents"].as_object().unwrap().keys().collect();
        for question in of["questions"].as_array().unwrap() {
            let number = names.iter().position(|name| question[1] == ***name).unwrap();
            let asked = question[0].as_str().unwrap();
            let answer = run_json(&project, &["search", asked, "--limit", "1"]);
            let found = &answer["result"]["results"][0]["source_id"];
            if *found != format!("{code}/{number}.md") {
                missed.push(format!("{asked}: {found}"));
            }
        }
    }
    assert_eq!(missed, [] as [&str; 0]);
}

#[test]
fn sources_say_which_languages_the_model_does_not_know() {
    let (project, _) = polyglot();
    run(&project, &["sync", "--quiet"]);
    let said = "5 in German, 5 in Spanish, 5 in French, 5 in Italian, more in others: found by their words, hardly by meaning, since the built-in model has read English only";
    let listed = run_json(&project, &["sources"]);
    let source = &listed["knowledge"][0];
    assert_eq!(source["note"], said);
    assert_eq!(
        source["languages"],
        json!({"de": 5, "es": 5, "fr": 5, "it": 5, "ja": 5, "pt": 5, "ru": 5, "zh": 5})
    );
    let printed = run(&project, &["sources"]);
    assert!(printed.ends_with(&format!("\n  {said}\n")), "{printed}");
}
