"""Pydantic AI: MCPToolset as it comes, its list of tools cached."""

from contract import API_KEY, MODELS, PROMPT, Driver, bearer_headers, run_driver
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.mcp import MCPToolset


class PydanticAiDriver(Driver):
    apis = ("openai", "anthropic", "gemini")

    async def open(self, how):
        if how["transport"] == "stdio":
            command, *args = how["command"]
            self.toolset = MCPToolset(StdioTransport(command, args, env=how["env"], keep_alive=False))
        else:
            self.toolset = MCPToolset(how["url"], headers=bearer_headers(how))
        await self.toolset.__aenter__()

    async def list(self):
        return [tool.name for tool in await self.toolset.list_tools()]

    async def call(self, tool, arguments):
        try:
            return False, await self.toolset.direct_call_tool(tool, arguments)
        except ModelRetry as error:
            return True, error

    async def converse(self, api, base_url):
        agent = Agent(chat_model(api, base_url), toolsets=[self.toolset])
        return (await agent.run(PROMPT)).output

    async def close(self):
        await self.toolset.__aexit__(None, None, None)


def chat_model(api, base_url):
    if api == "openai":
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIChatModel(MODELS[api], provider=OpenAIProvider(base_url=base_url, api_key=API_KEY))
    if api == "anthropic":
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        client = AsyncAnthropic(base_url=base_url, api_key=API_KEY)
        return AnthropicModel(MODELS[api], provider=AnthropicProvider(anthropic_client=client))
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    return GoogleModel(MODELS[api], provider=GoogleProvider(api_key=API_KEY, base_url=base_url))


run_driver(PydanticAiDriver())
