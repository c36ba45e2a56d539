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


KNOWN_FAULTS = [
    KnownFault(
        "llama_index",
        ("odd gemini",),
        r"no tools were sent|additionalProperties is only supported in Gemini Enterprise",
        "LlamaIndex makes additionalProperties of every object without known fields, which google-genai "
        "refuses for Gemini before anything is sent: llama-index-llms-google-genai 0.11.3, run-llama/"
        "llama_index pull request 20123 (closed).",
    ),
    KnownFault(
        "crewai",
        ("error",),
        r"^(open_safe: a result: .*the safe does not open with 0000|stock__audit: a result: the books are lost)",
        "CrewAI gives what a failed tool says as its result: mcpadapt 0.1.19 does not look at isError. No issue "
        "was found; crewAIInc/crewAI pull request 7643 mends the same in another of its ways to MCP.",
    ),
    KnownFault(
        "crewai",
        ("token",),
        r"^without a token, only: .*Couldn't connect to the MCP server after 15 seconds",
        "CrewAI waits for its connect timeout when it is refused, and does not say why: crewai-tools 1.15.30 "
        "with mcpadapt 0.1.19; crewAIInc/crewAI issue 3254 is about the same message.",
        ("http",),
    ),
    KnownFault(
        "semantic_kernel",
        ("error",),
        r"^(open_safe: a result: .*the safe does not open with 0000|stock__audit: a result: the books are lost)",
        "Semantic Kernel gives what a failed tool says as its result: 1.45.0 does not look at isError. No issue "
        "was found.",
    ),
    KnownFault(
        "semantic_kernel",
        ("token",),
        r"^without a token, only: no answer within 25 s",
        "Semantic Kernel waits for ever when it is refused: 1.45.0, microsoft/semantic-kernel issue 13414 "
        "(pull request 14095 is open).",
        ("http",),
    ),
    KnownFault(
        "semantic_kernel",
        ("restart",),
        r"^stock__lookup: no answer within 60 s",
        "Semantic Kernel asks for the tools within its handler of list_changed, which blocks its own receiving, "
        "so that every later call hangs: 1.45.0; the same was mended by microsoft/agent-framework pull request "
        "4866. After a restart Moonlark says list_changed to sessions that it took up.",
        ("http",),
    ),
    KnownFault(
        "agno",
        ("error",),
        r"a result: Error from MCP tool '(open_safe|stock__audit)': .*(does not open with 0000|books are lost)",
        "Agno gives a failed tool's words as a result that begins with 'Error from MCP tool': 3.1.10, no issue "
        "was found.",
    ),
    KnownFault(
        "agno",
        ("token",),
        r"^without a token: no error, 0 tools$",
        "Agno logs that it cannot connect and goes on without tools: 3.1.10, on purpose since agno-agi/agno "
        "pull request 5181.",
        ("http",),
    ),
    KnownFault(
        "mastra",
        ("token",),
        r"^without a token: no error, 0 tools$",
        "Mastra's listTools logs that it cannot connect and goes on without tools: @mastra/mcp 2.0.0, "
        "mastra-ai/mastra issue 18029.",
        ("http",),
    ),
]


def find_known_fault(client, transport, check):
    for fault in KNOWN_FAULTS:
        if fault.client == client and check in fault.checks and transport in fault.transports:
            return fault
    return None
