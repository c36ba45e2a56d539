"""A model's API on the loopback: it records what a client sends and calls tools by a script.

It speaks OpenAI's chat completions and responses, Anthropic's messages and Gemini's
generateContent, each with and without streaming. It knows nothing of the clients.

Each conversation has an address of its own, so that what a client sends late, or beside
its conversation (titles, warm-ups), does not end up in another's.
"""

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from model_formats import ANSWERERS

# Where each API begins below the address of a conversation.
API_PATHS = {"openai": "/openai/v1", "anthropic": "/anthropic", "gemini": "/gemini"}


@dataclass
class ScriptedCall:
    """The model's next step: call this tool with these arguments.

    `find_tool` finds it among the tools that were sent. `arguments` may be a function of
    that tool, which may also do what is to happen before the call.
    """

    find_tool: object
    arguments: object

    def resolve(self, tools):
        """The sent tool that is meant, with its arguments."""
        found = self.find_tool(tools)
        if found is None:
            return None
        return found, self.arguments(found) if callable(self.arguments) else self.arguments


@dataclass
class Conversation:
    script: list
    address: str = ""
    requests: list = field(default_factory=list)

    def base_url(self, api):
        return self.address + API_PATHS[api]

    @property
    def main_requests(self):
        """Requests that offer tools; the others are a client's titles and the like."""
        return [r for r in self.requests if r.tools]

    def first_tools(self):
        return self.main_requests[0].tools if self.main_requests else []

    def results(self):
        """What the tools answered, as the model was told in the end."""
        return max((r.results for r in self.main_requests), key=len, default=[])

    def next_step(self, request):
        """The call to make now, or None for the last words."""
        done = len(request.results)
        if not request.tools or done >= len(self.script):
            return None
        return self.script[done].resolve(request.tools)


class ModelApi:
    def __init__(self):
        self.conversations = {}
        self.lock = threading.Lock()
        handler = type("BoundHandler", (ModelRequestHandler,), {"model_api": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def converse(self, script):
        with self.lock:
            key = f"c{len(self.conversations) + 1}"
            conversation = Conversation(script)
            conversation.address = f"http://127.0.0.1:{self.server.server_port}/{key}"
            self.conversations[key] = conversation
        return conversation

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class ModelRequestHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model_api = None

    def do_GET(self):
        if self.path.split("?")[0].rstrip("/").endswith("/models"):
            models = [{"id": "mock-model", "object": "model", "type": "model", "slug": "mock-model"}]
            return self.send_json({"object": "list", "data": models, "models": [], "has_more": False})
        if found := re.search(r"/gemini/.*/(models/[^/:?]+)$", self.path):
            limits = {"inputTokenLimit": 1_000_000, "outputTokenLimit": 8192}
            return self.send_json({"name": found[1], "version": "1", "displayName": "mock", **limits})
        return self.send_json({"error": {"message": "there is nothing here"}}, status=404)

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self):
        body = self.read_body()
        path = self.path.split("?")[0]
        conversation = self.model_api.conversations.get(path.split("/")[1])
        answer = None
        if conversation is not None:
            for suffix, answerer in ANSWERERS:
                if re.search(suffix, path):
                    answer = answerer(conversation, body, "stream" in path)
                    break
        if answer is None:
            return self.send_json({"error": {"message": f"there is nothing at {path}"}}, status=404)
        if isinstance(answer, list):
            return self.send_events(answer)
        return self.send_json(answer)

    def read_body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            return json.loads(data or b"{}")
        except ValueError:
            return {}

    def send_json(self, value, status=200):
        self.send_bytes(json.dumps(value).encode(), "application/json", status)

    def send_events(self, events):
        lines = []
        for kind, value in events:
            if kind:
                lines.append(f"event: {kind}\n")
            lines.append(f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n")
        self.send_bytes("".join(lines).encode(), "text/event-stream")

    def send_bytes(self, data, kind, status=200):
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def log_message(self, *_):
        pass
