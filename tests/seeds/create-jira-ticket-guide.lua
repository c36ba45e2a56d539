tool = {
    name = "create_jira_ticket",
    version = "0.1.0",
    description = "Create a Jira ticket enriched with related context from the knowledge base",
    parameters = {
        {
            name = "title",
            type = "string",
            required = true,
            description = "Ticket title / summary",
        },
        {
            name = "description",
            type = "string",
            required = false,
            description = "Additional description text",
        },
        {
            name = "priority",
            type = "string",
            required = false,
            default = "Medium",
            enum = { "Low", "Medium", "High", "Critical" },
            description = "Ticket priority level",
        },
    },
}

function tool.execute(params, context)
    -- 1. Search the knowledge base for related docs
    local results = context.search(params.title, { limit = 5, mode = "hybrid" })

    -- 2. Build enriched description with related context
    local desc = params.description or ""
    if #results > 0 then
        desc = desc .. "\n\n## Related Context\n\n"
        for _, r in ipairs(results) do
            desc = desc .. "- **" .. r.title .. "** (score: " ..
                   string.format("%.2f", r.score) .. ")\n"
            desc = desc .. "  " .. (r.snippet or "") .. "\n"
            if r.source_url then
                desc = desc .. "  [View source](" .. r.source_url .. ")\n"
            end
        end
    end

    -- 3. Create the Jira ticket via API
    local payload = json.encode({
        fields = {
            project = { key = context.config.jira_project },
            summary = params.title,
            description = desc,
            priority = { name = params.priority },
            issuetype = { name = "Task" },
        },
    })

    local resp = http.post(
        context.config.jira_url .. "/rest/api/3/issue",
        payload,
        {
            headers = {
                ["Authorization"] = "Basic " .. base64.encode(
                    "user:" .. context.config.jira_token
                ),
                ["Content-Type"] = "application/json",
            },
        }
    )

    local result = json.decode(resp.body)
    return {
        key = result.key,
        url = context.config.jira_url .. "/browse/" .. result.key,
        related_docs = #results,
        status = "created",
    }
end
