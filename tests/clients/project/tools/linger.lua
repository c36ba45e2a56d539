tool = {
    name = "linger",
    description = "Ask an address that does not answer, and leave a mark when that is over",
    parameters = {
        { name = "url", type = "string", required = true, description = "The address" },
    },
}

function tool.execute(params, context)
    pcall(http.get, params.url)
    fs.write("went_on", "A cancelled call goes no further.")
    return { went_on = true }
end
