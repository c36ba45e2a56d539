"""The table of clients and checks: for the terminal, and as Markdown."""

import sys
import time

from checks import CHECKS
from known_faults import find_known_fault

GOOD, BAD, NOT_APPLICABLE = "✔", "✘", "–"
# Longer complaints are in the log.
MAX_DETAIL_CHARACTERS = 600


class Report:
    def __init__(self, installation, log_folder):
        self.installation = installation
        self.log_folder = log_folder
        self.began = time.monotonic()
        self.cells = {}
        self.rows = []
        self.footnotes = []
        self.unexpected = []

    def add(self, client, transport, check, problems):
        row = (client.title, transport)
        if row not in self.rows:
            self.rows.append(row)
            self.cells[row] = {}
        fault = find_known_fault(client.name, transport, check)
        if not problems:
            mark = GOOD
            if fault is not None:
                mark = BAD
                self.unexpected.append((row, check, [f"works now, although it is a known fault: {fault.why}"]))
        elif fault is not None and fault.explains(problems):
            if fault not in self.footnotes:
                self.footnotes.append(fault)
            mark = f"({self.footnotes.index(fault) + 1})"
        else:
            mark = BAD
            self.unexpected.append((row, check, problems))
        self.cells[row][check] = mark
        self.log(client, f"{transport} {check}: {mark} {problems}")
        said = f": {shorten('; '.join(problems))}" if mark == BAD else ""
        print(f"  {transport} {check} {mark}{said}", flush=True)

    def log(self, client, text):
        with open(self.log_folder / f"{client.name}.log", "a", encoding="utf-8") as log:
            print(text, file=log)

    def version(self, client):
        return self.installation.version(client.folder, client.package) if client.package else ""

    def markdown(self, clients):
        versions = {client.title: self.version(client) for client in clients}
        lines = ["# Every client", ""]
        lines.append("| client | version | over | " + " | ".join(CHECKS) + " |")
        lines.append("|---" * (len(CHECKS) + 3) + "|")
        for title, transport in self.rows:
            cells = [self.cells[title, transport].get(check, NOT_APPLICABLE) for check in CHECKS]
            lines.append("| " + " | ".join([title, versions.get(title, ""), transport, *cells]) + " |")
        lines += ["", f"{GOOD} good · {BAD} unexpected · (n) a known fault of the client · {NOT_APPLICABLE} none", ""]
        lines += [f"- **{check}**: {meaning}" for check, meaning in CHECKS.items()]
        if self.footnotes:
            lines += ["", "## Known faults of clients", ""]
            lines += [f"{number}. {fault.why}" for number, fault in enumerate(self.footnotes, 1)]
        if self.unexpected:
            lines += ["", "## Unexpected", ""]
            for (title, transport), check, problems in self.unexpected:
                lines.append(f"- {title}, {transport}, {check}: {shorten('; '.join(problems))}")
        minutes = (time.monotonic() - self.began) / 60
        lines += ["", f"{len(self.unexpected)} unexpected, in {minutes:.0f} minutes."]
        return "\n".join(lines) + "\n"


def shorten(text):
    text = " ".join(text.split())
    return text if len(text) <= MAX_DETAIL_CHARACTERS else text[:MAX_DETAIL_CHARACTERS] + "…"


def fail(message):
    print(message, file=sys.stderr)
    raise SystemExit(2)
