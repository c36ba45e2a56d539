//! The same documentation as resources, `sdk://SOURCE/…`, and what scripts have
//! left behind, `artifact://HANDLE`.
//!
//! Both are read through a door like those of upstream servers: a tool that
//! takes `{method, params}`.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use moonlark_core::artifacts::Held;
use moonlark_core::content::Answer;
use moonlark_core::offers::{Offers, Watcher};
use moonlark_core::schema::Schema;
use moonlark_core::sdk::SdkSource;
use moonlark_core::tool::{Body, Effects, Shown};
use moonlark_core::value::{Object, shorten};
use moonlark_core::{Call, Catalog, Code, Problem, Result, Tool, Value};
use serde_json::{Map, Value as Json, json};

use crate::search::source_named;
use crate::{docs, list};

const SDK: &str = "sdk://";
const ARTIFACT: &str = "artifact://";
/// Functions whose types are on one page.
const MOST: usize = 1000;
/// Names that complete one.
const COMPLETIONS: usize = 100;

/// One overview for each source; the rest by template.
pub(crate) fn sdk(catalog: &Catalog) -> Offers {
    let overview = |source: &SdkSource| {
        json!({
            "uri": format!("{SDK}{}/overview", source.name),
            "name": source.name,
            "description": format!("What {} can do", source.original),
            "mimeType": "text/plain",
        })
    };
    let template = |path: &str, name: &str, description: &str| {
        json!({
            "uriTemplate": format!("{SDK}{{source}}/{path}"),
            "name": name,
            "description": description,
            "mimeType": "text/plain",
        })
    };
    offers(
        SDK,
        catalog.sdk().sources().iter().map(overview).collect(),
        vec![
            template("overview", "overview", "A source and its functions"),
            template("functions", "functions", "All functions of a source, one line each"),
            template("functions/{name}", "function", "Everything about a function"),
            template("schemas", "schemas", "All types of a source"),
        ],
    )
}

pub(crate) fn artifacts() -> Offers {
    let template = json!({
        "uriTemplate": format!("{ARTIFACT}{{handle}}"),
        "name": "artifact",
        "description": "A result that was too large to answer with",
    });
    offers(ARTIFACT, Vec::new(), vec![template])
}

fn offers(uris: &str, resources: Vec<Json>, templates: Vec<Json>) -> Offers {
    let objects = |list: Vec<Json>| Arc::new(list.into_iter().map(object).collect::<Vec<_>>());
    Offers {
        app_uris: Arc::default(),
        source: crate::source(),
        uris: uris.to_owned(),
        names: String::new(),
        resources: objects(resources),
        templates: objects(templates),
        prompts: Arc::default(),
        capabilities: Arc::new(object(json!({"resources": {}}))),
        instructions: None,
        door: Arc::new(door(uris)),
        watcher: Arc::new(Unwatched),
    }
}

/// Nothing here is watched, so nothing is released.
struct Unwatched;

impl Watcher for Unwatched {
    fn release(&self, _lease: u64) {}
}

fn door(uris: &str) -> Tool {
    let body = Body::answering(|call: Call, args| async move {
        let method = args.get("method").and_then(Value::as_str).unwrap_or_default();
        let params = args.get("params").unwrap_or(&Value::Null);
        let answer = match method {
            "resources/read" => read(&call, text(params, "uri"))?,
            "completion/complete" => complete(&call, params),
            _ => {
                return Err(Problem::bad_request(format!(
                    "these resources know no {}",
                    shorten(method)
                )));
            }
        };
        let mut answer = object(answer);
        answer.insert("resultType".to_owned(), "complete".into());
        Ok(Answer::Raw(answer))
    });
    let mut tool = Tool::new(uris, crate::source(), Schema::described(Map::new()), body);
    tool.effects = Effects::READ;
    tool.shown = Shown::Not;
    tool
}

fn read(call: &Call, uri: &str) -> Result<Json> {
    let contents = match uri.strip_prefix(ARTIFACT) {
        Some(handle) => artifact(call, uri, handle)?,
        None => {
            let page = page(call, uri.strip_prefix(SDK).unwrap_or(uri))?;
            json!({"uri": uri, "mimeType": "text/plain", "text": page})
        }
    };
    Ok(json!({"contents": [contents]}))
}

/// `SOURCE/overview`, `SOURCE/functions`, `SOURCE/functions/NAME`,
/// `SOURCE/schemas`.
fn page(call: &Call, path: &str) -> Result<String> {
    let catalog = call.catalog();
    let (source, rest) = path.split_once('/').unwrap_or((path, "overview"));
    let source = source_named(catalog.sdk(), source)?;
    let lines = || source.functions.iter().map(|it| list::line(source, it)).collect::<String>();
    match rest.split_once('/').unwrap_or((rest, "")) {
        ("overview", "") => Ok(format!("{}{}", list::heading(catalog, source), lines())),
        ("functions", "") => Ok(lines()),
        ("functions", name) => {
            let function = source.function(name).ok_or_else(|| source.unknown(name))?;
            Ok(docs::page(&[(source, function)], call))
        }
        ("schemas", "") => Ok(docs::types(source, MOST, call)),
        _ => Err(Problem::new(Code::NotFound, format!("there is no {SDK}{}", shorten(path)))
            .hint("there are overview, functions, functions/NAME and schemas")),
    }
}

