//! The same documentation as resources, `sdk://SOURCE/…`, and what scripts have
//! left behind, `artifact://HANDLE`.
//!
//! Both are read through a door like those of upstream servers: a tool that
//! takes `{method, params}`.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use moonlark_core::content::ToolAnswer;
use moonlark_core::schema::Schema;
use moonlark_core::sdk::SdkSource;
use moonlark_core::source_resources::{ResourceWatcher, SourceResources};
use moonlark_core::tool::{CallEffects, ToolListing};
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Catalog, Problem, Result, Tool, Value};
use moonlark_gateway::Call;
use moonlark_gateway::artifacts::ArtifactContent;
use moonlark_gateway::tool_body::ToolBody;
use serde_json::{Map, Value as Json, json};

use crate::function_search::find_source;
use crate::{function_docs, function_list};

const SDK_URI_PREFIX: &str = "sdk://";
const ARTIFACT_URI_PREFIX: &str = "artifact://";
/// Functions whose types are on one page.
const MAX_SCHEMA_PAGE_FUNCTIONS: usize = 1000;
/// Names that complete one.
const MAX_COMPLETIONS: usize = 100;

/// One overview for each source; the rest by template.
pub(crate) fn sdk_resources(catalog: &Catalog) -> SourceResources {
    let overview = |source: &SdkSource| {
        json!({
            "uri": format!("{SDK_URI_PREFIX}{}/overview", source.name),
            "name": source.name,
            "description": format!("What {} can do", source.original),
            "mimeType": "text/plain",
        })
    };
    let template = |path: &str, name: &str, description: &str| {
        json!({
            "uriTemplate": format!("{SDK_URI_PREFIX}{{source}}/{path}"),
            "name": name,
            "description": description,
            "mimeType": "text/plain",
        })
    };
    build_resources(
        SDK_URI_PREFIX,
        catalog.sdk().sources().iter().map(overview).collect(),
        vec![
            template("overview", "overview", "A source and its functions"),
            template("functions", "functions", "All functions of a source, one line each"),
            template("functions/{name}", "function", "Everything about a function"),
            template("schemas", "schemas", "All types of a source"),
        ],
    )
}

pub(crate) fn artifact_resources() -> SourceResources {
    let template = json!({
        "uriTemplate": format!("{ARTIFACT_URI_PREFIX}{{handle}}"),
        "name": "artifact",
        "description": "A result that was too large to answer with",
    });
    build_resources(ARTIFACT_URI_PREFIX, Vec::new(), vec![template])
}

fn build_resources(uris: &str, resources: Vec<Json>, templates: Vec<Json>) -> SourceResources {
    let objects = |list: Vec<Json>| Arc::new(list.into_iter().map(to_object).collect::<Vec<_>>());
    SourceResources {
        app_uris: Arc::default(),
        source: crate::builtin_source(),
        uris: uris.to_owned(),
        names: String::new(),
        resources: objects(resources),
        templates: objects(templates),
        prompts: Arc::default(),
        capabilities: Arc::new(to_object(json!({"resources": {}}))),
        instructions: None,
        door: Arc::new(passthrough_tool(uris)),
        watcher: Arc::new(UnwatchedResources),
    }
}

/// Nothing here is watched, so nothing is released.
struct UnwatchedResources;

impl ResourceWatcher for UnwatchedResources {
    fn release_lease(&self, _lease: u64) {}
}

fn passthrough_tool(uris: &str) -> Tool {
    let body = ToolBody::from_answering_fn(|call: Call, args| async move {
        let method = args.get("method").and_then(Value::as_str).unwrap_or_default();
        let params = args.get("params").unwrap_or(&Value::Null);
        let answer = match method {
            "resources/read" => read_resource(&call, text_field(params, "uri"))?,
            "completion/complete" => complete_argument(&call, params),
            other => {
                let message = format!("these resources know no {}", shorten_text(other));
                return Err(Problem::bad_request(message));
            }
        };
        let mut answer = to_object(answer);
        answer.insert("resultType".to_owned(), "complete".into());
        Ok(ToolAnswer::Raw(answer))
    });
    let mut tool =
        Tool::new(uris, crate::builtin_source(), Schema::description_only(Map::new()), body);
    tool.effects = CallEffects::READ_ONLY;
    tool.shown = ToolListing::Not;
    tool
}

fn read_resource(call: &Call, uri: &str) -> Result<Json> {
    let contents = match uri.strip_prefix(ARTIFACT_URI_PREFIX) {
        Some(handle) => read_artifact(call, uri, handle)?,
        None => {
            let page = read_sdk_page(call, uri.strip_prefix(SDK_URI_PREFIX).unwrap_or(uri))?;
            json!({"uri": uri, "mimeType": "text/plain", "text": page})
        }
    };
    Ok(json!({"contents": [contents]}))
}

