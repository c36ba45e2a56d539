"""One version of the Python SDK against Moonlark: `check.py http URL` or
`check.py stdio BINARY FOLDER`.

Prints one line for each step that went well. Whatever the SDK logs as a warning or worse
is printed as well, and so is every exception that leaves its context managers. After `change…`
the test adds a tool; after `restart…` it restarts the server, and says so by a line of
input."""

import asyncio
import contextlib
import logging
import sys
from datetime import timedelta

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


class Loud(logging.Handler):
    """What a user of the SDK would see."""

    def emit(self, record):
        say(f"logged: {record.levelname} {record.name}: {record.getMessage()}")


def say(line):
    print(line, flush=True)


async def wait_for_input():
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


@contextlib.asynccontextmanager
async def connected(way, *where):
    if way == "http":
        async with streamablehttp_client(where[0]) as (read, write, _):
            yield read, write
    else:
        # Not every version has a way to say in which folder.
        script = 'cd "$1" && exec "$0" stdio 2>/dev/null'
        server = StdioServerParameters(command="sh", args=["-c", script, *where])
        async with stdio_client(server) as (read, write):
            yield read, write


async def main(way, *where):
    told = asyncio.Event()

    async def hear(message):
        root = getattr(message, "root", message)
        if getattr(root, "method", "") == "notifications/tools/list_changed":
            told.set()

    async with connected(way, *where) as (read, write):
        limit = timedelta(seconds=60)
        async with ClientSession(read, write, limit, message_handler=hear) as session:
            begun = await session.initialize()
            say(f"connected {begun.protocolVersion}")
            tools = sorted(tool.name for tool in (await session.list_tools()).tools)
            say(f"listed {' '.join(tools)}")
            called = await session.call_tool("echo", {"message": "hi"})
            say(f"called {called.content[0].text}")
            failed = await session.call_tool("echo", {})
            say(f"failed {failed.isError}")
            linked = await session.call_tool("gallery", {})
            say(f"content {' '.join(block.type for block in linked.content)}")
            try:
                sound = await session.call_tool("sound", {})
                say(f"sound {sound.content[0].type}")
            except ValueError as error:
                # What the SDK's own types refuse.
                say(f"sound {type(error).__name__}")
            say("change…")
            await asyncio.wait_for(told.wait(), 60)
            say("told of a change")
            if way == "http":
                say("restart…")
                await wait_for_input()
                called = await session.call_tool("echo", {"message": "again"})
                say(f"called {called.content[0].text}")
                await session.list_tools()
    say("closed")


logging.getLogger().addHandler(Loud(logging.WARNING))
try:
    asyncio.run(main(*sys.argv[1:]))
except BaseException as error:  # noqa: BLE001
    say(f"raised: {error!r}")
    for inner in getattr(error, "exceptions", []):
        say(f"raised: {inner!r}")
say("end")
