"""Calls a tool as the official Python client does, with a user who answers what
they are asked, or without one.

    ask.py URL legacy|modern approve|refuse|decline|cancel|nobody TOOL ARGUMENTS

Prints one line of JSON: the answer, and what the user was asked.
"""

import asyncio
import json
import logging
import sys
import warnings

from mcp import Client
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import ElicitResult

PATIENCE = 60


async def main():
    url, era, answer, tool, arguments = sys.argv[1:]
    asked = []

    async def on_elicitation(context, params):
        asked.append(params.message)
        match answer:
            case "approve" | "refuse":
                return ElicitResult(action="accept", content={"approve": answer == "approve"})
            case action:
                return ElicitResult(action=action)

    client = Client(
        url,
        mode="auto" if era == "modern" else "legacy",
        elicitation_callback=None if answer == "nobody" else on_elicitation,
    )
    async with asyncio.timeout(PATIENCE), client:
        result = await client.call_tool(tool, json.loads(arguments))
    said = {
        "asked": asked,
        "is_error": bool(result.is_error),
        "text": "\n".join(block.text for block in result.content if block.type == "text"),
        "structured": result.structured_content,
    }
    print(json.dumps(said))


logging.basicConfig(level=logging.ERROR)
warnings.simplefilter("ignore", MCPDeprecationWarning)
asyncio.run(main())
