-- A prompt for MCP clients, which offer it to their users: "review", with a text
-- to look at. What the tools say about the text is in the prompt already.
agent = {
    name = "review",
    title = "Review a text",
    description = "Look at a text and suggest how to make it shorter",
    tools = { "text_stats" },
    arguments = {
        { name = "text", description = "The text", required = true },
        { name = "audience", description = "Who is to read it", default = "colleagues" },
    },
}

function agent.resolve(args, config, context)
    local stats = context.call("text_stats", { text = args.text })
    return {
        system = `You edit texts for {args.audience}. {config.style or "Plain words, short sentences."}`,
        messages = {
            { role = "user", content = `This text has {stats.words} words. Make it shorter:\n\n{args.text}` },
        },
    }
end
