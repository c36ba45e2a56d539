"""The official Python client, in every protocol version it speaks.

    check.py http URL FOLDER         a server that runs on FOLDER
    check.py stdio COMMAND FOLDER    a server that the client starts in FOLDER

Prints `ok VERSION CHECK` for everything that went well and stops at the first
thing that did not.
"""

import asyncio
import contextlib
import json
import logging
import shutil
import sys
import traceback
import warnings
from pathlib import Path

import anyio
import mcp.client.session
import mcp.client.stdio
from mcp import Client, MCPError, StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import ToolListChangedNotification
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text())
PATIENCE = 60
LOG_LEVEL = "io.modelcontextprotocol/logLevel"


class Complaints(logging.Handler):
    """What the client found worth a warning."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord):
        self.seen.append(record.getMessage())


class Check:
    """One connection, and what came over it unasked."""

    def __init__(self, transport: str, where: str, folder: Path, version: str):
        self.modern = version in MODERN_PROTOCOL_VERSIONS
        self.version = version
        self.folder = folder
        self.changes: asyncio.Queue[None] = asyncio.Queue()
        self.logs: asyncio.Queue[dict] = asyncio.Queue()
        server = where if transport == "http" else StdioServerParameters(command=where, args=["stdio"], cwd=folder)
        self.client = Client(
            server,
            mode="auto" if self.modern else "legacy",
            message_handler=self.on_message,
            logging_callback=self.on_log,
        )

    async def on_message(self, message):
        if isinstance(message, ToolListChangedNotification):
            await self.changes.put(None)

    async def on_log(self, params):
        await self.logs.put({"level": params.level, "data": params.data})

    async def run(self) -> str | None:
        """What went wrong, if anything did."""
        # The client offers its newest version; a client of that time offered this one.
        mcp.client.session.LATEST_HANDSHAKE_VERSION = self.version
        async with self.client:
            for check in [
                self.connect,
                self.list_tools,
                self.call,
                self.validated_call,
                self.refused_call,
                self.content_call,
                self.unknown_tool,
                self.log_messages,
                self.progress,
                self.cancel,
                self.tools_changed,
            ]:
                try:
                    with anyio.fail_after(PATIENCE):
                        await check()
                except Exception as error:
                    traceback.print_exc()
                    return f"{self.version} {check.__name__}: {str(error) or type(error).__name__}"
                print("ok", self.version, check.__name__, flush=True)

    async def connect(self):
        equal(self.client.protocol_version, self.version)
        equal(self.client.server_info.name, "moonlark")
        equal(self.client.server_capabilities.tools.list_changed, True)
        # Only a modern server answers `server/discover`.
        equal(self.client.session.discover_result is not None, self.modern)

    async def list_tools(self):
        tools = (await self.client.list_tools()).tools
        equal([tool.name for tool in tools], EXPECTED["tools"])
        echo = next(tool for tool in tools if tool.name == "echo")
        equal(echo.input_schema, EXPECTED["schema"])

    async def call(self):
        await self.expect("call")

    async def validated_call(self):
        """The client compares the result with the tool's output schema."""
        await self.expect("validated_call")

    async def refused_call(self):
        await self.expect("refused_call")

    async def content_call(self):
        """A Starlark extension answers with content of every kind."""
        result = await self.client.call_tool("picture", {})
        blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
        expected = list(EXPECTED["content"])
        if self.version == "2024-11-05":
            # The first version has no audio.
            expected[2] = EXPECTED["audio_before_2025"]
        equal(blocks, expected)
        equal(result.is_error, False)

    async def expect(self, name: str):
        asked = EXPECTED[name]
        result = await self.client.call_tool(asked["tool"], asked["arguments"])
        equal([block.text for block in result.content], [asked["text"]])
        equal(result.structured_content, asked["structured"])
        equal(result.is_error, asked["is_error"])

    async def unknown_tool(self):
        try:
            await self.client.call_tool("nope", {})
        except MCPError as error:
            equal(error.code, -32602)
            equal(error.error.data["code"], "not_found")
        else:
            raise AssertionError("a tool that is not there was called")

    async def log_messages(self):
        """Only the last call's message is as severe as what was asked for."""
        # A modern client that does not ask gets none.
        levels = [None, "warning", "info"] if self.modern else ["warning", "info"]
        for level in levels:
            if not self.modern:
                await self.client.set_logging_level(level)
            meta = {LOG_LEVEL: level} if self.modern and level else None
            start = 2 if level == "info" else 1
            await self.client.call_tool("countdown", {"from": start, "pause": 0}, meta=meta)
        equal(await self.logs.get(), EXPECTED["log"])

    async def progress(self):
        reports: asyncio.Queue[list] = asyncio.Queue()

        async def on_progress(progress, total, message):
            await reports.put([progress, total, message])

        arguments = {"from": 4, "pause": 0.01}
        result = await self.client.call_tool("countdown", arguments, progress_callback=on_progress)
        equal(result.structured_content, {"done": True, "counted": 4})
        equal([await reports.get() for _ in EXPECTED["progress"]], EXPECTED["progress"])
        equal(reports.empty(), True)

    async def cancel(self):
        """The script waits for this server, and hangs up when it is stopped."""
        asked, hung_up = asyncio.Event(), asyncio.Event()

        async def say_nothing(reader, writer):
            asked.set()
            with contextlib.suppress(ConnectionError):
                await reader.read()
            hung_up.set()
            writer.close()

        async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with anyio.create_task_group() as calls:
                calls.start_soon(self.client.call_tool, "linger", {"url": f"http://127.0.0.1:{port}/"})
                await asked.wait()
                calls.cancel_scope.cancel()
            await hung_up.wait()
        await self.expect("call")
        equal((self.folder / "tools" / "went_on").exists(), False)

    async def tools_changed(self):
        late = self.folder / "tools" / "late.lua"
        listening = self.client.listen(tools_list_changed=True) if self.modern else contextlib.nullcontext()
        async with listening as subscription:
            aside = self.folder / "late.lua"
            shutil.copy(HERE / "late.lua", aside)
            aside.rename(late)
            await self.wait_for_tools(subscription, [*EXPECTED["tools"], "late"])
            late.unlink()
            await self.wait_for_tools(subscription, EXPECTED["tools"])

    async def wait_for_tools(self, subscription, names):
        listed = None
        while listed != sorted(names):
            await (anext(subscription) if subscription else self.changes.get())
            listed = sorted(tool.name for tool in (await self.client.list_tools()).tools)


def equal(got, expected):
    if got != expected:
        raise AssertionError(f"expected {expected!r}, got {got!r}")


async def main(transport: str, where: str, folder: str):
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    complaints = Complaints()
    logging.getLogger().addHandler(complaints)

    async def kill(process):
        complaints.seen.append("the server did not end with its input")
        process.kill()

    mcp.client.stdio._terminate_process_tree = kill
    for version in [*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS]:
        if failed := await Check(transport, where, Path(folder), version).run():
            sys.exit(f"failed {failed}")
        if complaints.seen:
            sys.exit(f"failed {version} disconnect: {complaints.seen}")
        print("ok", version, "disconnect", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
