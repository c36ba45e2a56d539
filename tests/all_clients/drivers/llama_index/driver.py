"""LlamaIndex: McpToolSpec over BasicMCPClient, which connects anew for every call."""

from contract import API_KEY, MODELS, PROMPT, Driver, bearer_headers, run_driver
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec


class LlamaIndexDriver(Driver):
    apis = ("openai", "anthropic", "gemini")

    async def open(self, how):
        if how["transport"] == "stdio":
            command, *args = how["command"]
            self.client = BasicMCPClient(command, args=args, env=how["env"])
        else:
            self.client = BasicMCPClient(how["url"], headers=bearer_headers(how))

    async def list(self):
        self.tools = await McpToolSpec(self.client).to_tool_list_async()
        return [tool.metadata.name for tool in self.tools]

    async def call(self, tool, arguments):
        found = next(t for t in self.tools if t.metadata.name == tool)
        output = await found.acall(**arguments)
        # The result as it came is the only place that has it.
        return output.is_error or output.raw_output.is_error, output.content

    async def converse(self, api, base_url):
        agent = FunctionAgent(tools=self.tools, llm=chat_model(api, base_url))
        return await agent.run(user_msg=PROMPT)


def chat_model(api, base_url):
    if api == "openai":
        from llama_index.llms.openai import OpenAI

        return OpenAI(model=MODELS[api], api_base=base_url, api_key=API_KEY)
    if api == "anthropic":
        from llama_index.llms.anthropic import Anthropic

        return Anthropic(model=MODELS[api], base_url=base_url, api_key=API_KEY)
    from google.genai.types import HttpOptions
    from llama_index.llms.google_genai import GoogleGenAI

    return GoogleGenAI(model=MODELS[api], api_key=API_KEY, http_options=HttpOptions(base_url=base_url))


run_driver(LlamaIndexDriver())
