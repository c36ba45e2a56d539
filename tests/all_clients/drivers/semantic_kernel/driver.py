"""Semantic Kernel: MCPStdioPlugin and MCPStreamableHttpPlugin."""

from contract import API_KEY, MODELS, PROMPT, Driver, bearer_headers, run_driver
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.mcp import MCPStdioPlugin, MCPStreamableHttpPlugin


class SemanticKernelDriver(Driver):
    apis = ("openai", "anthropic", "gemini")

    async def open(self, how):
        self.kernel = Kernel()
        if how["transport"] == "stdio":
            command, *args = how["command"]
            self.plugin = MCPStdioPlugin(name="moonlark", command=command, args=args, env=how["env"])
        else:
            self.plugin = MCPStreamableHttpPlugin(
                name="moonlark", url=how["url"], headers=bearer_headers(how)
            )
        await self.plugin.connect()
        self.functions = self.kernel.add_plugin(self.plugin).functions

    async def list(self):
        return list(self.functions)

    async def call(self, tool, arguments):
        result = await self.kernel.invoke(self.functions[tool], **arguments)
        return False, result

    async def converse(self, api, base_url):
        agent = ChatCompletionAgent(
            service=chat_model(api, base_url), name="assistant", plugins=[self.plugin]
        )
        return (await agent.get_response(PROMPT)).content

    async def close(self):
        await self.plugin.close()


def chat_model(api, base_url):
    if api == "openai":
        from openai import AsyncOpenAI
        from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion

        client = AsyncOpenAI(base_url=base_url, api_key=API_KEY)
        return OpenAIChatCompletion(ai_model_id=MODELS[api], async_client=client)
    if api == "anthropic":
        from anthropic import AsyncAnthropic
        from semantic_kernel.connectors.ai.anthropic import AnthropicChatCompletion

        client = AsyncAnthropic(base_url=base_url, api_key=API_KEY)
        return AnthropicChatCompletion(ai_model_id=MODELS[api], async_client=client)
    from google.genai import Client
    from google.genai.types import HttpOptions
    from semantic_kernel.connectors.ai.google.google_ai import GoogleAIChatCompletion

    client = Client(api_key=API_KEY, http_options=HttpOptions(base_url=base_url))
    return GoogleAIChatCompletion(gemini_model_id=MODELS[api], api_key=API_KEY, client=client)


run_driver(SemanticKernelDriver())
