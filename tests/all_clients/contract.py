"""The contract between the harness and a driver in Python, as the driver sees it.

Each line of stdin is a request, each line of stdout its answer, both JSON:

    {"do": "open", "transport": "stdio", "command": [...], "cwd": "...", "env": {...}}
    {"do": "open", "transport": "http", "url": "...", "token": "..." or null}
    {"do": "list"}                                    -> {"names": [...]}
    {"do": "call", "tool": "...", "arguments": {...}}   -> {"failed": bool, "text": "..."}
    {"do": "converse", "api": "openai" | "anthropic" | "gemini", "base_url": "..."}
                                                      -> {"text": "..."}
    {"do": "close"}

An answer has `"ok": true`, or `"ok": false` with the error that the framework's user would get.
A driver subclasses `Driver` and uses its framework as that framework's guide says.
"""

import asyncio
import json
import os
import sys
import traceback

PROMPT = "Do what is needed."
# Frameworks look up what a model can do by its name, so these have to be known ones.
MODELS = {"openai": "gpt-4.1", "anthropic": "claude-sonnet-4-5", "gemini": "gemini-2.5-flash"}
API_KEY = "none"


class Driver:
    # The model APIs that the framework has converters of its own for.
    apis = ()

    async def open(self, how):
        """Set up the framework's MCP client; it may connect now or later."""
        raise NotImplementedError

    async def list(self):
        """The names of the tools, as the framework knows them."""
        raise NotImplementedError

    async def call(self, tool, arguments):
        """Call a tool through the framework: (failed, text)."""
        raise NotImplementedError

    async def converse(self, api, base_url):
        """Run an agent with all tools to the end of its conversation with the model."""
        raise NotImplementedError

    async def close(self):
        pass


def run_driver(driver):
    # Frameworks print; only answers may go to the stdout that the harness reads.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    asyncio.run(answer_requests(driver, answers))
    answers.flush()
    # Threads that a framework has left must not keep the process.
    os._exit(0)


async def answer_requests(driver, answers):
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        answer = await answer_request(driver, request)
        print(json.dumps(answer), file=answers, flush=True)


async def answer_request(driver, request):
    try:
        return {"ok": True, **await perform_request(driver, request)}
    # Cancellation and groups of exceptions are what some frameworks give their users.
    except BaseException as error:
        traceback.print_exc()
        return {"ok": False, "error": describe_error(error)}


async def perform_request(driver, request):
    match request.pop("do"):
        case "hello":
            return {"apis": list(driver.apis)}
        case "open":
            await driver.open(request)
            return {}
        case "list":
            return {"names": [str(name) for name in await driver.list()]}
        case "call":
            failed, text = await driver.call(request["tool"], request["arguments"])
            return {"failed": bool(failed), "text": str(text)}
        case "converse":
            return {"text": str(await driver.converse(request["api"], request["base_url"]))}
        case "close":
            await driver.close()
            return {}


def describe_error(error):
    """The error with all that it contains: what its user would look at."""
    parts = [f"{type(error).__name__}: {error}"]
    if isinstance(error, BaseExceptionGroup):
        parts += [describe_error(inner) for inner in error.exceptions]
    elif error.__cause__ is not None:
        parts.append(describe_error(error.__cause__))
    return " <- ".join(parts)


def bearer_headers(how):
    return {"Authorization": f"Bearer {how['token']}"} if how.get("token") else {}
