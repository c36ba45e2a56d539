//! What `moonlark tool init` writes.

pub(crate) fn tool(name: &str) -> String {
    TEMPLATE.replace("NAME", name)
}

const TEMPLATE: &str = r#"-- A tool for every agent, over MCP and REST.
-- Try it:  moonlark tool test tools/NAME.lua --param name=World
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
