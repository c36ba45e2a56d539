//! `data`: JSON files that lie beside scripts.

use moonlark_core::value::shorten_text;
use moonlark_core::{Module, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::fs;
use crate::json::decode_json_within;

pub(crate) fn module() -> Module {
    Module::new("data", "Read data that lies beside scripts.")
        .async_function(
            "load_json",
            "The value in a JSON file. In Starlark the path begins at the extensions folder, and a \
             file that is read while the extension loads is part of it: a change of either loads \
             it again. In Luau it begins at the script's directory.",
            load_json,
        )
        .mocked_example(
            json!({"path": "catalog.json"}),
            json!([{"name": "tea", "price": 5}, {"name": "milk", "price": 2}]),
        )
        .fails(json!({"path": "missing.json"}), "no file missing.json")
        .fails(json!({"path": "../x.json"}), "leave the script's directory")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DataLoadJsonArgs {
    /// The file.
    path: String,
}

async fn load_json(call: Call, args: DataLoadJsonArgs) -> Result<Value> {
    const FUNCTION_NAME: &str = "data.load_json";
    let most = call.limits().value;
    let dir = call.grants().check_shared_dir(FUNCTION_NAME)?;
    fs::spawn_blocking_in_dir(FUNCTION_NAME, dir, move |dir| {
        let text = dir.read_file(&args.path, most)?;
        decode_json_within(&text, most).map_err(|mut problem| {
            problem.message = format!("{}: {}", shorten_text(&args.path), problem.message);
            problem
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use moonlark_core::ProblemCode;

    use super::*;
    use crate::test_calls::{call, limited, scope};

    #[tokio::test]
    async fn a_file_of_the_shared_folder_is_read_and_nothing_outside_it() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        std::fs::create_dir_all(own.join("lists")).unwrap();
        std::fs::write(own.join("lists/a.json"), r#"{"a": [1, null]}"#).unwrap();
        std::fs::write(own.join("bad.json"), "{\"a\": }").unwrap();
        std::fs::write(dir.path().join("other.json"), "1").unwrap();
        std::os::unix::fs::symlink("../other.json", own.join("link.json")).unwrap();
        let mut scope = scope(&own.join("lists"), &[]);
        scope.grants = scope.grants.with_shared_dir(own.clone());
        let read = |path: &str| call(scope.clone(), "data.load_json", json!({ "path": path }));
        let value = read("lists/a.json").await.unwrap();
        assert_eq!(value.encode_json("value").unwrap(), r#"{"a":[1,null]}"#);
        for (path, code) in [
            ("link.json", ProblemCode::Denied),
            ("../other.json", ProblemCode::Denied),
            ("a.json", ProblemCode::NotFound),
            ("lists", ProblemCode::BadRequest),
            ("bad.json", ProblemCode::BadRequest),
        ] {
            let problem = read(path).await.unwrap_err();
            assert_eq!(problem.code, code, "{path}: {problem}");
            assert!(problem.message.starts_with("data.load_json"), "{problem}");
        }
        let small = limited(scope.clone(), |limits| limits.value = 8);
        let problem =
            call(small, "data.load_json", json!({"path": "lists/a.json"})).await.unwrap_err();
        assert_eq!(problem.code, ProblemCode::Limit, "{problem}");
    }
}
