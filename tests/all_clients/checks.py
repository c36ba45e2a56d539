"""What has to hold for each client: one table of checks, over stdio and over HTTP.

A check gives a list of what was wrong; an empty list is good. Whose fault that is, is
not decided here but in known_faults.py.
"""

import re
import time
from dataclasses import dataclass
from urllib.parse import unquote

from model_rules import broken_rules

# What leaving may take: 0.3 s until children are signalled, and the rest for a busy machine.
LEAVE_TIMEOUT_S = 1.5
GIVE_UP_LEAVING_S = 10

APIS = ("openai", "anthropic", "gemini")
# Columns of the report, in order, with what each means.
CHECKS = {
    "list": "the whole list at the first request",
    "code list": "the same in code mode, where the first search finds an upstream's function",
    "openai": "names, schemas and a call by the client's converter for OpenAI",
    "anthropic": "the same for Anthropic",
    "gemini": "the same for Gemini",
    "call": "calls of a script, an upstream server and an API",
    "error": "what fails reaches the user as an error",
    "execute": "a script over two sources",
    "token": "with the right token everything, without one an error",
    "restart": "a call after the HTTP server was restarted",
    "leave": "nothing left within 1.5 s",
    "odd list": "the awkward project: the whole list",
    "odd openai": "the awkward project by the converter for OpenAI",
    "odd anthropic": "the same for Anthropic",
    "odd gemini": "the same for Gemini",
    "odd call": "calls of the awkward tools arrive as they were meant",
}

EXECUTE_SCRIPT = """
local stock = sdk.stock.lookup({ article = "tea" })
local orders = sdk.shop.listOrders({ state = "open" })
return { stock = stock, path = orders.path }
"""


@dataclass
class ListedTool:
    """A tool as Moonlark lists it, by which clients' versions of it are recognised."""

    name: str
    description: str
    schema: dict

    def find_in(self, sent):
        """The sent tool that is this one, or None.

        Clients put prefixes and explanations in front, shorten names and change their letters.
        """
        for tool in sent:
            if plain_name(tool.name).endswith(plain_name(self.name)):
                return tool
        for tool in sent:
            if self.description and self.description in " ".join(tool.description.split()):
                return tool
        return None


def listed_tools(tools):
    return [
        ListedTool(t["name"], " ".join((t.get("description") or "").split("\n")[0].split()), t["inputSchema"])
        for t in tools
    ]


def plain_name(name):
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find_key(schema, description):
    """The property that is described so, whatever it is called by now."""
    for key, part in ((schema or {}).get("properties") or {}).items():
        if isinstance(part, dict) and description in str(part.get("description")):
            return key
    return None


def find_listed(reference, description):
    found = [t for t in reference if t.description.startswith(description)]
    return found[0] if found else None


def missing_tools(reference, names):
    """Tools of the reference that are not among a client's names, and names that it does not have."""
    plain = {plain_name(name) for name in names}
    wanted = {plain_name(tool.name): tool.name for tool in reference}
    problems = []
    if missing := sorted(wanted[name] for name in wanted.keys() - plain):
        problems.append(f"{len(wanted) - len(missing)} of {len(wanted)} tools, without {', '.join(missing)}")
    if unknown := sorted(plain - wanted.keys()):
        problems.append(f"unknown tools {', '.join(unknown)}")
    return problems


def sent_problems(api, reference, conversation):
    """What is wrong with the tools that the model was sent, all of the reference among them."""
    sent = conversation.first_tools()
    if not sent:
        return ["no tools were sent to the model"]
    problems, ours = [], []
    for listed in reference:
        found = listed.find_in(sent)
        if found:
            ours.append(found)
        else:
            problems.append(listed.name)
    if problems:
        problems = [f"not sent to the model: {', '.join(problems)}"]
    return problems + broken_rules(api, ours)


# The calls of the plain project: description, arguments, what has to be in the answer.
PLAIN_CALLS = [
    ("Count the words", {"text": "three small words"}, "3"),
    ("How many pieces", {"article": "tea"}, "42 pieces"),
    ("List the orders", {"state": "open"}, "/orders?state=open"),
]
FAILING_CALLS = [
    ("Open the safe", {"code": "0000"}, "the safe does not open with 0000"),
    ("Audit the stock", {}, "the books are lost"),
]


