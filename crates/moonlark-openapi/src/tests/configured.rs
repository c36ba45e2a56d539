//! What the operator says about single operations.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use moonlark_core::ProblemCode;

use super::*;
use moonlark_core::tool_config::{EffectsConfig, ToolConfig};

fn document(server: &Server) -> Json {
    let text = |name: &str| json!({"name": name, "in": "query", "required": true, "schema": {"type": "string"}});
    json!({
        "openapi": "3.0.3",
        "servers": [{"url": server.url()}],
        "paths": {"/repos": {
            "get": {"operationId": "repos/list", "summary": "List.", "tags": ["repos"],
                "parameters": [text("owner"), text("sort")]},
            "post": {"operationId": "searchRepos", "summary": "Search.", "tags": ["search"],
                "requestBody": {"description": "What to look for.", "content": {"application/json": {"schema":
                    {"type": "object", "properties": {"q": {"type": "string"}}}}}}},
        }},
    })
}

fn config(edit: impl FnOnce(&mut ToolConfig)) -> ToolConfig {
    let mut config = ToolConfig::default();
    edit(&mut config);
    config
}

#[tokio::test]
async fn an_operation_has_the_name_words_effects_and_arguments_that_the_operator_gives_it() {
    let server = Server::start().await;
    let world = World::new(document(&server), |it| {
        it.tools = BTreeMap::from([
            (
                "repos/list".to_owned(),
                config(|it| {
                    it.name = Some("list".to_owned());
                    it.description = Some("Ours.".to_owned());
                    it.arguments = [("owner".to_owned(), Value::from("acme"))].into();
                }),
            ),
            (
                "searchRepos".to_owned(),
                config(|it| {
                    it.effects =
                        EffectsConfig { read_only: Some(true), ..EffectsConfig::default() };
                }),
            ),
        ]);
    });
    assert_eq!(world.problems, []);
    let list = &world.tools["api.list"];
    assert_eq!(list.description, "Ours.");
    assert_eq!(list.input.json()["required"], json!(["sort"]));
    assert!(list.input.json()["properties"].get("owner").is_none());
    world.call("list", json!({"sort": "a"})).await.unwrap();
    assert_eq!(server.last().target, "/repos?owner=acme&sort=a");
    assert!(world.call("list", json!({"sort": "a", "owner": "mallory"})).await.is_err());
    assert_eq!(server.count(), 1);
    let search = &world.tools["api.searchRepos"];
    assert!(search.effects.read_only && !search.effects.destructive && search.effects.idempotent);
    // The fields of the body are the arguments: only this says what the body is.
    assert_eq!(search.description, "Search.\n\nBody: What to look for.");
}

/// Operations with one name: the second has a number behind it.
fn document_with_twins(server: &Server) -> Json {
    let operation = |id: &str| {
        json!({"operationId": id, "summary": "Theirs.", "parameters":
        [{"name": "owner", "in": "query", "schema": {"type": "string"}}]})
    };
    json!({
        "openapi": "3.0.3",
        "servers": [{"url": server.url()}],
        "paths": {
            "/a": {"get": operation("list"), "put": operation("list")},
            "/b": {"post": operation("list"), "get": operation("list_2")},
        },
    })
}

