//! What parameters look like when they arrive.

use super::*;

fn param(name: &str, place: &str, more: Json) -> Json {
    let mut param = json!({"name": name, "in": place, "schema": {}});
    param.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    param
}

async fn target(place: &str, more: Json, value: Json) -> String {
    let server = Server::start().await;
    let path = if place == "path" { "/p/{color}/end" } else { "/p" };
    let operation = json!({"parameters": [param("color", place, more)]});
    let world = World::one(&server, "get", path, operation);
    world.call("op", json!({ "color": value })).await.unwrap();
    let arrived = server.last();
    match place {
        "header" => arrived.header("color").to_owned(),
        "cookie" => arrived.header("cookie").to_owned(),
        _ => arrived.target,
    }
}

#[tokio::test]
async fn every_style_arrives_as_the_specification_shows() {
    let array = || json!(["blue", "black", "brown"]);
    let object = || json!({"R": 100, "G": 200, "B": 150});
    for (place, more, value, expected) in [
        ("path", json!({}), json!("blue"), "/p/blue/end"),
        ("path", json!({}), array(), "/p/blue,black,brown/end"),
        ("path", json!({}), object(), "/p/R,100,G,200,B,150/end"),
        ("path", json!({"explode": true}), object(), "/p/R=100,G=200,B=150/end"),
        ("path", json!({"style": "label"}), array(), "/p/.blue,black,brown/end"),
        ("path", json!({"style": "label", "explode": true}), object(), "/p/.R=100.G=200.B=150/end"),
        ("path", json!({"style": "matrix"}), json!("blue"), "/p/;color=blue/end"),
        (
            "path",
            json!({"style": "matrix", "explode": true}),
            array(),
            "/p/;color=blue;color=black;color=brown/end",
        ),
        ("query", json!({}), json!("blue"), "/p?color=blue"),
        ("query", json!({}), array(), "/p?color=blue&color=black&color=brown"),
        ("query", json!({"explode": false}), array(), "/p?color=blue,black,brown"),
        ("query", json!({}), object(), "/p?R=100&G=200&B=150"),
        ("query", json!({"explode": false}), object(), "/p?color=R,100,G,200,B,150"),
        (
            "query",
            json!({"style": "spaceDelimited", "explode": false}),
            array(),
            "/p?color=blue%20black%20brown",
        ),
        (
            "query",
            json!({"style": "pipeDelimited", "explode": false}),
            array(),
            "/p?color=blue%7Cblack%7Cbrown",
        ),
        (
            "query",
            json!({"style": "deepObject", "explode": true}),
            object(),
            "/p?color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150",
        ),
        ("header", json!({}), array(), "blue,black,brown"),
        ("header", json!({"explode": true}), object(), "R=100,G=200,B=150"),
        ("cookie", json!({}), json!("blue"), "color=blue"),
        ("cookie", json!({"explode": false}), array(), "color=blue,black,brown"),
    ] {
        assert_eq!(
            target(place, more.clone(), value.clone()).await,
            expected,
            "{place} {more} {value}"
        );
    }
}

