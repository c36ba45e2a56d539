"""The checks of an agent on the command line: each is a run with a scripted model."""

import time

from checks import (
    EXECUTE_SCRIPT,
    FAILING_CALLS,
    PAGE_CALL,
    PLAIN_CALLS,
    arrived_calls,
    leaving_problems,
    new_calls,
    page_arguments,
    sent_problems,
)
from model_api import ScriptedCall


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
        self.left = []

        def look_for_the_left():
            if self.transport == "stdio":
                self.left = leaving_problems(self.project, time.monotonic())

        base_url = conversation.base_url(self.agent.api)
        self.last = self.agent.run(self.installation, how, base_url, look_for_the_left)
        self.report.log(self.agent, f"{self.transport} {kind}: {self.last.status}\n{self.last.output}")
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
            self.add("leave", self.left)

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
