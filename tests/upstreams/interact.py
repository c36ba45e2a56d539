"""What the `everything` server asks of its client and tells it unasked, seen by
the official Python client, in both eras of the protocol.

    interact.py URL NAME    the server as NAME behind Moonlark
    interact.py URL         the server itself

Prints `ok ERA CHECK` for everything that went well, and what did not.
"""

import asyncio
import contextlib
import logging
import sys
import traceback
import warnings

import anyio
from mcp import Client
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    CreateMessageResult,
    ElicitResult,
    ListRootsResult,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    Root,
    TextContent,
)

PATIENCE = 60
LOG_LEVEL = {"io.modelcontextprotocol/logLevel": "debug"}
DOCUMENT = "demo://resource/static/document/features.md"
ZIPPED = "demo://resource/session/{}.gz"


class Interaction:
    """One connection, and what came over it unasked."""

    def __init__(self, url: str, name: str | None, era: str):
        self.modern = era == "modern"
        self.era = era
        self.tool = f"{name}__" if name else ""
        self.resource = f"mcp://{name}/" if name else ""
        self.asked: list = []
        self.messages: asyncio.Queue = asyncio.Queue()
        self.logs: asyncio.Queue = asyncio.Queue()
        self.client = Client(
            url,
            mode="auto" if self.modern else "legacy",
            sampling_callback=self.on_sampling,
            elicitation_callback=self.on_elicitation,
            list_roots_callback=self.on_roots,
            message_handler=self.messages.put,
            logging_callback=self.logs.put,
        )

    async def on_sampling(self, context, params):
        self.asked.append([message.content.text for message in params.messages])
        said = TextContent(type="text", text="They sing before dawn.")
        return CreateMessageResult(role="assistant", model="none", stop_reason="endTurn", content=said)

    async def on_elicitation(self, context, params):
        self.asked.append(params.message)
        content = None if params.mode == "url" else {"name": "Ada", "check": True, "integer": 7}
        return ElicitResult(action="accept", content=content)

    async def on_roots(self, context):
        return ListRootsResult(roots=[Root(uri="file:///nest", name="nest")])

    async def run(self) -> bool:
        """Whether all went well. What fails does not keep the rest from being tried."""
        well = True
        async with self.client:
            for check in [
                self.sampling,
                self.elicitation,
                self.elicitation_of_a_url,
                self.many_questions_at_once,
                self.roots,
                self.progress,
                self.logging,
                self.resource_updates,
                self.resources_that_come,
                self.cancellation,
            ]:
                try:
                    with anyio.fail_after(PATIENCE):
                        await check()
                except Exception:
                    well = False
                    print("failed", self.era, check.__name__, traceback.format_exc(), flush=True)
                else:
                    print("ok", self.era, check.__name__, flush=True)
        return well

    async def call(self, tool: str, arguments: dict, **options) -> str:
        """The text of a result that is no error."""
        result = await self.client.call_tool(self.tool + tool, arguments, **options)
        text = "\n".join(getattr(block, "text", "") for block in result.content)
        equal((result.is_error, text), (False, text))
        return text

    async def sampling(self):
        self.asked.clear()
        text = await self.call("trigger-sampling-request", {"prompt": "Do larks sing?", "maxTokens": 9})
        contains(text, '"text": "They sing before dawn."')
        equal(self.asked, [["Resource trigger-sampling-request context: Do larks sing?"]])

    async def elicitation(self):
        self.asked.clear()
        text = await self.call("trigger-elicitation-request", {})
        contains(text, "- Name: Ada\n- Agreed to terms: true\n- Favorite Integer: 7")
        equal(self.asked, ["Please provide inputs for the following fields:"])

    async def elicitation_of_a_url(self):
        self.asked.clear()
        arguments = {"url": "https://example.com/sign", "message": "Sign here", "elicitationId": "one"}
        text = await self.call("trigger-url-elicitation", arguments)
        contains(text, "accept")
        equal(self.asked, ["Sign here"])

    async def many_questions_at_once(self):
        """Each question reaches the client, and each answer its call. Where nothing
        on the wire says which call a question belongs to, and every request may be
        somebody else's, it is refused rather than put to the wrong one."""
        self.asked.clear()
        answers: list[tuple[bool, str]] = []

        async def ask(number: int):
            arguments = {"prompt": f"Number {number}"}
            result = await self.client.call_tool(f"{self.tool}trigger-sampling-request", arguments)
            answers.append((bool(result.is_error), result.content[0].text))

        async with anyio.create_task_group() as calls:
            for number in range(8):
                calls.start_soon(ask, number)
        refused = [text for error, text in answers if error]
        if self.modern and not self.tool.endswith("_http__"):
            equal(set(refused) - {"MCP error -32603: cannot tell which call this belongs to"}, set())
        else:
            equal(refused, [])
            wanted = [[f"Resource trigger-sampling-request context: Number {number}"] for number in range(8)]
            equal(sorted(self.asked), wanted)
        equal(len(answers), 8)
        for error, text in answers:
            contains(text, "cannot tell" if error else "They sing before dawn.")

    async def roots(self):
        """It asks for them once, when it is connected: then they are those that
        Moonlark is configured with."""
        text = await self.call("get-roots-list", {})
        contains(text, "Current MCP Roots (1 total)")
        contains(text, "URI: file:///")

    async def progress(self):
        reports: list = []

        async def on_progress(progress, total, message):
            reports.append((progress, total))

        arguments = {"duration": 1.2, "steps": 3}
        text = await self.call("trigger-long-running-operation", arguments, progress_callback=on_progress)
        equal(text, "Long running operation completed. Duration: 1.2 seconds, Steps: 3.")
        equal(reports, [(1, 3), (2, 3), (3, 3)])

    async def logging(self):
        """It says something when it is switched on, and every five seconds until it is
        switched off. An old client hears that at any time, a modern one only in the
        course of a request that asks for it: one that is sure to last long enough."""
        if not self.modern:
            await self.client.set_logging_level("debug")
        drain(self.logs)
        await self.call("toggle-simulated-logging", {})
        if self.modern:
            arguments = {"duration": 11, "steps": 2}
            await self.call("trigger-long-running-operation", arguments, meta=LOG_LEVEL)
        said = ""
        while "level" not in said:
            said = str((await self.logs.get()).data)
        await self.call("toggle-simulated-logging", {})

    async def resource_updates(self):
        uri = self.resource + DOCUMENT
        async with self.subscribed(uri) as updates:
            await self.call("toggle-subscriber-updates", {})
            equal(await updates(), uri)
            await self.call("toggle-subscriber-updates", {})

    @contextlib.asynccontextmanager
    async def subscribed(self, uri: str):
        if self.modern:
            async with self.client.listen(resource_subscriptions=[uri]) as subscription:
                yield lambda: next_uri(subscription)
            return
        await self.client.subscribe_resource(uri)
        yield lambda: self.notification(ResourceUpdatedNotification, lambda params: params.uri)
        await self.client.unsubscribe_resource(uri)

    async def resources_that_come(self):
        """A tool makes a resource: it is announced, listed and read."""
        name = f"song-{self.era}"
        uri = self.resource + ZIPPED.format(name)
        listening = self.client.listen(resources_list_changed=True) if self.modern else contextlib.nullcontext()
        async with listening as subscription:
            drain(self.messages)
            arguments = {"name": f"{name}.gz", "data": "data:text/plain,la", "outputType": "resourceLink"}
            await self.call("gzip-file-as-resource", arguments)
            listed: list[str] = []
            while uri not in listed:
                if subscription:
                    await anext(subscription)
                else:
                    await self.notification(ResourceListChangedNotification, lambda params: None)
                listed = [resource.uri for resource in await self.all_resources()]
        [content] = (await self.client.read_resource(uri)).contents
        equal((content.uri, content.blob[:4]), (uri, "H4sI"))

    async def all_resources(self) -> list:
        resources, cursor = [], None
        while True:
            page = await self.client.list_resources(cursor=cursor, cache_mode="bypass")
            resources += page.resources
            cursor = page.next_cursor
            if cursor is None:
                return resources

    async def cancellation(self):
        """The server finds out; the test looks at what it was sent."""
        arguments = {"duration": 600, "steps": 12000}
        begun = asyncio.Event()

        async def on_progress(progress, total, message):
            begun.set()

        async def call():
            await self.call("trigger-long-running-operation", arguments, progress_callback=on_progress)

        async with anyio.create_task_group() as calls:
            calls.start_soon(call)
            await begun.wait()
            calls.cancel_scope.cancel()
        equal(await self.call("echo", {"message": "still there"}), "Echo: still there")

    async def notification(self, kind, read):
        """The next one of this kind."""
        while True:
            message = await self.messages.get()
            if isinstance(message, kind):
                return read(message.params)


async def next_uri(subscription) -> str:
    return (await anext(subscription)).uri


def drain(queue: asyncio.Queue):
    while not queue.empty():
        queue.get_nowait()


def equal(got, expected):
    if got != expected:
        raise AssertionError(f"expected {expected!r}, got {got!r}")


def contains(text: str, part: str):
    if part not in text:
        raise AssertionError(f"no {part!r} in {text!r}")


async def main(url: str, name: str | None = None):
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    logging.disable(logging.WARNING)
    eras = ["legacy", "modern"] if name else ["legacy"]
    if not all([await Interaction(url, name, era).run() for era in eras]):
        sys.exit(1)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