/// `SOURCE/overview`, `SOURCE/functions`, `SOURCE/functions/NAME`,
/// `SOURCE/schemas`.
fn read_sdk_page(call: &Call, path: &str) -> Result<String> {
    let catalog = call.catalog();
    let (source, rest) = path.split_once('/').unwrap_or((path, "overview"));
    let source = find_source(catalog.sdk(), source)?;
    let line = |function| function_list::function_line(source, function);
    let lines = || source.functions.iter().map(line).collect::<String>();
    match rest.split_once('/').unwrap_or((rest, "")) {
        ("overview", "") => {
            Ok(format!("{}{}", function_list::source_heading(catalog, source), lines()))
        }
        ("functions", "") => Ok(lines()),
        ("functions", name) => {
            let function =
                source.find_function(name).ok_or_else(|| source.unknown_function_problem(name))?;
            Ok(function_docs::render_functions(&[(source, function)], call))
        }
        ("schemas", "") => {
            Ok(function_docs::render_source_types(source, MAX_SCHEMA_PAGE_FUNCTIONS, call))
        }
        _ => Err(Problem::not_found(format!("there is no {SDK_URI_PREFIX}{}", shorten_text(path)))
            .with_hint("there are overview, functions, functions/NAME and schemas")),
    }
}

fn read_artifact(call: &Call, uri: &str, handle: &str) -> Result<Json> {
    let stored = call.gateway().artifacts().find_for_caller(handle, call.caller())?;
    Ok(match &stored.held {
        ArtifactContent::Value(Value::Str(text)) => {
            json!({"uri": uri, "mimeType": "text/plain", "text": text})
        }
        ArtifactContent::Value(Value::Bytes(bytes)) => {
            json!({"uri": uri, "mimeType": "application/octet-stream", "blob": STANDARD.encode(bytes)})
        }
        ArtifactContent::Value(value) => {
            let text = value.to_json_lossy().to_string();
            json!({"uri": uri, "mimeType": "application/json", "text": text})
        }
        ArtifactContent::Bytes { bytes, mime } => {
            json!({"uri": uri, "mimeType": mime, "blob": STANDARD.encode(bytes)})
        }
    })
}

/// Names of sources and functions that begin as the client has begun.
fn complete_argument(call: &Call, params: &Value) -> Json {
    let argument = params.get("argument").unwrap_or(&Value::Null);
    let (what, begun) = (text_field(argument, "name"), text_field(argument, "value"));
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
        "values": &fitting[..fitting.len().min(MAX_COMPLETIONS)],
        "total": fitting.len(),
        "hasMore": fitting.len() > MAX_COMPLETIONS,
    }})
}

fn text_field<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn to_object(json: Json) -> Object {
    match Value::from_json(json) {
        Ok(Value::Object(object)) => object,
        _ => Object::new(),
    }
}

#[cfg(test)]
mod tests {
    use moonlark_core::ProblemCode;

    use super::*;
    use crate::test_catalog::{enter, world};

    async fn ask(uri: &str, method: &str, params: Json) -> Result<Json> {
        let world = world();
        let all = crate::discovery_resources(&world.catalog());
        let offers = moonlark_core::source_resources::resources_for_uri(&all, uri).unwrap();
        let args = Value::from_json(json!({"method": method, "params": params}))?;
        let call = enter(&world);
        world.invoke(&call, &offers.door, args).await?.into_plain_value().into_json("answer")
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
        assert_eq!(refused.unwrap_err().code, ProblemCode::BadRequest);
    }

    #[tokio::test]
    async fn an_artifact_is_read_whole() {
        let world = world();
        let put = |value: Json| {
            let value = Value::from_json(value).unwrap();
            world.artifacts().put_value(value, "test", &Default::default()).unwrap()
        };
        let (list, text) = (put(json!([1, {"a": null}])), put(json!("plain")));
        let bytes = world.artifacts().put_bytes_as(
            moonlark_gateway::artifacts::ArtifactHandle::new_random().unwrap(),
            vec![1, 2],
            "image/png",
            "test",
            &Default::default(),
        );
        let call = enter(&world);
        let read =
            |handle: &str| super::read_resource(&call, &format!("artifact://{handle}")).unwrap();
        assert_eq!(read(list.as_str())["contents"][0]["text"], "[1,{\"a\":null}]");
        assert_eq!(read(text.as_str())["contents"][0]["mimeType"], "text/plain");
        assert_eq!(read(bytes.unwrap().as_str())["contents"][0]["blob"], "AQI=");
    }
}
