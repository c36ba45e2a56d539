"""What has to hold for each client: one table of checks, over stdio and over HTTP.

A check gives a list of what was wrong; an empty list is good. Whose fault that is, is
not decided here but in known_faults.py.
"""

import re
import time
from dataclasses import dataclass
from urllib.parse import unquote

from model_api import ScriptedCall
from model_rules import broken_rules

STEP_TIMEOUT_S = 60
# A client that is refused must say so within this time.
REFUSAL_TIMEOUT_S = 25
# What leaving may take: 0.3 s until children are signalled, and the rest for a busy machine.
LEAVE_TIMEOUT_S = 1.5

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


class FrameworkChecks:
    """All checks of one framework; results go to `report`."""

    def __init__(self, framework, world, driver, report):
        self.framework = framework
        self.world = world
        self.driver = driver
        self.report = report

    def run(self):
        for transport in ("stdio", "http"):
            self.transport = transport
            self.check_direct()
            self.check_code()
            if transport == "http":
                self.check_token()
                self.check_restart()
            self.check_awkward()

    def add(self, check, problems):
        self.report.add(self.framework, self.transport, check, problems)

    def ask(self, timeout_s=STEP_TIMEOUT_S, **request):
        return self.driver.request(timeout_s, **request)

    def open(self, kind):
        """Open a session with a project: the reference, the project, and the names as the client has them."""
        if self.transport == "stdio":
            self.project = self.world.fresh_project(f"{self.framework.name}-{kind}", kind)
            how = self.project.stdio()
        else:
            self.project = self.world.project(kind)
            how = self.world.server(kind).how(self.project.token)
        self.reference = self.world.reference(kind)
        return self.open_and_list(how)

    def open_and_list(self, how, timeout_s=STEP_TIMEOUT_S):
        answer = self.ask(timeout_s, do="open", **how)
        if answer["ok"]:
            answer = self.ask(timeout_s, do="list")
        self.names = answer.get("names", [])
        if not answer["ok"]:
            return [answer["error"]]
        return missing_tools(self.reference, self.names)

    def close(self):
        return self.ask(do="close")

    def check_direct(self):
        self.add("list", self.open("direct"))
        lookup = find_listed(self.reference, "How many pieces")
        for api in self.apis():
            self.add(api, self.converse(api, lookup, lambda _: {"article": "tea"}, lambda: "42 pieces"))
        self.add("call", self.call_all(PLAIN_CALLS, failing=False))
        self.add("error", self.call_all(FAILING_CALLS, failing=True))
        began = time.monotonic()
        self.close()
        if self.transport == "stdio":
            self.add("leave", self.leaving_problems(began))

    def check_code(self):
        problems = self.open("code")
        if not problems:
            found = self.call("search_docs", {"query": "pieces of an article"})
            if "stock.lookup" not in found.get("text", ""):
                problems = [f"search_docs: {found.get('text') or found.get('error')}"]
        self.add("code list", problems)
        answer = self.call("execute", {"script": EXECUTE_SCRIPT})
        problems = []
        if not answer["ok"] or answer["failed"]:
            problems = [answer.get("error") or answer["text"]]
        elif "42 pieces" not in answer["text"] or "/orders?state=open" not in answer["text"]:
            problems = [f"answered {answer['text']}"]
        self.add("execute", problems)
        self.close()

    def check_token(self):
        problems = [f"with the token: {p}" for p in self.open("auth")]
        if not problems:
            problems = self.call_all(PLAIN_CALLS[1:2], failing=False)
        self.close()
        refusal = self.open_and_list(self.world.server("auth").how(), REFUSAL_TIMEOUT_S)
        if self.names or not refusal or " tools, without " in refusal[0]:
            problems.append(f"without a token: no error, {len(self.names)} tools")
        elif re.search(r"401|[Uu]nauthori[sz]ed|token", refusal[0]) is None:
            problems.append(f"without a token, only: {refusal[0]}")
        self.close()
        self.add("token", problems)

    def check_restart(self):
        problems = self.open("direct")
        if not problems:
            problems = self.call_all(PLAIN_CALLS[1:2], failing=False)
        if not problems:
            self.world.server("direct").restart()
            problems = self.call_all(PLAIN_CALLS[1:2], failing=False)
        self.close()
        self.add("restart", problems)

    def check_awkward(self):
        self.add("odd list", self.open("awkward"))
        page = find_listed(self.reference, "Keys that are no")
        for api in self.apis():
            before = arrived_calls(self.project)

            def evidence(before=before):
                return True if PAGE_CALL in new_calls(self.project, before) else PAGE_CALL

            self.add(f"odd {api}", self.converse(api, page, page_arguments, evidence))
        self.add("odd call", self.call_awkward())
        self.close()

    def apis(self):
        return getattr(self.driver, "apis", [])

    def converse(self, api, listed, arguments, evidence):
        """Run an agent whose model calls this tool once; `evidence` is what shows that it was called."""
        if not self.names:
            return ["there are no tools to send"]
        script = [ScriptedCall(listed.find_in, arguments)]
        conversation = self.world.model_api.converse(script)
        answer = self.ask(do="converse", api=api, base_url=conversation.base_url(api))
        problems = sent_problems(api, self.reference, conversation)
        if not answer["ok"]:
            return problems + [answer["error"]]
        expected = evidence()
        # DSPy leaves it to its user to tell the model what a tool answered.
        answered = "\n".join([*conversation.results(), answer["text"]])
        if expected is not True and str(expected) not in answered:
            problems.append(f"the call of {listed.name} gave {answered}, wanted {expected}")
        return problems

    def call(self, name, arguments):
        """Call a tool by the name that Moonlark lists."""
        own = next((n for n in self.names if plain_name(n) == plain_name(name)), None)
        if own is None:
            return {"ok": False, "error": f"the client has no tool {name}"}
        return self.ask(do="call", tool=own, arguments=arguments)

    def call_all(self, calls, failing):
        if not self.names:
            return ["there are no tools to call"]
        problems = []
        for description, arguments, wanted in calls:
            listed = find_listed(self.reference, description)
            answer = self.call(listed.name, arguments)
            if not answer["ok"]:
                problems.append(f"{listed.name}: {answer['error']}")
            elif answer["failed"] != failing or wanted not in answer["text"]:
                outcome = "an error" if answer["failed"] else "a result"
                problems.append(f"{listed.name}: {outcome}: {answer['text']}")
        return problems

    def call_awkward(self):
        if not self.names:
            return ["there are no tools to call"]
        problems = []
        for call in AWKWARD_CALLS:
            listed = find_listed(self.reference, call.description)
            if listed is None:
                problems.append(f"not listed: {call.description}")
                continue
            before = arrived_calls(self.project)
            answer = self.call(listed.name, call.arguments(listed))
            arrived = new_calls(self.project, before)
            if arrived != [without_nulls(call.arrives)]:
                said = answer.get("error") or answer.get("text")
                problems.append(f"{listed.name}: arrived {arrived}, answered {said}")
        return problems

    def leaving_problems(self, began):
        while self.project.processes():
            if time.monotonic() - began > 10:
                break
            time.sleep(0.02)
        seconds = time.monotonic() - began
        problems = []
        if seconds > LEAVE_TIMEOUT_S:
            problems.append(f"took {seconds:.1f} s to leave")
        if left := self.project.leftovers():
            problems.append(f"left in .moonlark: {', '.join(left)}")
        self.project.leave_nothing()
        return problems


