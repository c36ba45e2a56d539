"""What is a client's own fault: asserted to be just that, so that a fix shows.

Each entry says for which client and checks it holds, and has a pattern that every line of
what was wrong must match. An entry whose check passes is reported: it can go.
"""

import re
from dataclasses import dataclass


@dataclass
class KnownFault:
    client: str
    checks: tuple
    pattern: str
    # What the client does, with its version and its issue where there is one.
    why: str
    transports: tuple = ("stdio", "http")

    def explains(self, problems):
        return all(re.search(self.pattern, problem, re.DOTALL) for problem in problems)


KNOWN_FAULTS = []


def find_known_fault(client, transport, check):
    for fault in KNOWN_FAULTS:
        if fault.client == client and check in fault.checks and transport in fault.transports:
            return fault
    return None