fn artifact(call: &Call, uri: &str, handle: &str) -> Result<Json> {
    let stored = call.gateway().artifacts().find(handle, call.caller())?;
    Ok(match &stored.held {
        Held::Value(Value::Str(text)) => {
            json!({"uri": uri, "mimeType": "text/plain", "text": text})
        }
        Held::Value(Value::Bytes(bytes)) => {
            json!({"uri": uri, "mimeType": "application/octet-stream", "blob": STANDARD.encode(bytes)})
        }
        Held::Value(value) => {
            let text = value.to_json_lossy().to_string();
            json!({"uri": uri, "mimeType": "application/json", "text": text})
        }
        Held::Bytes { bytes, mime } => {
            json!({"uri": uri, "mimeType": mime, "blob": STANDARD.encode(bytes)})
        }
    })
}

/// Names of sources and functions that begin as the client has begun.
fn complete(call: &Call, params: &Value) -> Json {
    let argument = params.get("argument").unwrap_or(&Value::Null);
    let (what, begun) = (text(argument, "name"), text(argument, "value"));
    let sdk = call.catalog().sdk();
    let given = params.get("context").and_then(|it| it.get("arguments"));
    let source = given.and_then(|it| it.get("source")).and_then(Value::as_str);
    let names: Vec<&str> = match what {
        "source" => sdk.sources().iter().map(|it| it.name.as_str()).collect(),
        "name" => {
            let of = sdk.sources().iter().filter(|it| source.is_none_or(|name| it.name == name));
            of.flat_map(|it| it.functions.iter().map(|it| it.name.as_str())).collect()
        }
        _ => Vec::new(),
    };
    let fitting: Vec<&str> = names.into_iter().filter(|it| it.starts_with(begun)).collect();
    json!({"completion": {
        "values": &fitting[..fitting.len().min(COMPLETIONS)],
        "total": fitting.len(),
        "hasMore": fitting.len() > COMPLETIONS,
    }})
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn object(json: Json) -> Object {
    match Value::from_json(json) {
        Ok(Value::Object(object)) => object,
        _ => Object::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{enter, world};

    async fn ask(uri: &str, method: &str, params: Json) -> Result<Json> {
        let world = world();
        let all = crate::offers(&world.catalog());
        let offers = moonlark_core::offers::of_uri(&all, uri).unwrap();
        let args = Value::from_json(json!({"method": method, "params": params}))?;
        let call = enter(&world);
        world.ask_tool(&call, &offers.door, args).await?.into_plain().into_json("answer")
    }

    async fn read(uri: &str) -> String {
        match ask(uri, "resources/read", json!({"uri": uri})).await {
            Ok(answer) => answer["contents"][0]["text"].as_str().unwrap().to_owned(),
            Err(problem) => problem.to_string(),
        }
    }

    #[tokio::test]
    async fn every_page_of_a_source_can_be_read() {
        for (uri, expected) in [
            ("sdk://files/overview", "sdk.files: 1 function\nsdk.files.read_file: Read a file.\n"),
            ("sdk://files/functions", "sdk.files.read_file: Read a file.\n"),
            (
                "sdk://files/functions/read_file",
                "-- Read a file.\nfunction sdk.files.read_file(args: { path: string }): any\n\n-- for example:\nlocal value = sdk.files.read_file({ path = \"…\" })\n",
            ),
            ("sdk://files/schemas", ""),
            (
                "sdk://git-hub/schemas",
                "export type Label = {\n    name: string,\n    color: (\"red\" | \"blue\")?,\n}\n",
            ),
            (
                "sdk://fils/overview",
                "error[not_found]: there is no source sdk.fils\nhint: did you mean sdk.files?",
            ),
            (
                "sdk://files/x",
                "error[not_found]: there is no sdk://files/x\nhint: there are overview, functions, functions/NAME and schemas",
            ),
        ] {
            assert_eq!(read(uri).await, expected, "{uri}");
        }
    }

    #[tokio::test]
    async fn names_are_completed() {
        let params = json!({"argument": {"name": "name", "value": "c"}});
        let answer = ask("sdk://{source}/functions/{name}", "completion/complete", params).await;
        assert_eq!(answer.unwrap()["completion"]["values"], json!(["create_issue"]));
        let refused = ask("sdk://files/overview", "resources/subscribe", json!({})).await;
        assert_eq!(refused.unwrap_err().code, Code::BadRequest);
    }

    #[tokio::test]
    async fn an_artifact_is_read_whole() {
        let world = world();
        let put = |value: Json| {
            let value = Value::from_json(value).unwrap();
            world.artifacts().put(value, "test", &Default::default()).unwrap()
        };
        let (list, text) = (put(json!([1, {"a": null}])), put(json!("plain")));
        let bytes =
            world.artifacts().put_bytes(vec![1, 2], "image/png", "test", &Default::default());
        let call = enter(&world);
        let read = |handle: &str| super::read(&call, &format!("artifact://{handle}")).unwrap();
        assert_eq!(read(list.as_str())["contents"][0]["text"], "[1,{\"a\":null}]");
        assert_eq!(read(text.as_str())["contents"][0]["mimeType"], "text/plain");
        assert_eq!(read(bytes.unwrap().as_str())["contents"][0]["blob"], "AQI=");
    }
}
