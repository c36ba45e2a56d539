//! `env`: the environment variables that the operator allows.

use moonlark_core::value::shorten_text;
use moonlark_core::{Module, Problem, Result};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

pub(crate) fn module() -> Module {
    Module::new("env", "Read environment variables.")
        .function(
            "get",
            "Read a variable. One that is not set gives the default, or nothing; one that is not \
             allowed is an error either way.",
            get,
        )
        .positional_params(&["default"])
        .needs("env:NAME")
        .mocked_example(json!({"name": "TICKETS_URL"}), json!("https://tickets.example.com"))
        .mocked_example(json!({"name": "TICKETS_PROJECT", "default": "OPS"}), json!("OPS"))
        .fails(json!({"name": "SECRET"}), "may not read the variable SECRET")
        .fails(json!({"name": "SECRET", "default": "x"}), "may not read the variable SECRET")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EnvGetArgs {
    /// The variable's name.
    name: String,
    /// The result when the variable is not set.
    default: Option<String>,
}

fn get(call: &Call, args: EnvGetArgs) -> Result<Option<String>> {
    let allowed = call.grants().check_env("env.get", &args.name)?;
    match std::env::var_os(allowed.name()) {
        None => Ok(args.default),
        Some(value) => value.into_string().map(Some).map_err(|_| {
            let name = shorten_text(&args.name);
            Problem::bad_request(format!("the variable {name} is not UTF-8 text"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use moonlark_core::Value;
    use serde_json::json;

    use crate::test_calls::{call, problem, scope};

    #[tokio::test]
    async fn an_allowed_variable_is_read_and_no_other() {
        let scope = |grants: &[&str]| scope(Path::new("."), grants);
        let read = |name: &str| json!({"name": name});
        let path = call(scope(&["env:PATH"]), "env.get", read("PATH")).await.unwrap();
        assert_eq!(path, Value::from(std::env::var("PATH").unwrap()));
        assert_eq!(
            problem(scope(&["env:PATH"]), "env.get", read("HOME")).await,
            "error[denied]: env.get may not read the variable HOME\nhint: add \"env:HOME\" to allow for tools.script.test in moonlark.toml"
        );
        // A name is matched whole: no pattern, no second variable in it.
        for name in ["PATH\0", "PAT", "path", "*", "", "PATH=", "PATH\nHOME"] {
            let text = problem(scope(&["env:PATH"]), "env.get", read(name)).await;
            assert!(text.starts_with("error[denied]"), "{name:?}: {text}");
        }
    }

    #[tokio::test]
    async fn an_unset_variable_is_the_default_or_nothing() {
        let scope = || scope(Path::new("."), &["env:MOONLARK_UNSET"]);
        let args = json!({"name": "MOONLARK_UNSET"});
        assert_eq!(call(scope(), "env.get", args).await.unwrap(), Value::Null);
        let args = json!({"name": "MOONLARK_UNSET", "default": "x"});
        assert_eq!(call(scope(), "env.get", args).await.unwrap(), Value::from("x"));
    }
}
