-- No real weather: the same city always gets the same numbers.
tool = {
    name = "forecast",
    version = "1.0.0",
    description = "The weather of a city for the next days",
    parameters = {
        { name = "city", type = "string", required = true, description = "Its name" },
        { name = "days", type = "integer", minimum = 1, maximum = 7, default = 3, description = "How many days" },
    },
    output = {
        type = "object",
        properties = {
            city = { type = "string" },
            days = {
                type = "array",
                items = {
                    type = "object",
                    properties = {
                        high = { type = "integer", description = "Degrees Celsius" },
                        rain = { type = "boolean" },
                    },
                    required = { "high", "rain" },
                },
            },
        },
        required = { "city", "days" },
    },
    annotations = { read_only = true, idempotent = true },
}

function tool.execute(params, context)
    -- As a service on the other side of the world would.
    sleep(0.2)
    local seed = 0
    for _, byte in { params.city:byte(1, -1) } do
        seed = (seed * 31 + byte) % 9973
    end
    local days = {}
    for day = 1, params.days do
        local number = (seed * (day + 6)) % 97
        table.insert(days, { high = 8 + number % 20, rain = number % 3 == 0 })
    end
    return { city = params.city, days = days }
end
