//! `paginate` over APIs of every style: three pages are three requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{execute, source};
use crate::harness::{Project, serve_inside};

const STYLES: [&str; 12] = [
    "link",
    "link_clamped",
    "link_prev",
    "next_null",
    "next_null_404",
    "cursor",
    "has_more",
    "shorter",
    "total",
    "total_pages",
    "short_page",
    "has_next",
];

async fn answer(State(count): State<Arc<AtomicUsize>>, uri: Uri) -> Response {
    count.fetch_add(1, Ordering::SeqCst);
    let style = uri.path().trim_start_matches('/').to_owned();
    let query: Vec<(String, String)> =
        url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect();
    let number = |key: &str| query.iter().find(|(name, _)| name == key)?.1.parse::<usize>().ok();
    let asked = match style.as_str() {
        "cursor" => number("cursor").unwrap_or(1),
        "total" => number("offset").unwrap_or(0) / 2 + 1,
        _ => number("page").unwrap_or(1),
    };
    // Some give the last page for any page behind it, others none.
    let page = if style.contains("clamped") || style == "next_null" { asked.min(3) } else { asked };
    if page > 3 && style.ends_with("404") {
        return StatusCode::NOT_FOUND.into_response();
    }
    let last = page >= 3;
    let items = match (page, style.as_str()) {
        (1..=2, _) => json!([page * 10, page * 10 + 1]),
        (3, "shorter" | "short_page") => json!([30]),
        (3, _) => json!([30, 31]),
        _ => json!([]),
    };
    let next = format!("/{style}?page={}", page + 1);
    let body = match style.as_str() {
        "next_null" | "next_null_404" => {
            json!({"results": items, "next": if last { Value::Null } else { json!(next) }})
        }
        "cursor" => {
            if last {
                json!({"items": items})
            } else {
                json!({"items": items, "next_cursor": (page + 1).to_string()})
            }
        }
        "has_more" => json!({"data": items, "has_more": !last}),
        "has_next" => json!({"items": items, "pageInfo": {"hasNextPage": !last}}),
        "total" => json!({"items": items, "total": 6}),
        "total_pages" => json!({"items": items, "meta": {"total_pages": 3}}),
        _ => items,
    };
    let mut response = axum::Json(body).into_response();
    if style.starts_with("link") && !last {
        let link = format!("<{next}>; rel=\"next\"");
        response.headers_mut().insert("link", link.parse().unwrap());
    } else if style == "link_prev" {
        response.headers_mut().insert("link", "</link_prev?page=2>; rel=\"prev\"".parse().unwrap());
    }
    response
}

#[test]
fn three_pages_are_three_requests_in_every_style() {
    let count = Arc::new(AtomicUsize::new(0));
    let (address, _ends) = serve_inside(Router::new().fallback(answer).with_state(count.clone()));
    let integer = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "integer"}});
    let mut paths = serde_json::Map::new();
    for style in STYLES.iter().chain(&["counted", "counted_clamped", "counted_404"]) {
        let params = match *style {
            "cursor" => {
                json!([{"name": "cursor", "in": "query", "schema": {"type": "string"}}, integer("page")])
            }
            "total" => json!([integer("offset")]),
            "short_page" => {
                json!([integer("page"), {"name": "per_page", "in": "query", "schema": {"type": "integer", "default": 2}}])
            }
            _ => json!([integer("page")]),
        };
        paths.insert(
            format!("/{style}"),
            json!({"get": {"operationId": style, "tags": ["lists"], "parameters": params}}),
        );
    }
    let document = json!({"openapi": "3.0.3", "servers": [{"url": format!("http://{address}")}], "paths": paths});
    let config = "[apis.l]\nspec = \"l.json\"\n";
    let project = Project::new(&[("moonlark.toml", config), ("l.json", &document.to_string())]);
    let server = project.serve();
    source(&server, "l");
    let pages = |style: &str| {
        count.store(0, Ordering::SeqCst);
        let script = format!(
            "local firsts = {{}}
            for page in paginate(sdk.l.{style}, {{}}) do
                local list = page.results or page.items or page.data or page
                table.insert(firsts, list[1] or 'empty')
            end
            return firsts"
        );
        (execute(&server, &script), count.load(Ordering::SeqCst))
    };
    for style in STYLES {
        assert_eq!(pages(style), (json!([10, 20, 30]), 3), "{style}");
    }
    // Where nothing says how many there are, one more has to be asked for, and only
    // the caller of the API hears of it.
    for style in ["counted", "counted_clamped", "counted_404"] {
        assert_eq!(pages(style), (json!([10, 20, 30]), 4), "{style}");
    }
    let listed = server.post("list_functions", &json!({"source": "l", "tag": "Lists"})).1;
    assert!(listed.to_string().contains("sdk.l.cursor"), "{listed}");
}
