"""Google's Agent Development Kit: McpToolset, with Gemini and, by LiteLLM, the others."""

from contract import API_KEY, MODELS, PROMPT, Driver, bearer_headers, run_driver
from google.adk.agents import LlmAgent
from google.adk.models.google_llm import Gemini
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from google.genai import types
from mcp import StdioServerParameters


class GoogleAdkDriver(Driver):
    apis = ("openai", "anthropic", "gemini")

    async def open(self, how):
        if how["transport"] == "stdio":
            command, *args = how["command"]
            server = StdioServerParameters(command=command, args=args, env=how["env"])
            connection = StdioConnectionParams(server_params=server, timeout=20)
        else:
            connection = StreamableHTTPConnectionParams(
                url=how["url"], headers=bearer_headers(how), timeout=20
            )
        self.toolset = McpToolset(connection_params=connection)

    async def list(self):
        self.tools = await self.toolset.get_tools()
        return [tool.name for tool in self.tools]

    async def call(self, tool, arguments):
        found = next(t for t in self.tools if t.name == tool)
        result = await found.run_async(args=arguments, tool_context=await self.tool_context())
        return isinstance(result, dict) and bool(result.get("isError") or result.get("error")), result

    async def tool_context(self):
        """What a running agent hands to its tools."""
        from google.adk.agents.invocation_context import InvocationContext
        from google.adk.sessions import InMemorySessionService
        from google.adk.tools.tool_context import ToolContext

        sessions = InMemorySessionService()
        session = await sessions.create_session(app_name="tier", user_id="user")
        agent = LlmAgent(name="assistant", model=MODELS["gemini"])
        return ToolContext(
            InvocationContext(session_service=sessions, invocation_id="1", agent=agent, session=session),
            function_call_id="1",
        )

    async def converse(self, api, base_url):
        if api == "gemini":
            model = Gemini(model=MODELS[api], base_url=base_url)
        elif api == "openai":
            model = LiteLlm(f"openai/{MODELS[api]}", api_base=base_url, api_key=API_KEY)
        else:
            model = LiteLlm(f"anthropic/{MODELS[api]}", api_base=base_url, api_key=API_KEY)
        agent = LlmAgent(name="assistant", model=model, tools=[self.toolset])
        runner = InMemoryRunner(agent, app_name="tier")
        session = await runner.session_service.create_session(app_name="tier", user_id="user")
        message = types.Content(role="user", parts=[types.Part(text=PROMPT)])
        text = ""
        async for event in runner.run_async(user_id="user", session_id=session.id, new_message=message):
            if event.content and event.content.parts:
                text = event.content.parts[-1].text or text
        return text

    async def close(self):
        await self.toolset.close()


run_driver(GoogleAdkDriver())
