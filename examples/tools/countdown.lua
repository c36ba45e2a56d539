tool = {
    name = "countdown",
    version = "1.0.0",
    description = "Count down, reporting progress; shows streaming and cancellation",
    parameters = {
        { name = "from", type = "integer", minimum = 1, maximum = 1000, default = 3, description = "Where to start" },
        { name = "pause", type = "number", minimum = 0, maximum = 10, default = 0.1, description = "Seconds between two steps" },
    },
    annotations = { read_only = true, open_world = false },
}

function tool.execute(params, context)
    for step = 1, params.from do
        sleep(params.pause)
        context.progress(step, params.from, (params.from - step) .. " to go")
    end
    log.info("lift-off", { from = params.from })
    return { done = true, counted = params.from }
end
