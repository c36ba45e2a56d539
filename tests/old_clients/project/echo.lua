tool = {
    name = "echo",
    description = "Says it again",
    parameters = { { name = "message", type = "string", required = true } },
}
function tool.execute(params) return params.message end
