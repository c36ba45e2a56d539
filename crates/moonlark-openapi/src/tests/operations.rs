//! Which operations there are, what they are called and what they look like.

use super::*;

fn names(world: &World) -> Vec<&str> {
    let mut names: Vec<&str> = world.tools.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn document() -> Json {
    json!({
        "openapi": "3.1.0",
        "servers": [{"url": "https://{host}/v1", "variables": {"host": {"default": "api.example.com"}}}],
        "paths": {
            "/pets": {
                "get": {"operationId": "listPets", "tags": ["pets"], "summary": "List pets", "description": "All of them.", "deprecated": true},
                "post": {"tags": ["pets"]},
            },
            "/pets/{id}": {"delete": {"operationId": "pets/delete"}, "get": {"operationId": "listPets"}},
            "/broken": {"get": {"parameters": [{"$ref": "#/nowhere"}]}, "put": {"operationId": "fine"}},
            "x-vendor": {"get": {}},
        },
    })
}

#[test]
fn every_operation_is_a_tool_or_named_with_a_reason() {
    let world = World::new(document(), |_| {});
    assert_eq!(
        names(&world),
        ["api.fine", "api.listPets", "api.listPets_2", "api.pets/delete", "api.post_pets"]
    );
    let problems: Vec<String> = world.problems.iter().map(|it| it.message.clone()).collect();
    assert_eq!(
        problems,
        [
            "GET /broken is left out: there is nothing at #/nowhere",
            "GET /pets/{id} has the operationId listPets of an earlier operation, and is listPets_2",
        ]
    );
    let tool = &world.tools["api.listPets"];
    assert_eq!(tool.description, "Deprecated. List pets\n\nAll of them.");
    assert_eq!(tool.tags, ["pets"]);
    assert!(tool.effects.read_only && tool.effects.idempotent && !tool.effects.destructive);
    let delete = world.tools["api.pets/delete"].effects;
    assert!(delete.destructive && delete.idempotent && !delete.read_only);
    assert!(!world.tools["api.post_pets"].effects.idempotent);
}

#[test]
fn operations_are_chosen_by_name_tag_method_and_path() {
    let chosen = |include: &[&str], exclude: &[&str]| {
        let world = World::new(document(), |settings| {
            settings.include = include.iter().map(|it| it.parse().unwrap()).collect();
            settings.exclude = exclude.iter().map(|it| it.parse().unwrap()).collect();
        });
        names(&world).join(" ")
    };
    assert_eq!(chosen(&["tag:pets"], &[]), "api.listPets api.post_pets");
    assert_eq!(chosen(&["GET"], &[]), "api.listPets api.listPets_2");
    assert_eq!(chosen(&["/pets/*"], &["DELETE"]), "api.listPets");
    assert_eq!(chosen(&[], &["/pets*"]), "api.fine");
}

#[test]
fn schemas_stand_by_themselves_in_plain_json_schema() {
    let document = json!({
        "openapi": "3.0.3",
        "servers": [{"url": "https://api.example.com"}],
        "paths": {"/t": {"post": {"operationId": "t",
            "requestBody": {"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Tree"}}}},
            "responses": {
                "default": {"$ref": "#/components/responses/Error"},
                "201": {"description": "", "content": {"application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}}}},
            },
        }}},
        "components": {
            "responses": {"Error": {"description": "", "content": {}}},
            "schemas": {"Tree": {"type": "object", "required": ["name", "id", "secret"], "properties": {
                "id": {"type": "integer", "readOnly": true},
                "secret": {"type": "string", "writeOnly": true},
                "name": {"type": "string", "nullable": true, "example": "oak", "pattern": "^(?!bad)"},
                "age": {"type": "number", "minimum": 0, "exclusiveMinimum": true},
                "below": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
            }}},
        },
    });
    let world = World::new(document, |_| {});
    let tool = &world.tools["api.t"];
    let tree = json!({"type": "array", "items": {"$ref": "#/$defs/Tree"}});
    assert_eq!(
        Json::Object((**tool.input.json()).clone()),
        json!({
            "type": "object",
            "properties": {
                "secret": {"type": "string"},
                "name": {"type": ["string", "null"]},
                "age": {"type": "number", "exclusiveMinimum": 0},
                "below": tree,
            },
            "required": ["secret", "name"],
            "additionalProperties": false,
            "$defs": {"Tree": {"type": "object", "required": ["name", "secret"], "properties": {
                "secret": {"type": "string"},
                "name": {"type": ["string", "null"]},
                "age": {"type": "number", "exclusiveMinimum": 0},
                "below": tree,
            }}},
        })
    );
    let output = Json::Object((**tool.output.as_ref().unwrap().json()).clone());
    assert_eq!(output["items"], json!({"$ref": "#/$defs/Tree"}));
    assert_eq!(output["$defs"]["Tree"]["required"], json!(["name", "id"]));
}

#[tokio::test]
async fn a_document_that_does_not_say_where_the_api_is_says_what_to_do() {
    let document = json!({"openapi": "3.0.0", "paths": {"/p": {"get": {"operationId": "op"}}}});
    let world = World::new(document, |_| {});
    let problem = world.call("op", json!({})).await.unwrap_err();
    assert_eq!(
        problem.to_string(),
        "error[bad_config]: the document of API 'api' does not say where it is\nhint: set base_url of apis.api"
    );
}
