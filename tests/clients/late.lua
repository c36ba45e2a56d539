tool = { name = "late", description = "A tool that comes while clients are connected", parameters = {} }

function tool.execute(params, context)
    return { late = true }
end