#[tokio::test]
async fn what_loosens_holds_for_the_operation_of_that_name_and_what_tightens_for_its_twins_too() {
    let server = Server::start().await;
    let world = |name: &str, effects: EffectsConfig| {
        World::new(document_with_twins(&server), |it| {
            let table = config(|it| {
                it.effects = effects;
                it.description = Some("Ours.".to_owned());
                it.arguments = [("owner".to_owned(), Value::from("acme"))].into();
            });
            it.tools = [(name.to_owned(), table)].into();
        })
    };
    let effects = |world: &World, name: &str| world.tools[&format!("api.{name}")].effects;
    // PUT is list_3: the document gives list_2 to another.
    let loose = EffectsConfig {
        read_only: Some(true),
        destructive: Some(false),
        idempotent: Some(true),
        open_world: Some(false),
    };
    let loosened = world("list", loose);
    assert!(!effects(&loosened, "list").open_world);
    for name in ["list_3", "list_4"] {
        let now = effects(&loosened, name);
        assert!(!now.read_only && now.open_world, "{name}: {now:?}");
        assert_eq!(loosened.tools[&format!("api.{name}")].description, "Theirs.");
        let raw = loosened.tools[&format!("api.{name}")].raw.as_ref().unwrap();
        assert!(!raw.effects.read_only);
    }
    assert!(effects(&loosened, "list_3").idempotent && !effects(&loosened, "list_4").idempotent);
    // A fixed argument is nobody's to give, whichever of them is called.
    loosened.call("list_4", json!({})).await.unwrap();
    assert_eq!(server.last().target, "/b?owner=acme");

    let strict = EffectsConfig {
        read_only: Some(false),
        destructive: Some(true),
        idempotent: Some(false),
        open_world: None,
    };
    let tightened = world("list", strict);
    for name in ["list", "list_3", "list_4"] {
        let now = effects(&tightened, name);
        assert!(!now.read_only && now.destructive && !now.idempotent, "{name}: {now:?}");
    }
    assert!(effects(&tightened, "list_2").read_only);

    // Under its own name a twin is like any other.
    let own = world("list_4", loose);
    assert!(effects(&own, "list_4").read_only && !effects(&own, "list_3").read_only);
    assert!(
        own.problems.iter().all(|it| !it.message.contains("has no tool")),
        "{:?}",
        own.problems
    );
}

#[tokio::test]
async fn settings_that_are_about_nothing_are_said() {
    let server = Server::start().await;
    let world = World::new(document(&server), |it| {
        it.include = ["tag:repso", "GET"].map(|rule| rule.parse().unwrap()).into();
        it.exclude = ["DELET".parse().unwrap()].into();
        it.tools = [("searchRepo".to_owned(), ToolConfig::default())].into();
    });
    let said: Vec<String> = world.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "error[bad_config]: \"tag:repso\" in include matches no tool of 'api'\n  --> apis.api.include\nhint: did you mean \"tag:repos\"?",
            "error[bad_config]: \"DELET\" in exclude matches no tool of 'api'\n  --> apis.api.exclude\nhint: did you mean \"DELETE\"?",
            "error[bad_config]: 'api' has no tool named searchRepo\n  --> apis.api.tools.searchRepo\nhint: did you mean searchRepos?",
        ]
    );
}

#[tokio::test]
async fn long_descriptions_are_cut_and_controls_taken_out() {
    let server = Server::start().await;
    let mut document = document(&server);
    document["paths"]["/repos"]["get"]["description"] =
        json!(format!("\u{1b}[2J{}", "x".repeat(1 << 20)));
    let world = World::new(document, |_| {});
    let text = &world.tools["api.repos/list"].description;
    assert!(text.len() < 10_000 && !text.contains('\u{1b}'), "{}", text.len());
    assert_eq!(
        world.problems[0].message,
        "1 descriptions are longer than 8 KB: their beginnings are used"
    );
}

#[tokio::test]
async fn a_call_that_reads_is_made_once_more_when_the_connection_breaks() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicU32::new(0));
    let counter = connections.clone();
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let number = counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = socket.read(&mut request).await;
                // Every other one is left without an answer.
                if number % 2 == 1 {
                    let answer =
                        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n42";
                    let _ = socket.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    let document = json!({
        "openapi": "3.0.3",
        "servers": [{"url": url}],
        "paths": {"/p": {"get": {"operationId": "read"}, "post": {"operationId": "change"}}},
    });
    let world = World::new(document, |_| {});
    assert_eq!(world.call("read", json!({})).await.unwrap(), json!("42"));
    assert_eq!(connections.load(Ordering::SeqCst), 2);
    let lost = world.call("change", json!({})).await.unwrap_err();
    assert!(lost.message.ends_with("the call may have happened"), "{lost}");
    assert_eq!(connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn what_an_api_says_about_a_failure_is_kept() {
    let server = Server::start().await;
    let said = json!({"message": "Validation Failed", "errors": [{"field": "title", "code": "already_exists"}]});
    let body = said.to_string();
    server.answers(move |_| reply(422, "application/json", body.clone()));
    let world = World::new(document(&server), |_| {});
    let problem = world.call("searchRepos", json!({})).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::BadRequest);
    assert_eq!(
        problem.message,
        "api.searchRepos answered 422 Unprocessable Entity: Validation Failed (title: already_exists)"
    );
    assert_eq!(problem.to_json()["data"], said);
}