#[tokio::test]
async fn no_value_can_become_syntax_or_leave_its_place() {
    assert_eq!(
        target("path", json!({}), json!("../admin?x=1#y")).await,
        "/p/..%2Fadmin%3Fx%3D1%23y/end"
    );
    assert_eq!(target("path", json!({}), json!("a/b c%2f")).await, "/p/a%2Fb%20c%252f/end");
    assert_eq!(
        target("query", json!({}), json!("a&b=c#d+e é")).await,
        "/p?color=a%26b%3Dc%23d%2Be%20%C3%A9"
    );
    assert_eq!(
        target("query", json!({"allowReserved": true}), json!("a/b?c d")).await,
        "/p?color=a/b?c%20d"
    );
    let server = Server::start().await;
    let operation =
        json!({"parameters": [param("color", "path", json!({})), param("h", "header", json!({}))]});
    let world = World::one(&server, "get", "/p/{color}/end", operation);
    for (args, expected) in [
        (json!({"color": ".."}), "a parameter would lead out of the path"),
        (json!({"color": "."}), "a parameter would lead out of the path"),
        (json!({"color": ""}), "parameter 'color' must not be empty: it is part of the path"),
        (
            json!({"color": "x", "h": "a\r\nEvil: 1"}),
            "parameter 'h' goes into a header, which cannot hold line breaks",
        ),
    ] {
        assert_eq!(world.call("op", args).await.unwrap_err().message, expected);
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn wrong_arguments_are_refused_before_anything_is_sent() {
    let server = Server::start().await;
    let operation = json!({"parameters": [
        {"name": "limit", "in": "query", "required": true, "schema": {"type": "integer", "minimum": 1}},
        {"name": "state", "in": "query", "schema": {"type": "string", "enum": ["open", "closed"]}},
    ]});
    let world = World::one(&server, "get", "/p", operation);
    for (args, expected) in [
        (json!({}), "missing required parameter: limit"),
        (json!({"limit": "ten"}), "parameter 'limit' must be integer, got string"),
        (json!({"limit": 0}), "parameter 'limit' must be at least 1"),
        (
            json!({"limit": 1, "state": "all"}),
            "parameter 'state' must be one of open, closed, got all",
        ),
        (json!({"limit": 1, "stat": "open"}), "unknown parameter: stat (did you mean state?)"),
    ] {
        let problem = world.call("op", args).await.unwrap_err();
        assert_eq!((problem.code.as_str(), problem.message.as_str()), ("bad_request", expected));
    }
    assert_eq!(server.count(), 0);
    world.call("op", json!({"limit": 2, "state": null})).await.unwrap();
    assert_eq!(server.last().target, "/p?limit=2");
}

#[tokio::test]
async fn parameters_of_the_path_and_those_of_one_name_are_all_there() {
    let server = Server::start().await;
    let document = json!({
        "openapi": "3.0.3",
        "servers": [{"url": format!("{}/base/", server.url())}],
        "paths": {"/users/{id}": {
            "parameters": [
                {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}},
                {"name": "lang", "in": "query", "schema": {"type": "string"}},
            ],
            "get": {"operationId": "user", "parameters": [
                {"name": "id", "in": "query", "schema": {"type": "string"}},
                {"$ref": "#/components/parameters/Filter"},
            ]},
        }},
        "components": {"parameters": {"Filter": {
            "name": "filter", "in": "query",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }}},
    });
    let world = World::new(document, |_| {});
    let args = json!({"id": "q", "id_path": "p", "lang": "en", "filter": {"a": [1]}});
    world.call("user", args).await.unwrap();
    assert_eq!(server.last().target, "/base/users/p?id=q&filter=%7B%22a%22%3A%5B1%5D%7D&lang=en");
}

#[tokio::test]
async fn frozen_parameters_are_sent_and_never_seen() {
    let server = Server::start().await;
    let document = json!({
        "openapi": "3.0.3",
        "servers": [{"url": server.url()}],
        "paths": {"/p": {"post": {"operationId": "op",
            "parameters": [{"name": "tenant", "in": "query", "required": true, "schema": {"type": "string"}}],
            "requestBody": {"required": true, "content": {"application/json": {"schema": {
                "type": "object", "required": ["name", "owner"],
                "properties": {"name": {"type": "string"}, "owner": {"type": "string"}},
            }}}},
        }}},
    });
    let world = World::new(document, |settings| {
        settings.frozen.insert("tenant".to_owned(), Value::from("acme"));
        settings.frozen.insert("owner".to_owned(), Value::from("me"));
    });
    let schema = Json::Object((**world.tools["api.op"].input.json()).clone());
    assert_eq!(schema["properties"], json!({"name": {"type": "string"}}));
    world.call("op", json!({"name": "x"})).await.unwrap();
    let arrived = server.last();
    assert_eq!(arrived.target, "/p?tenant=acme");
    assert_eq!(arrived.text(), r#"{"name":"x","owner":"me"}"#);
    let problem = world.call("op", json!({"name": "x", "tenant": "other"})).await.unwrap_err();
    assert_eq!(problem.message, "unknown parameter: tenant");
}