class AgentChecks:
    """All checks of one agent on the command line: each is a run with a scripted model."""

    def __init__(self, agent, world, installation, report):
        self.agent = agent
        self.world = world
        self.installation = installation
        self.report = report

    def run(self):
        for transport in ("stdio", "http"):
            self.transport = transport
            self.check_direct()
            self.check_code()
            if transport == "http":
                self.check_token()
                self.check_restart()
            self.check_awkward()

    def add(self, check, problems):
        self.report.add(self.agent, self.transport, check, problems)

    def converse(self, kind, script, token=True):
        """One run over a project, where the model makes the calls of the script."""
        if self.transport == "stdio":
            self.project = self.world.fresh_project(f"{self.agent.name}-{kind}", kind)
            how = self.project.stdio()
        else:
            self.project = self.world.project(kind)
            how = self.world.server(kind).how(self.project.token if token else None)
        self.reference = self.world.reference(kind)
        conversation = self.world.model_api.converse(
            [ScriptedCall(self.find_listed(kind, name).find_in, arguments) for name, arguments in script]
        )
        self.last = self.agent.run(self.installation, how, conversation.base_url(self.agent.api))
        self.report.log(self.agent, f"{self.transport} {kind}: {self.last.status}\n{self.last.output}")
        self.ended = time.monotonic()
        return conversation

    def find_listed(self, kind, name):
        """A tool of a project by its name or by how its description begins."""
        reference = self.world.reference(kind)
        return next(t for t in reference if t.name == name or t.description.startswith(name))

    def sent(self, conversation):
        """What was sent of ours: (missing tools, broken rules)."""
        problems = sent_problems(self.agent.api, self.reference, conversation)
        missing = [p for p in problems if p.startswith(("no tools", "not sent"))]
        if missing and self.last.status != 0:
            missing.append(f"status {self.last.status}: {self.last.output[-300:]}")
        return missing, [p for p in problems if p not in missing]

    def result_problems(self, conversation, number, *wanted):
        results = conversation.results()
        if len(results) <= number:
            return [f"{len(results)} calls were answered: {self.last.output[-300:]}"]
        missing = [w for w in wanted if w not in results[number].replace("\\", "")]
        return [f"answered {results[number]}"] if missing else []

    def check_direct(self):
        (lookup, arguments, found), (safe, code, refused) = PLAIN_CALLS[1], FAILING_CALLS[0]
        conversation = self.converse("direct", [(lookup, arguments), (safe, code)])
        missing, broken = self.sent(conversation)
        self.add("list", missing)
        self.add(self.agent.api, broken)
        self.add("call", self.result_problems(conversation, 0, found))
        self.add("error", self.result_problems(conversation, 1, refused))
        if self.transport == "stdio":
            self.add("leave", FrameworkChecks.leaving_problems(self, self.ended))

    def check_code(self):
        search = ("search_docs", {"query": "pieces of an article"})
        conversation = self.converse("code", [search, ("execute", {"script": EXECUTE_SCRIPT})])
        missing, broken = self.sent(conversation)
        found = self.result_problems(conversation, 0, "stock.lookup")
        self.add("code list", missing + broken + found)
        self.add("execute", self.result_problems(conversation, 1, "42 pieces", "/orders?state=open"))

    def check_token(self):
        lookup, arguments, found = PLAIN_CALLS[1]
        conversation = self.converse("auth", [(lookup, arguments)])
        missing, _ = self.sent(conversation)
        problems = missing + self.result_problems(conversation, 0, found)
        conversation = self.converse("auth", [], token=False)
        missing, _ = self.sent(conversation)
        if not missing:
            problems.append("without a token the tools are there")
        self.add("token", problems)

    def check_restart(self):
        lookup, arguments, found = PLAIN_CALLS[1]

        def after_restart(_):
            self.world.server("direct").restart()
            return arguments

        conversation = self.converse("direct", [(lookup, arguments), (lookup, after_restart)])
        self.add("restart", self.result_problems(conversation, 1, found))

    def check_awkward(self):
        served = self.world.project("awkward")
        before = arrived_calls(served) if self.transport == "http" else []
        conversation = self.converse("awkward", [("Keys that are no", page_arguments)])
        missing, broken = self.sent(conversation)
        self.add("odd list", missing)
        self.add(f"odd {self.agent.api}", broken)
        problems = self.result_problems(conversation, 0)
        if not problems and PAGE_CALL not in new_calls(self.project, before):
            problems = [f"it did not arrive as meant, and answered {conversation.results()[0]}"]
        self.add("odd call", problems)
