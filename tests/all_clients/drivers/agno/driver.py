"""Agno: MCPTools, with the models of OpenAI, Anthropic and Google."""

from agno.agent import Agent
from agno.tools.function import FunctionCall
from agno.tools.mcp import MCPTools
from agno.tools.mcp.params import StreamableHTTPClientParams
from contract import API_KEY, MODELS, PROMPT, Driver, bearer_headers, run_driver
from mcp import StdioServerParameters


class AgnoDriver(Driver):
    apis = ("openai", "anthropic", "gemini")

    async def open(self, how):
        if how["transport"] == "stdio":
            command, *args = how["command"]
            # Its `command` takes a few well-known programs only.
            params = StdioServerParameters(command=command, args=args, env=how["env"])
            self.tools = MCPTools(transport="stdio", server_params=params, timeout_seconds=20)
        else:
            params = StreamableHTTPClientParams(url=how["url"], headers=bearer_headers(how))
            self.tools = MCPTools(transport="streamable-http", server_params=params, timeout_seconds=20)
        await self.tools.connect()

    async def list(self):
        return list(self.tools.functions)

    async def call(self, tool, arguments):
        call = FunctionCall(function=self.tools.functions[tool], arguments=arguments, call_id="1")
        outcome = await call.aexecute()
        text = call.error or getattr(outcome.result, "content", outcome.result)
        return outcome.status != "success" or bool(call.error), text

    async def converse(self, api, base_url):
        agent = Agent(model=chat_model(api, base_url), tools=[self.tools], telemetry=False)
        return (await agent.arun(PROMPT)).content

    async def close(self):
        await self.tools.close()


def chat_model(api, base_url):
    if api == "openai":
        from agno.models.openai import OpenAIChat

        return OpenAIChat(id=MODELS[api], base_url=base_url, api_key=API_KEY)
    if api == "anthropic":
        from agno.models.anthropic import Claude

        return Claude(id=MODELS[api], api_key=API_KEY, client_params={"base_url": base_url})
    from agno.models.google import Gemini

    return Gemini(
        id=MODELS[api], api_key=API_KEY, client_params={"http_options": {"base_url": base_url}}
    )


run_driver(AgnoDriver())
