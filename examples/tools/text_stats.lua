tool = {
    name = "text_stats",
    version = "1.0.0",
    description = "Count the characters, words and lines of a text, and find its most frequent words",
    parameters = {
        { name = "text", type = "string", required = true, description = "The text" },
        { name = "top", type = "integer", minimum = 0, maximum = 100, default = 3, description = "How many frequent words" },
    },
    output = {
        type = "object",
        properties = {
            characters = { type = "integer" },
            words = { type = "integer" },
            lines = { type = "integer" },
            frequent = { type = "array" },
        },
        required = { "characters", "words", "lines", "frequent" },
    },
    annotations = { read_only = true, idempotent = true, open_world = false },
}

function tool.execute(params, context)
    local counts, words = {}, 0
    for word in params.text:lower():gmatch("%w+") do
        counts[word] = (counts[word] or 0) + 1
        words += 1
    end

    local frequent = {}
    for word, count in counts do
        table.insert(frequent, { word = word, count = count })
    end
    table.sort(frequent, function(a, b)
        if a.count ~= b.count then return a.count > b.count end
        return a.word < b.word
    end)

    return {
        characters = utf8.len(params.text) or #params.text,
        words = words,
        lines = #params.text:split("\n"),
        -- json.array keeps an empty list a list.
        frequent = json.array({ unpack(frequent, 1, math.min(params.top, #frequent)) }),
    }
end
