#!/usr/bin/env python3
"""The tier of all clients: real frameworks and agents against the real binary.

    tests/all_clients/run.py [NAME…]    all clients, or those whose names contain one of these

Runs in turn, and ends with a table, which is also in target/all-clients/report.md. The
status is 1 if anything is not as it should be, be it better.
"""

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from agent_checks import AgentChecks
from checks import APIS, find_listed, listed_tools
from clients import FRAMEWORKS
from command_line_agents import AGENTS
from driver_process import DriverProcess
from framework_checks import FrameworkChecks
from install import TARGET, Installation
from model_api import ModelApi
from model_formats import SentTool
from model_rules import broken_rules
from moonlark_project import TOKEN, ApiServer, MoonlarkProject, MoonlarkServer
from report import Report, fail

REPOSITORY = Path(__file__).resolve().parent.parent.parent
# What each kind of project is made of: fixture, exposure, token.
KINDS = {
    "direct": ("plain", "direct", None),
    "code": ("plain", "code", None),
    "auth": ("plain", "direct", TOKEN),
    "awkward": ("awkward", "direct", None),
}


class MoonlarkItself:
    """What Moonlark lists, judged as it is: many clients pass it on so."""

    name, title, package = "moonlark", "Moonlark's own list", ""


class World:
    """The projects, their servers, the API they call and the model: shared by all clients."""

    def __init__(self, moonlark, folder):
        self.folder = folder
        self.moonlark = moonlark
        self.api = ApiServer()
        self.model_api = ModelApi()
        self.projects = []
        self.servers = {}
        self.references = {}

    def fresh_project(self, name, kind):
        """A project that nothing has run in yet, so that nothing is known from before."""
        fixture, expose, token = KINDS[kind]
        project = MoonlarkProject(self.moonlark, self.folder, name, fixture, expose, self.api, token)
        self.projects.append(project)
        return project

    def server(self, kind):
        if kind not in self.servers:
            self.servers[kind] = MoonlarkServer(self.fresh_project(f"served-{kind}", kind))
        return self.servers[kind]

    def project(self, kind):
        return self.server(kind).project

    def reference(self, kind):
        if kind not in self.references:
            self.references[kind] = listed_tools(self.server(kind).list_tools())
        return self.references[kind]

    def close(self):
        for server in self.servers.values():
            server.stop()
        for project in self.projects:
            project.leave_nothing()
        self.api.close()
        self.model_api.close()


def check_moonlark(world, report):
    """The settled list has everything, under names and schemas that all three APIs take."""
    for kind, column, expected in (
        ("direct", "list", PLAIN_DESCRIPTIONS),
        ("code", "code list", CODE_DESCRIPTIONS),
        ("awkward", "odd list", AWKWARD_DESCRIPTIONS),
    ):
        reference = world.reference(kind)
        missing = [text for text in expected if find_listed(reference, text) is None]
        report.add(MoonlarkItself, "http", column, [f"not listed: {text}" for text in missing])
    for kind, prefix in (("direct", ""), ("awkward", "odd ")):
        sent = [SentTool(t.name, t.schema, t.description) for t in world.reference(kind)]
        for api in APIS:
            report.add(MoonlarkItself, "http", prefix + api, broken_rules(api, sent))


PLAIN_DESCRIPTIONS = [
    "Count the words",
    "Open the safe",
    "How many pieces",
    "Reserve pieces",
    "Audit the stock",
    "List the orders",
    "Order something",
]
CODE_DESCRIPTIONS = ["Count the words", "Open the safe"]
AWKWARD_DESCRIPTIONS = [
    "A dotted name",
    "A schema that contains itself",
    "A text with the format",
    "Keys that are no",
    "Alternatives at the top",
    "An array of anything",
    "A name with letters",
    "A name that begins with a digit",
    "A name that begins with a dash",
    "An operation whose name",
    "An operation without a name",
    "A body that contains itself",
]


def main():
    wanted = sys.argv[1:]
    binary = Path(os.environ.get("MOONLARK", REPOSITORY / "target" / "debug" / "moonlark"))
    if not binary.exists():
        fail(f"there is no {binary}; build it with: cargo build -p moonlark")
    clients = [c for c in [*FRAMEWORKS, *AGENTS] if not wanted or any(w in c.name for w in wanted)]
    installation = Installation()
    logs = TARGET / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    report = Report(installation, logs)
    # Ended from outside, what was started is still stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="all-clients-") as folder:
        # A copy, so that a build in between does not change what is tested.
        moonlark = Path(shutil.copy(binary, Path(folder) / "moonlark"))
        world = World(moonlark, Path(folder))
        try:
            check_all(clients, world, installation, report)
        finally:
            world.close()
    text = report.markdown(clients)
    (TARGET / "report.md").write_text(text, encoding="utf-8")
    print(f"\n{text}")
    sys.exit(1 if report.unexpected else 0)


def check_all(clients, world, installation, report):
    print("Moonlark", flush=True)
    check_moonlark(world, report)
    for client in clients:
        print(f"{client.title} {report.version(client)}", flush=True)
        if client in AGENTS:
            AgentChecks(client, world, installation, report).run()
            continue
        driver = DriverProcess(client, installation, report.log_folder / f"{client.name}.log")
        try:
            FrameworkChecks(client, world, driver, report).run()
        finally:
            driver.stop()


if __name__ == "__main__":
    main()
