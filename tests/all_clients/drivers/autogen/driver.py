"""AutoGen: mcp_server_tools, which connects anew for every call."""

from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_ext.models.anthropic import AnthropicChatCompletionClient
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import StdioServerParams, StreamableHttpServerParams, mcp_server_tools
from contract import API_KEY, MODELS, PROMPT, Driver, bearer_headers, describe_error, run_driver

MODEL_INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "family": "unknown",
    "structured_output": False,
}


class AutoGenDriver(Driver):
    apis = ("openai", "anthropic")

    async def open(self, how):
        if how["transport"] == "stdio":
            command, *args = how["command"]
            self.server = StdioServerParams(command=command, args=args, env=how["env"])
        else:
            self.server = StreamableHttpServerParams(url=how["url"], headers=bearer_headers(how))

    async def list(self):
        self.tools = await mcp_server_tools(self.server)
        return [tool.name for tool in self.tools]

    async def call(self, tool, arguments):
        found = next(t for t in self.tools if t.name == tool)
        try:
            return False, await found.run_json(arguments, CancellationToken())
        except Exception as error:
            # It has no type of its own for a tool that failed, and often wraps it in groups.
            return True, describe_error(error)

    async def converse(self, api, base_url):
        client = OpenAIChatCompletionClient if api == "openai" else AnthropicChatCompletionClient
        model = client(model=MODELS[api], base_url=base_url, api_key=API_KEY, model_info=MODEL_INFO)
        agent = AssistantAgent("assistant", model, tools=self.tools, max_tool_iterations=4)
        return (await agent.run(task=PROMPT)).messages[-1].content


run_driver(AutoGenDriver())
