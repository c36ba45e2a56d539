//! What bodies look like when they arrive.

use super::*;

fn takes(media: &str, schema: Json) -> Json {
    json!({"requestBody": {"required": true, "content": {media: {"schema": schema}}}})
}

#[tokio::test]
async fn fields_stand_beside_parameters_unless_a_name_would_mean_two_things() {
    let server = Server::start().await;
    let pet = json!({"type": "object", "required": ["name"], "properties": {
        "id": {"type": "integer", "readOnly": true},
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "owner": {"type": "string", "nullable": true},
    }});
    let mut operation = takes("application/json", pet.clone());
    operation["parameters"] =
        json!([{"name": "shop", "in": "query", "schema": {"type": "string"}}]);
    let world = World::one(&server, "post", "/pets", operation.clone());
    world.call("op", json!({"shop": "s", "name": "Rex", "tags": [], "owner": null})).await.unwrap();
    let arrived = server.last();
    assert_eq!(
        (arrived.target.as_str(), arrived.header("content-type")),
        ("/pets?shop=s", "application/json")
    );
    assert_eq!(arrived.text(), r#"{"name":"Rex","tags":[],"owner":null}"#);

    operation["parameters"][0]["name"] = json!("name");
    let world = World::one(&server, "post", "/pets", operation);
    world.call("op", json!({"name": "query", "body": {"name": "Rex"}})).await.unwrap();
    let arrived = server.last();
    assert_eq!(
        (arrived.target.as_str(), arrived.text().as_str()),
        ("/pets?name=query", r#"{"name":"Rex"}"#)
    );
}

#[tokio::test]
async fn a_body_that_is_no_table_of_known_fields_is_given_as_body() {
    let server = Server::start().await;
    for (schema, body, expected) in [
        (json!({"type": "array", "items": {"type": "integer"}}), json!([1, 2]), "[1,2]"),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"a": 1}),
            r#"{"a":1}"#,
        ),
        (json!({"oneOf": [{"type": "string"}, {"type": "object"}]}), json!("x"), r#""x""#),
        (json!({}), json!({"anything": [null]}), r#"{"anything":[null]}"#),
    ] {
        let world = World::one(&server, "put", "/p", takes("application/json", schema));
        world.call("op", json!({ "body": body })).await.unwrap();
        assert_eq!(server.last().text(), expected);
    }
}

#[tokio::test]
async fn forms_text_and_bytes_are_sent_as_such() {
    let server = Server::start().await;
    let form = json!({"type": "object", "properties": {
        "a": {"type": "string"}, "list": {"type": "array", "items": {}}, "deep": {"type": "object"},
    }});
    let world = World::one(&server, "post", "/p", takes("application/x-www-form-urlencoded", form));
    world.call("op", json!({"a": "x y&z=1", "list": [1, 2], "deep": {"k": "v"}})).await.unwrap();
    assert_eq!(server.last().header("content-type"), "application/x-www-form-urlencoded");
    assert_eq!(server.last().text(), "a=x%20y%26z%3D1&list=1&list=2&deep%5Bk%5D=v");

    let world = World::one(&server, "post", "/p", takes("text/plain", json!({"type": "string"})));
    world.call("op", json!({"body": "plain & simple"})).await.unwrap();
    assert_eq!(
        (server.last().header("content-type"), server.last().text().as_str()),
        ("text/plain", "plain & simple")
    );

    let binary = takes("application/octet-stream", json!({"type": "string", "format": "binary"}));
    let world = World::one(&server, "post", "/p", binary);
    let call = world.gateway.open_call(Caller::new("test")).unwrap();
    let args = Value::from_fields([("body", Value::Bytes(vec![0, 159, 146, 150]))]);
    world.gateway.invoke(&call, &world.tools["api.op"], args).await.unwrap();
    assert_eq!(server.last().body.as_ref(), [0, 159, 146, 150]);
}

#[tokio::test]
async fn parts_with_files_are_sent_with_a_boundary_of_their_own() {
    let server = Server::start().await;
    let schema = json!({"type": "object", "properties": {
        "note": {"type": "string"}, "meta": {"type": "object"},
        "file": {}, "many": {"type": "array", "items": {}},
    }});
    let world = World::one(&server, "post", "/p", takes("multipart/form-data", schema));
    let args = json!({
        "note": "hi", "meta": {"a": 1}, "many": ["x", "y"],
        "file": {"content": "data", "filename": "a\".txt", "type": "text/plain"},
    });
    world.call("op", args).await.unwrap();
    let arrived = server.last();
    let kind = arrived.header("content-type").to_owned();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let expected = [
        "Content-Disposition: form-data; name=\"note\"\r\n\r\nhi",
        "Content-Disposition: form-data; name=\"meta\"\r\nContent-Type: application/json\r\n\r\n{\"a\":1}",
        "Content-Disposition: form-data; name=\"file\"; filename=\"a%22.txt\"\r\nContent-Type: text/plain\r\n\r\ndata",
        "Content-Disposition: form-data; name=\"many\"\r\n\r\nx",
        "Content-Disposition: form-data; name=\"many\"\r\n\r\ny",
    ];
    let text = arrived.text();
    let parts: Vec<&str> = text.split(&format!("--{boundary}")).collect();
    let parts: Vec<&str> = parts[1..parts.len() - 1].iter().map(|it| it.trim()).collect();
    assert_eq!(parts, expected);
    assert!(text.ends_with(&format!("--{boundary}--\r\n")));
}

#[tokio::test]
async fn a_body_that_may_be_left_out_is_left_out_whole() {
    let server = Server::start().await;
    let mut operation = takes(
        "application/json",
        json!({"type": "object", "required": ["a"],
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}),
    );
    operation["requestBody"]["required"] = json!(false);
    let world = World::one(&server, "post", "/p", operation);
    world.call("op", json!({})).await.unwrap();
    assert_eq!((server.last().body.len(), server.last().header("content-type")), (0, ""));
    assert!(world.call("op", json!({"b": "x"})).await.is_err());
    world.call("op", json!({"a": "x"})).await.unwrap();
    assert_eq!(server.last().text(), r#"{"a":"x"}"#);
}

#[tokio::test]
async fn swagger_forms_and_bodies_work_alike() {
    let server = Server::start().await;
    let host = server.url().replace("http://", "");
    let document = json!({
        "swagger": "2.0", "host": host, "basePath": "/v2", "schemes": ["http"],
        "paths": {
            "/pets/{id}": {"post": {"operationId": "form", "consumes": ["application/x-www-form-urlencoded"], "parameters": [
                {"name": "id", "in": "path", "type": "integer", "required": true},
                {"name": "tags", "in": "query", "type": "array", "items": {"type": "string"}, "collectionFormat": "pipes"},
                {"name": "name", "in": "formData", "type": "string"},
            ]}},
            "/pets": {"post": {"operationId": "add", "parameters": [
                {"name": "pet", "in": "body", "required": true, "schema": {"$ref": "#/definitions/Pet"}},
            ], "responses": {"200": {"description": "", "schema": {"$ref": "#/definitions/Pet"}}}}},
        },
        "definitions": {"Pet": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
    });
    let world = World::new(document, |_| {});
    world.call("form", json!({"id": 7, "tags": ["a", "b"], "name": "R"})).await.unwrap();
    let arrived = server.last();
    assert_eq!(
        (arrived.target.as_str(), arrived.text().as_str()),
        ("/v2/pets/7?tags=a%7Cb", "name=R")
    );
    world.call("add", json!({"name": "Rex"})).await.unwrap();
    assert_eq!(server.last().text(), r#"{"name":"Rex"}"#);
    let output = world.tools["api.add"].output.as_ref().unwrap();
    assert_eq!(output.json()["$ref"], "#/$defs/Pet");
}

#[tokio::test]
async fn a_body_that_must_be_there_is_there_with_nothing_in_it() {
    let server = Server::start().await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let world = World::one(&server, "post", "/p", takes("application/json", schema));
    world.call("op", json!({})).await.unwrap();
    assert_eq!(
        (server.last().header("content-type"), server.last().text().as_str()),
        ("application/json", "{}")
    );
}

#[tokio::test]
async fn what_is_required_without_being_described_can_be_given() {
    let server = Server::start().await;
    let schema = json!({"allOf": [
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"required": ["a", "unheard_of"]},
    ]});
    let world = World::one(&server, "post", "/p", takes("application/json", schema));
    assert!(world.call("op", json!({"body": {"a": "x"}})).await.is_err());
    world.call("op", json!({"body": {"a": "x", "unheard_of": 1}})).await.unwrap();
    assert_eq!(server.last().text(), r#"{"a":"x","unheard_of":1}"#);
}

#[tokio::test]
async fn a_part_that_is_a_file_is_sent_as_one() {
    let server = Server::start().await;
    let schema = json!({"type": "object", "properties": {
        "file": {"type": "string", "format": "binary"},
        "many": {"type": "array", "items": {"$ref": "#/components/schemas/File"}},
    }});
    let mut document = json!({
        "openapi": "3.0.3",
        "servers": [{"url": server.url()}],
        "components": {"schemas": {"File": {"type": "string", "format": "binary"}}},
        "paths": {"/p": {"post": takes("multipart/form-data", schema)}},
    });
    document["paths"]["/p"]["post"]["operationId"] = json!("op");
    let world = World::new(document, |_| {});
    let named = json!({"content": "b", "filename": "b.txt", "type": "text/plain"});
    world.call("op", json!({"file": "a", "many": [named, "c"]})).await.unwrap();
    let text = server.last().text();
    for part in [
        "name=\"file\"; filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\na\r\n",
        "name=\"many\"; filename=\"b.txt\"\r\nContent-Type: text/plain\r\n\r\nb\r\n",
        "name=\"many\"; filename=\"file\"\r\nContent-Type: application/octet-stream\r\n\r\nc\r\n",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(world.call("op", json!({"file": {"filename": "no content"}})).await.is_err());
}

#[tokio::test]
async fn what_stands_beside_a_reference_counts() {
    let server = Server::start().await;
    let schema = json!({"$ref": "#/components/schemas/Ids", "required": ["ids"]});
    let document = json!({
        "openapi": "3.0.3",
        "servers": [{"url": server.url()}],
        "components": {"schemas": {"Ids": {"type": "object", "properties": {
            "ids": {"type": "array", "items": {"type": "integer"}},
            "next": {"$ref": "#/components/schemas/Ids", "nullable": true, "description": "More."},
        }}}},
        "paths": {"/p": {"post": takes("application/json", schema)}},
    });
    let world = World::new(document, |_| {});
    assert!(world.call("post_p", json!({})).await.is_err());
    assert!(world.call("post_p", json!({"ids": [], "next": {"ids": "x"}})).await.is_err());
    world.call("post_p", json!({"ids": [1], "next": null})).await.unwrap();
    assert_eq!(server.last().text(), r#"{"ids":[1],"next":null}"#);
}

#[tokio::test]
async fn a_form_by_a_name_that_no_type_has_is_a_form_of_parts() {
    let server = Server::start().await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let world = World::one(&server, "post", "/p", takes("application/form-data", schema));
    world.call("op", json!({"a": "x"})).await.unwrap();
    let arrived = server.last();
    assert!(arrived.header("content-type").starts_with("multipart/form-data; boundary="));
    assert!(arrived.text().contains("name=\"a\"\r\n\r\nx\r\n"));
}
