tool = {
    name = "report",
    version = "1.0.0",
    description = "A short report on a text, made by calling two other tools",
    parameters = {
        { name = "text", type = "string", required = true, description = "The text to report on" },
    },
    annotations = { read_only = true, open_world = false },
}

function tool.execute(params, context)
    local stats = context.call("text_stats", { text = params.text, top = 1 })
    local headline = context.call("echo", { message = context.config.title or "Report" })
    local favourite = if stats.frequent[1] then stats.frequent[1].word else "none"
    return {
        title = headline.echo,
        summary = `{stats.words} words on {stats.lines} lines; most frequent: {favourite}`,
        made_at = time.format(time.now(), "%Y-%m-%d"),
        for_surface = context.caller.surface,
    }
end
