//! Templates of `moonlark tool init` and `connector init`.

use std::io::Write;
use std::path::Path;

use moonlark_core::Problem;

use super::io_problem;

/// Refuse what cannot be the name of a tool or connector and of its file.
pub(crate) fn check_script_name(name: &str, what: &str) -> Result<(), Problem> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) {
        return Err(Problem::bad_request(format!("{name:?} cannot be the name of a {what}"))
            .with_hint("use letters, digits, - and _"));
    }
    Ok(())
}

/// Write a file where there is none.
pub(crate) fn write_new_file(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::File::create_new(path)?.write_all(text.as_bytes())
}

/// Why that did not work.
pub(crate) fn new_file_problem(label: &str, error: &std::io::Error) -> Problem {
    match error.kind() {
        std::io::ErrorKind::AlreadyExists => already_exists_problem(label),
        _ => io_problem("write", label, error),
    }
}

pub(crate) fn already_exists_problem(label: &str) -> Problem {
    Problem::bad_request(format!("{label} is there already"))
        .with_hint("choose another name, or remove the file first")
}

/// A Lua tool.
pub(crate) fn tool_script(file: &str) -> String {
    fill_template(TOOL_TEMPLATE, file)
}

/// The test beside it.
pub(crate) fn tool_test_script(file: &str) -> String {
    fill_template(TOOL_TEST_TEMPLATE, file)
}

/// A Starlark extension with one tool.
pub(crate) fn extension_script(file: &str) -> String {
    fill_template(EXTENSION_TEMPLATE, file)
}

/// The test beside it.
pub(crate) fn extension_test_script(file: &str) -> String {
    fill_template(EXTENSION_TEST_TEMPLATE, file)
}

/// A Lua connector.
pub(crate) fn connector_script(file: &str) -> String {
    fill_template(CONNECTOR_TEMPLATE, file)
}

/// `file` is the name without its ending; the tool's own has no `-`.
fn fill_template(template: &str, file: &str) -> String {
    template.replace("FILE", file).replace("NAME", &file.replace('-', "_"))
}

const TOOL_TEMPLATE: &str = r#"-- A tool for every agent, over MCP and REST.
-- Try it:  moonlark tool test tools/FILE.lua --param name=World
tool = {
    name = "NAME",
    version = "0.1.0",
    description = "Say what this tool does, in one line an agent can act on",
    parameters = {
        {
            name = "name",
            type = "string",
            required = true,
            description = "Who to greet",
        },
        {
            name = "loud",
            type = "boolean",
            default = false,
            description = "Greet in capitals",
        },
    },
    -- What it does to the world: agents and operators rely on this.
    annotations = { read_only = true },
}

-- params:  validated, with defaults filled in
-- context: config (its keys under [tools.script.NAME] in moonlark.toml),
--          call(tool, args), progress(done, total, message)
function tool.execute(params, context)
    local greeting = "Hello, " .. params.name .. "!"
    if params.loud then
        greeting = greeting:upper()
    end
    log.info("greeted " .. params.name)
    return { greeting = greeting }
end
"#;

const TOOL_TEST_TEMPLATE: &str = r#"-- testing.call goes the way of every caller: parameters are checked and defaults
-- filled in. require("./FILE").execute(params, testing.context()) goes past that.
function test_it_greets()
    testing.eq(testing.call("NAME", { name = "Ann" }), { greeting = "Hello, Ann!" })
end

function test_it_can_be_loud()
    testing.eq(testing.call("NAME", { name = "Ann", loud = true }), { greeting = "HELLO, ANN!" })
end

function test_a_name_is_needed()
    testing.raises(function()
        testing.call("NAME", {})
    end, "name")
end
"#;

const CONNECTOR_TEMPLATE: &str = r#"-- A source of the knowledge base: what it finds can be searched.
-- Try it:  moonlark connector test connectors/FILE.luau
-- Use it:  moonlark sync FILE
connector = {
    name = "NAME",
    version = "0.1.0",
    description = "Say what this brings, in one line",
}

-- config: its keys under [connectors.script.FILE] in moonlark.toml
-- Return a list of items or an iterator, or call emit(item) for each.
--
-- A scan that names everything is complete: missing documents are removed. To
-- read only what is new, keep a cursor in the table `state`, which survives
-- until the next scan, and name what is gone: { source_id = …, deleted = true }.
function connector.scan(config)
    local items = {}
    for number, word in { "hello", "world" } do
        table.insert(items, {
            source_id = `greeting/{number}`,
            title = `The word {word}`,
            body = `This document is about the word {word}.`,
            metadata = { number = number },
        })
    end
    return items
end
"#;

const EXTENSION_TEMPLATE: &str = r#"# A tool for every agent, over MCP and REST.
# Try it:  moonlark tool test extensions/FILE.star --param name=World
# Test it: moonlark test

# params:  validated, with defaults filled in
# context: config (its keys under [extensions.script.FILE] in moonlark.toml),
#          call(tool, args)
def greet(params, context):
    greeting = "Hello, " + params["name"] + "!"
    if params["loud"]:
        greeting = greeting.upper()
    log.info("greeted " + params["name"])
    return {"greeting": greeting}

def describe_extension():
    return Extension(
        name = "NAME",
        version = "0.1.0",
        description = "Say what these tools are for",
        # Commands it may run, if the operator allows them too.
        allowed_exec = [],
        tools = [
            Tool(
                name = "NAME",
                description = "Say what this tool does, in one line an agent can act on",
                parameters = [
                    ToolParameter(name = "name", param_type = "string", required = True, description = "Who to greet"),
                    ToolParameter(name = "loud", param_type = "boolean", default = False, description = "Greet in capitals"),
                ],
                handler = greet,
                # What it does to the world: agents and operators rely on this.
                annotations = {"read_only": True},
            ),
        ],
    )
"#;

const EXTENSION_TEST_TEMPLATE: &str = r#"load("FILE.star", "greet")

# testing.call goes the way of every caller: parameters are checked and defaults
# filled in. A handler that is called itself gets just what the test gives it.
def test_it_greets():
    testing.eq(testing.call("NAME", {"name": "Ann"}), {"greeting": "Hello, Ann!"})

def test_it_can_be_loud():
    testing.eq(greet({"name": "Ann", "loud": True}, testing.context()), {"greeting": "HELLO, ANN!"})
"#;
