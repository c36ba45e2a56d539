"""The checks of a framework, made by its driver."""

import re
import time

from checks import (
    AWKWARD_CALLS,
    EXECUTE_SCRIPT,
    FAILING_CALLS,
    PAGE_CALL,
    PLAIN_CALLS,
    arrived_calls,
    find_listed,
    leaving_problems,
    missing_tools,
    new_calls,
    page_arguments,
    plain_name,
    sent_problems,
    without_nulls,
)
from model_api import ScriptedCall

STEP_TIMEOUT_S = 60
# A client that is refused must say so within this time.
REFUSAL_TIMEOUT_S = 25


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
            self.add("leave", leaving_problems(self.project, began))

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
