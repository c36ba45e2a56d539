//! What answers become.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

async fn world(server: &Server) -> World {
    World::one(server, "get", "/p", json!({"parameters": []}))
}

#[tokio::test]
async fn bodies_are_decoded_as_what_they_are() {
    let server = Server::start().await;
    let world = world(&server).await;
    for (kind, body, expected) in [
        ("application/json", r#"{"a":[1,null]}"#, json!({"a": [1, null]})),
        ("application/vnd.api+json; charset=utf-8", "[1]", json!([1])),
        ("text/plain", "hello", json!("hello")),
        ("text/plain", r#"{"a":1}"#, json!({"a": 1})),
        ("text/html", "<p>{}</p>", json!("<p>{}</p>")),
        ("application/json", "not json", json!("not json")),
        ("application/json", "", json!(null)),
    ] {
        let body = body.to_owned();
        let kind = kind.to_owned();
        server.answers(move |_| reply(200, &kind, body.clone()));
        assert_eq!(world.call("op", json!({})).await.unwrap(), expected);
    }
    server.answers(|_| StatusCode::NO_CONTENT.into_response());
    assert_eq!(world.call("op", json!({})).await.unwrap(), json!(null));
}

#[tokio::test]
async fn bytes_come_as_content_and_compressed_ones_plain() {
    let server = Server::start().await;
    let world = world(&server).await;
    server.answers(|_| reply(200, "image/png", [137, 80, 78, 71, 0, 255]));
    let ToolAnswer::Content(content) = world.ask("op", json!({})).await.unwrap() else { panic!() };
    assert_eq!(
        content.blocks[0].to_json_lossy(),
        json!({"type": "image", "data": "iVBORwD/", "mimeType": "image/png"})
    );
    server.answers(|_| reply(200, "application/zip", [80, 75, 3, 4]));
    let ToolAnswer::Content(content) = world.ask("op", json!({})).await.unwrap() else { panic!() };
    assert_eq!(content.blocks[0].to_json_lossy()["resource"]["blob"], "UEsDBA==");
    // {"ok":true}
    let zipped = [
        31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 171, 86, 202, 207, 86, 178, 42, 41, 42, 77, 173, 5, 0,
        144, 95, 212, 167, 11, 0, 0, 0,
    ];
    server.answers(move |_| {
        let mut response = reply(200, "application/json", zipped);
        response.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        response
    });
    assert_eq!(world.call("op", json!({})).await.unwrap(), json!({"ok": true}));
    assert!(server.last().header("accept-encoding").contains("gzip"));
}

#[tokio::test]
async fn errors_say_what_the_api_says() {
    let server = Server::start().await;
    let world = world(&server).await;
    for (status, body, code, message, retryable) in [
        (
            404,
            r#"{"message":"no such pet"}"#,
            "not_found",
            "api.op answered 404 Not Found: no such pet",
            false,
        ),
        (
            422,
            r#"{"errors":[{"detail":"name is taken"}]}"#,
            "bad_request",
            "api.op answered 422 Unprocessable Entity: name is taken",
            false,
        ),
        (
            401,
            r#"{"error":{"message":"bad key"}}"#,
            "forbidden",
            "api.op answered 401 Unauthorized: bad key",
            false,
        ),
        (500, "oops", "unavailable", "api.op answered 500 Internal Server Error: oops", true),
    ] {
        let body = body.to_owned();
        server.answers(move |_| reply(status, "application/json", body.clone()));
        let problem = world.call("op", json!({})).await.unwrap_err();
        assert_eq!((problem.code.as_str(), problem.message.as_str()), (code, message));
        assert_eq!((problem.is_retryable(), problem.status), (retryable, Some(status)));
    }
    let raw = world.raw("op", json!({})).await.unwrap();
    assert_eq!((raw["status"].as_u64(), raw["body"].as_str()), (Some(500), Some("oops")));
}

#[tokio::test]
async fn what_only_reads_is_tried_again_when_the_api_is_busy() {
    let server = Server::start().await;
    let left = Arc::new(AtomicU32::new(2));
    let counter = left.clone();
    server.answers(move |_| {
        match counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1)) {
            Ok(_) => {
                let mut response = reply(429, "text/plain", "slow down");
                response.headers_mut().insert("retry-after", "0".parse().unwrap());
                response
            }
            Err(_) => reply(200, "application/json", "1"),
        }
    });
    assert_eq!(world(&server).await.call("op", json!({})).await.unwrap(), json!(1));
    assert_eq!(server.count(), 3);
    left.store(1, Ordering::Relaxed);
    let post = World::one(&server, "post", "/p", json!({}));
    let problem = post.call("op", json!({})).await.unwrap_err();
    assert_eq!((problem.code.as_str(), problem.retry_after), ("rate_limited", Some(0)));
    assert_eq!(server.count(), 4);
}

