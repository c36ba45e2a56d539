"""OpenAI Agents for Python: a server with its list of tools cached, as its guide advises."""

from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from contract import API_KEY, MODELS, PROMPT, Driver, bearer_headers, run_driver
from openai import AsyncOpenAI


class OpenAiAgentsDriver(Driver):
    apis = ("openai",)

    async def open(self, how):
        if how["transport"] == "stdio":
            command, *args = how["command"]
            params = {"command": command, "args": args, "env": how["env"]}
            self.server = MCPServerStdio(params, cache_tools_list=True, client_session_timeout_seconds=20)
        else:
            params = {"url": how["url"], "headers": bearer_headers(how)}
            self.server = MCPServerStreamableHttp(
                params, cache_tools_list=True, client_session_timeout_seconds=20
            )
        await self.server.connect()

    async def list(self):
        return [tool.name for tool in await self.server.list_tools()]

    async def call(self, tool, arguments):
        result = await self.server.call_tool(tool, arguments)
        return getattr(result, "is_error", None) or getattr(result, "isError", False), result.content

    async def converse(self, api, base_url):
        model = OpenAIResponsesModel(MODELS[api], AsyncOpenAI(base_url=base_url, api_key=API_KEY))
        agent = Agent("assistant", model=model, mcp_servers=[self.server])
        return (await Runner.run(agent, PROMPT)).final_output

    async def close(self):
        await self.server.cleanup()


set_tracing_disabled(True)
run_driver(OpenAiAgentsDriver())