def tree(depth):
    node = {"name": f"level {depth}"}
    if depth > 0:
        node["children"] = [tree(depth - 1)]
    return node


def either_arguments(listed):
    """Alternatives at the top are merged or put into one parameter; both are fine."""
    properties = (listed.schema or {}).get("properties") or {}
    if "id" in properties or len(properties) != 1:
        return {"id": 7}
    return {next(iter(properties)): {"id": 7}}


def page_arguments(listed):
    arguments = {find_key(listed.schema, "Entries per page") or "page[size]": 5}
    if key := find_key(listed.schema, "Only those"):
        arguments[key] = "new"
    return arguments


@dataclass
class AwkwardCall:
    description: str
    # Of the listed or sent tool, since keys may have other names there.
    arguments: object
    # The tool and arguments that must arrive, or the path of the API with its body.
    arrives: object


def upstream_call(name, arguments):
    return {"name": name, "arguments": arguments}


PAGE_CALL = upstream_call("page", {"page[size]": 5, "$filter": "new"})
MOVE = {"from": {"folder": "a"}, "to": {"folder": "b", "line": 3}, "label": "moved", "amount": 7}
COMMENT = {"text": "a", "replies": [{"text": "b", "replies": [{"text": "c"}]}]}
AWKWARD_CALLS = [
    AwkwardCall("A dotted name", lambda _: MOVE, upstream_call("notes.move", MOVE)),
    AwkwardCall("A schema that contains", lambda _: {"root": tree(4)}, upstream_call("tree_save", {"root": tree(4)})),
    AwkwardCall(
        "A text with the format",
        lambda _: {"email": "ann@example.com"},
        upstream_call("invite", {"email": "ann@example.com"}),
    ),
    AwkwardCall("Keys that are no", page_arguments, PAGE_CALL),
    AwkwardCall("Alternatives at the top", either_arguments, upstream_call("either", {"id": 7})),
    AwkwardCall(
        "An array of anything",
        lambda _: {"entries": ["a", "b"], "value": "v", "colour": "red"},
        upstream_call("collect", {"entries": ["a", "b"], "value": "v", "colour": "red"}),
    ),
    AwkwardCall("A name with letters", lambda _: {}, upstream_call("übersicht/2 alle", {})),
    AwkwardCall("A name that begins with a digit", lambda _: {"n": 1}, upstream_call("1digit", {"n": 1})),
    AwkwardCall("A name that begins with a dash", lambda _: {"n": 2}, upstream_call("-dash", {"n": 2})),
    AwkwardCall("An operation whose name", page_arguments, {"path": "/members?page[size]=5"}),
    AwkwardCall("A body that contains", lambda _: COMMENT, {"path": "/comments", "body": COMMENT}),
]


def without_nulls(value):
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value


def arrived_calls(project):
    """What arrived, without what does not matter: nulls where null is allowed, and escapes in paths."""
    calls = []
    for call in project.arrived():
        if "path" in call:
            kept = {"path": unquote(call["path"]), "body": call.get("body")}
        else:
            kept = {"name": call["name"], "arguments": call.get("arguments") or {}}
        calls.append(without_nulls(kept))
    return calls


def new_calls(project, before):
    """What has arrived since `before`, which is what arrived_calls said then."""
    calls = arrived_calls(project)
    for call in before:
        calls.remove(call)
    return calls


def leaving_problems(project, began):
    """What is left of Moonlark and its upstream servers after a client has left."""
    seconds = time.monotonic() - began
    while project.processes() and seconds < GIVE_UP_LEAVING_S:
        time.sleep(0.02)
        seconds = time.monotonic() - began
    problems = []
    if seconds > LEAVE_TIMEOUT_S:
        problems.append(f"took {seconds:.1f} s to leave")
    if left := project.leftovers():
        problems.append(f"left in .moonlark: {', '.join(left)}")
    project.leave_nothing()
    return problems
