"""DSPy: Tool.from_mcp_tool over a session of the official SDK, and native function calling."""

from contextlib import AsyncExitStack

import dspy
import httpx2
from contract import API_KEY, MODELS, PROMPT, Driver, bearer_headers, run_driver
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


class NextStep(dspy.Signature):
    """Choose what to do next."""

    question: str = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    tool_calls: dspy.ToolCalls = dspy.OutputField()


class DspyDriver(Driver):
    apis = ("openai", "anthropic", "gemini")

    async def open(self, how):
        self.stack = AsyncExitStack()
        if how["transport"] == "stdio":
            command, *args = how["command"]
            server = StdioServerParameters(command=command, args=args, env=how["env"])
            streams = await self.stack.enter_async_context(stdio_client(server))
        else:
            http = await self.stack.enter_async_context(
                httpx2.AsyncClient(headers=bearer_headers(how), timeout=20)
            )
            streams = await self.stack.enter_async_context(
                streamable_http_client(how["url"], http_client=http)
            )
        self.session = await self.stack.enter_async_context(ClientSession(streams[0], streams[1]))
        await self.session.initialize()

    async def list(self):
        listed = (await self.session.list_tools()).tools
        self.tools = [dspy.Tool.from_mcp_tool(self.session, tool) for tool in listed]
        return [tool.name for tool in self.tools]

    async def call(self, tool, arguments):
        found = next(t for t in self.tools if t.name == tool)
        try:
            return False, await found.acall(**arguments)
        except RuntimeError as error:
            return True, error

    async def converse(self, api, base_url):
        lm = dspy.LM(f"{api}/{MODELS[api]}", api_base=base_url, api_key=API_KEY, cache=False, num_retries=0)
        with dspy.context(lm=lm, adapter=dspy.ChatAdapter(use_native_function_calling=True)):
            step = await dspy.Predict(NextStep).acall(question=PROMPT, tools=self.tools)
        # It leaves running the calls, and telling the model, to its user.
        answers = []
        for call in step.tool_calls.tool_calls:
            found = next(t for t in self.tools if t.name == call.name)
            answers.append(str(await found.acall(**call.args)))
        return "\n".join(answers)

    async def close(self):
        await self.stack.aclose()


run_driver(DspyDriver())
