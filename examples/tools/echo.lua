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
    return {
        echo = "Echo: " .. table.concat(table.create(params.times, params.message), " "),
        source_count = #context.sources(),
    }
end