#[tokio::test]
async fn too_much_is_cut_off() {
    let server = Server::start().await;
    server.answers(|_| reply(200, "text/plain", vec![b'x'; 11 * 1024 * 1024]));
    let problem = world(&server).await.call("op", json!({})).await.unwrap_err();
    assert_eq!(problem.message, "the answer is larger than 10 MB");
}

#[tokio::test]
async fn redirects_are_followed_at_home_and_never_with_a_call_that_does_something() {
    let server = Server::start().await;
    server.answers(|arrived| match arrived.target.as_str() {
        "/p" => (StatusCode::FOUND, [("location", "/q?x=1")]).into_response(),
        _ => reply(200, "application/json", r#""there""#),
    });
    assert_eq!(world(&server).await.call("op", json!({})).await.unwrap(), json!("there"));
    // Another port is another server, on an address that is not public.
    let other = Server::start().await;
    let elsewhere = format!("{}/secret", other.url());
    server.answers(move |_| (StatusCode::FOUND, [("location", elsewhere.clone())]).into_response());
    for method in ["get", "post"] {
        let world = World::one(&server, method, "/p", json!({}));
        let problem = world.call("op", json!({})).await.unwrap_err();
        let origin = other.url();
        let message = format!("API 'api' redirects to {origin}, another origin: not followed");
        assert_eq!(problem.message, message);
    }
    assert_eq!(other.count(), 0);
}

#[tokio::test]
async fn the_next_page_is_found_by_link_cursor_id_or_count() {
    let server = Server::start().await;
    let names = ["page", "per_page", "cursor", "starting_after", "offset", "limit"];
    let with = |wanted: &[&str]| {
        let params: Vec<Json> = names
            .iter()
            .filter(|it| wanted.contains(it))
            .map(|name| {
                let kind =
                    if matches!(*name, "cursor" | "starting_after") { "string" } else { "integer" };
                json!({"name": name, "in": "query", "schema": {"type": kind}})
            })
            .collect();
        World::one(&server, "get", "/p", json!({ "parameters": params }))
    };
    let linked = with(&["page", "per_page"]);
    server.answers(|_| {
        let mut response = reply(200, "application/json", "[1,2]");
        let link = r#"</p?page=1>; rel="prev", </p?per_page=2&page=3>; rel="next""#;
        response.headers_mut().insert("link", link.parse().unwrap());
        response
    });
    let raw = linked.raw("op", json!({"page": 2, "per_page": 2})).await.unwrap();
    assert_eq!(raw["next"], json!({"page": 3, "per_page": 2}));
    for (params, args, body, next) in [
        (
            &["cursor"][..],
            json!({}),
            json!({"items": [1], "next_cursor": "abc"}),
            json!({"cursor": "abc"}),
        ),
        (
            &["cursor"],
            json!({"cursor": "abc"}),
            json!({"items": [], "next_cursor": ""}),
            json!(null),
        ),
        (
            &["starting_after"],
            json!({}),
            json!({"data": [{"id": "a"}, {"id": "b"}], "has_more": true}),
            json!({"starting_after": "b"}),
        ),
        (
            &["starting_after"],
            json!({}),
            json!({"data": [{"id": "a"}], "has_more": false}),
            json!(null),
        ),
        (
            &["offset", "limit"],
            json!({"limit": 2}),
            json!([1, 2]),
            json!({"limit": 2, "offset": 2}),
        ),
        (&["offset", "limit"], json!({"limit": 2, "offset": 2}), json!([1]), json!(null)),
        (
            &["page", "per_page"],
            json!({"per_page": 2}),
            json!([1, 2]),
            json!({"per_page": 2, "page": 2}),
        ),
        (&["page"], json!({}), json!([]), json!(null)),
    ] {
        let body = body.to_string();
        server.answers(move |_| reply(200, "application/json", body.clone()));
        let raw = with(params).raw("op", args).await.unwrap();
        assert_eq!(raw.get("next").cloned().unwrap_or_default(), next);
    }
}
