//! Projects to serve: an echo tool that uses nothing but its parameters, and as many like
//! it as asked for.

use anyhow::Result;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(super) const ECHO: &str = r#"
tool = {
    name = "echo",
    version = "1.0.0",
    description = "Echoes back the input message",
    parameters = {
        { name = "message", type = "string", required = true, description = "What to say" },
        { name = "times", type = "integer", minimum = 1, maximum = 10, default = 1, description = "How often" },
    },
    annotations = { read_only = true, idempotent = true, open_world = false },
}

function tool.execute(params, context)
    return { echo = "Echo: " .. table.concat(table.create(params.times, params.message), " ") }
end
"#;
pub(super) const DESCRIPTION: &str = "Echoes back the input message";

pub(super) const WAIT: &str = r#"
tool = {
    name = "wait",
    description = "Waits",
    parameters = { { name = "seconds", type = "number", required = true } },
}

function tool.execute(params, context)
    sleep(params.seconds)
    return { waited = params.seconds }
end
"#;

/// A project with `count` tools, one of them `echo`.
pub(super) fn project(count: usize) -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("bench-").tempdir()?;
    let tools = folder.path().join("tools");
    std::fs::create_dir(&tools)?;
    // Its own configuration, or that of the user would count.
    std::fs::write(folder.path().join("moonlark.toml"), "")?;
    std::fs::write(tools.join("echo.lua"), ECHO)?;
    for index in 1..count {
        let name = name(index);
        std::fs::write(tools.join(format!("{name}.lua")), named(&name))?;
    }
    Ok(folder)
}

pub(super) const STARLARK_ECHO: &str = r#"
def echo(params):
    return {"echo": "Echo: " + params["message"]}

def describe_extension():
    return Extension(
        name = "echo",
        version = "1.0.0",
        description = "Echo",
        tools = [
            Tool(
                name = "echo",
                description = "Echoes back the input message",
                parameters = [ToolParameter(name = "message", param_type = "string", required = True, description = "What to say")],
                handler = echo,
            ),
        ],
    )
"#;

/// A project with `count` Starlark extensions of one tool each, one of them `echo`.
pub(super) fn starlark_project(count: usize) -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("bench-").tempdir()?;
    let extensions = folder.path().join("extensions");
    std::fs::create_dir(&extensions)?;
    std::fs::write(folder.path().join("moonlark.toml"), "")?;
    std::fs::write(extensions.join("echo.star"), STARLARK_ECHO)?;
    for index in 1..count {
        let name = name(index);
        let text = STARLARK_ECHO.replace("name = \"echo\"", &format!("name = {name:?}"));
        std::fs::write(extensions.join(format!("{name}.star")), text)?;
    }
    Ok(folder)
}

/// The name of the tool `index`, counted from 1; `echo` comes before it.
pub(super) fn name(index: usize) -> String {
    format!("echo_{index:04}")
}

/// The echo script under another name.
pub(super) fn named(name: &str) -> String {
    ECHO.replacen("\"echo\"", &format!("{name:?}"), 1)
}

/// The input schema that the echo script's parameters become.
pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "message": {"type": "string", "description": "What to say"},
            "times": {
                "type": "integer", "description": "How often",
                "default": 1, "minimum": 1, "maximum": 10,
            },
        },
        "required": ["message"],
        "additionalProperties": false,
    })
}
