//! `moonlark model`: models from files on disk.

use serde_json::json;

use super::{HANDBOOK_CONFIG, handbook, run, run_json, said, text};
use crate::harness::{Project, repo};

const MODEL_CONFIG: &str = "[knowledge]\nembedder = \"tiny\"\n\n";

/// Where `tests/knowledge/model/make.py` has put its files.
fn tiny_model() -> String {
    repo().join("tests/knowledge/model").to_str().unwrap().to_owned()
}

fn with_model() -> Project {
    handbook(&[
        ("moonlark.toml", &format!("{MODEL_CONFIG}{HANDBOOK_CONFIG}")),
        ("handbook/pay.md", "The salary of a human."),
    ])
}

#[test]
fn a_model_is_added_used_listed_and_removed() {
    let project = with_model();
    let add = ["model", "add", &tiny_model(), "--name", "tiny"];
    let added = run(&project, &add);
    assert_eq!(added, "Added tiny: 2 layers, 16 dimensions, 0.0 MB\n");
    assert_eq!(
        run(&project, &["model", "list"]),
        "tiny: 2 layers, 16 dimensions, 0.0 MB, in use\n"
    );
    let again = project.run(&add);
    assert_eq!(again.status.code(), Some(1));
    assert!(said(&again).contains("there is a model tiny already"), "{}", said(&again));
    run(&project, &["sync", "--quiet"]);
    // No word of it is in the page: only that model knows these two pairs.
    let ask = ["search", "money of a person", "--mode", "semantic", "--limit", "1"];
    let found = run_json(&project, &ask);
    assert_eq!(found["result"]["results"][0]["source_id"], "pay.md", "{found}");
    assert_eq!(found["result"]["notes"], json!(null));
    let removed = project.run(&["model", "remove", "tiny"]);
    assert_eq!(removed.status.code(), Some(1));
    assert!(said(&removed).contains("knowledge.embedder names tiny"), "{}", said(&removed));
    project.write("moonlark.toml", HANDBOOK_CONFIG);
    assert_eq!(run(&project, &["model", "remove", "tiny"]), "Removed tiny\n");
    assert_eq!(
        run(&project, &["model", "list"]),
        "No models yet; `moonlark model add FOLDER` adds one\n"
    );
    // The model in the binary takes its place again.
    run(&project, &["sync", "--quiet"]);
    let found = run_json(&project, &["search", "vacation", "--mode", "semantic", "--limit", "1"]);
    assert_eq!(found["result"]["results"][0]["source_id"], "holidays.md", "{found}");
}

#[test]
fn what_commands_say_of_models_is_there_as_json() {
    let project = with_model();
    let weights = format!("{}/model.safetensors", tiny_model());
    let bytes: u64 = ["model.safetensors", "vocab.txt", "config.json"]
        .iter()
        .map(|name| repo().join("tests/knowledge/model").join(name).metadata().unwrap().len())
        .sum();
    let model =
        json!({"name": "tiny", "layers": 2, "dimensions": 16, "bytes": bytes, "used": true});
    let added = run_json(&project, &["model", "add", &weights, "--name", "tiny"]);
    assert_eq!(added, json!({ "model": model }));
    assert_eq!(run_json(&project, &["model", "list"]), json!({ "models": [model] }));
}

#[test]
fn a_model_that_is_configured_and_not_there_is_named() {
    let project = with_model();
    let output = project.run(&["sync"]);
    assert_eq!(output.status.code(), Some(1));
    let all = format!("{}{}", text(&output), said(&output));
    assert!(all.contains("knowledge.embedder: there is no model tiny"), "{all}");
    assert!(all.contains("`moonlark model add FOLDER` adds it"), "{all}");
}

#[test]
fn without_its_model_a_knowledge_base_is_read_and_searched_by_words() {
    let project = with_model();
    run(&project, &["model", "add", &tiny_model(), "--name", "tiny"]);
    run(&project, &["sync", "--quiet"]);
    let gone = MODEL_CONFIG.replace("tiny", "gone");
    project.write("moonlark.toml", &format!("{gone}{HANDBOOK_CONFIG}"));
    let by_words = run_json(&project, &["search", "salary", "--mode", "keyword"]);
    let first = &by_words["result"]["results"][0];
    assert_eq!(first["source_id"], "pay.md", "{by_words}");
    assert_eq!(by_words["result"]["notes"], json!(null));
    let by_both = run_json(&project, &["search", "salary"]);
    assert_eq!(by_both["result"]["results"][0]["source_id"], "pay.md", "{by_both}");
    let note = by_both["result"]["notes"].to_string();
    assert!(note.contains("found by words only: knowledge.embedder: there is no model gone"));
    assert!(note.contains("`moonlark model add FOLDER` adds it"), "{note}");
    let by_meaning = project.run(&["search", "salary", "--mode", "semantic"]);
    assert_eq!(by_meaning.status.code(), Some(1));
    assert!(said(&by_meaning).contains("there is no model gone"), "{}", said(&by_meaning));
    let id = first["id"].as_str().unwrap();
    assert!(run(&project, &["get", id]).contains("The salary of a human."));
    assert!(run(&project, &["sources"]).contains("handbook"));
    for command in ["sync", "doctor"] {
        let output = project.run(&[command]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let all = format!("{}{}", text(&output), said(&output));
        assert!(all.contains("knowledge.embedder: there is no model gone"), "{all}");
    }
}

#[test]
fn what_is_no_model_is_refused_with_what_one_is() {
    let project = with_model();
    let expect = |path: &str, expected: &str| {
        let output = project.run(&["model", "add", path, "--name", "other"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(expected), "{}", said(&output));
        assert!(said(&output).contains("a model is a folder with model.safetensors"));
    };
    expect("handbook", "there is no tokenizer.json or vocab.txt in ");
    expect("nowhere", "there is no file or folder ");
    for name in ["vocab.txt", "config.json"] {
        let file =
            std::fs::read_to_string(repo().join("tests/knowledge/model").join(name)).unwrap();
        project.write(&format!("handbook/{name}"), &file);
    }
    expect("handbook", "model.safetensors: ");
    project.write("handbook/model.safetensors", "not a model at all");
    expect("handbook", "the weights are no safetensors: their heading is too long");
    // A large number of layers, and none of them.
    project.write("handbook/model.safetensors", "\u{2}\0\0\0\0\0\0\0{}");
    expect("handbook", "the weights: embeddings.word_embeddings.weight is missing");
    assert_eq!(run_json(&project, &["model", "list"]), json!({ "models": [] }));
}
