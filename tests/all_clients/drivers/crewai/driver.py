"""CrewAI: MCPServerAdapter of crewai-tools; its agents and tools are not asynchronous."""

import asyncio

from contract import API_KEY, MODELS, PROMPT, Driver, bearer_headers, run_driver
from crewai import LLM, Agent
from crewai_tools import MCPServerAdapter
from mcp import StdioServerParameters

PROVIDERS = {"openai": "openai", "anthropic": "anthropic", "gemini": "gemini"}


class CrewAiDriver(Driver):
    apis = ("openai", "anthropic", "gemini")

    async def open(self, how):
        if how["transport"] == "stdio":
            command, *args = how["command"]
            server = StdioServerParameters(command=command, args=args, env=how["env"])
        else:
            server = {"url": how["url"], "transport": "streamable-http", "headers": bearer_headers(how)}
        self.adapter = await asyncio.to_thread(MCPServerAdapter, server, connect_timeout=15)

    async def list(self):
        return [tool.name for tool in self.adapter.tools]

    async def call(self, tool, arguments):
        found = next(t for t in self.adapter.tools if t.name == tool)
        return False, await asyncio.to_thread(found.run, **arguments)

    async def converse(self, api, base_url):
        extra = {"base_url": base_url}
        if api == "gemini":
            extra = {"client_params": {"http_options": {"base_url": base_url}}}
        llm = LLM(model=f"{PROVIDERS[api]}/{MODELS[api]}", api_key=API_KEY, **extra)
        agent = Agent(role="assistant", goal="help", backstory="none", tools=self.adapter.tools, llm=llm)
        return (await asyncio.to_thread(agent.kickoff, PROMPT)).raw

    async def close(self):
        await asyncio.to_thread(self.adapter.stop)


run_driver(CrewAiDriver())
