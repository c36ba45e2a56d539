"""LangChain: langchain-mcp-adapters, with the chat models of OpenAI, Anthropic and Google."""

from contract import API_KEY, MODELS, PROMPT, Driver, bearer_headers, run_driver
from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient


class LangChainDriver(Driver):
    apis = ("openai", "anthropic", "gemini")

    async def open(self, how):
        if how["transport"] == "stdio":
            command, *args = how["command"]
            connection = {"transport": "stdio", "command": command, "args": args, "env": how["env"]}
        else:
            connection = {"transport": "streamable_http", "url": how["url"], "headers": bearer_headers(how)}
        self.client = MultiServerMCPClient({"moonlark": connection})

    async def list(self):
        self.tools = await self.client.get_tools()
        return [tool.name for tool in self.tools]

    async def call(self, tool, arguments):
        found = next(t for t in self.tools if t.name == tool)
        message = await found.ainvoke({"type": "tool_call", "id": "1", "name": tool, "args": arguments})
        return message.status == "error", message.text

    async def converse(self, api, base_url):
        agent = create_agent(chat_model(api, base_url), self.tools)
        answer = await agent.ainvoke({"messages": [("user", PROMPT)]})
        return answer["messages"][-1].text


def chat_model(api, base_url):
    if api == "openai":
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model=MODELS[api], base_url=base_url, api_key=API_KEY)
    if api == "anthropic":
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=MODELS[api], base_url=base_url, api_key=API_KEY)
    from langchain_google_genai import ChatGoogleGenerativeAI

    return ChatGoogleGenerativeAI(model=MODELS[api], base_url=base_url, api_key=API_KEY)


run_driver(LangChainDriver())
