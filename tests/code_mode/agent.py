"""The official Python client as an agent that writes scripts.

    agent.py http URL CASES FOLDER         a server that runs
    agent.py stdio COMMAND CASES FOLDER    a server that the client starts in FOLDER

CASES is a file of scripts and what must come of them. Prints `ok VERSION NAME`
for each that ended so, and stops at the first that did not.
"""

import asyncio
import json
import sys
from pathlib import Path

import anyio
from mcp import Client, StdioServerParameters

PATIENCE = 300
SURFACE = ["execute", "get_function_docs", "list_functions", "search_docs"]


async def check(transport: str, where: str, cases: list[dict], folder: str, mode: str):
    server = where if transport == "http" else StdioServerParameters(command=where, args=["stdio"], cwd=folder)
    async with Client(server, mode=mode) as client:
        version = client.protocol_version
        tools = [tool.name for tool in (await client.list_tools()).tools]
        equal([name for name in SURFACE if name in tools], SURFACE)
        for case in cases:
            result = await client.call_tool("execute", {"script": case["script"]})
            blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
            compare(case, blocks, result.structured_content, result.is_error)
            print("ok", version, case["name"], flush=True)


def compare(case: dict, blocks: list[dict], structured, is_error: bool):
    equal(is_error, case.get("fails", False))
    if "value" in case:
        equal(structured, case["value"])
        equal(json.loads(blocks[0]["text"]), case["value"])
    if "types" in case:
        equal([block["type"] for block in blocks], case["types"])
    for word in case.get("says", []):
        if not any(word in block.get("text", "") for block in blocks):
            raise AssertionError(f"no {word!r} in {blocks}")


def equal(got, expected):
    if got != expected:
        raise AssertionError(f"got {got!r}, expected {expected!r}")


async def main():
    transport, where, cases, folder = sys.argv[1:]
    cases = json.loads(Path(cases).read_text())
    for mode in ["legacy", "auto"]:
        with anyio.fail_after(PATIENCE):
            await check(transport, where, cases, folder, mode)


asyncio.run(main())
