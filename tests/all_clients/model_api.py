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

LAST_WORDS = "All done."

# Where each API begins below the address of a conversation.
API_PATHS = {"openai": "/openai/v1", "anthropic": "/anthropic", "gemini": "/gemini"}


@dataclass
class SentTool:
    """A tool as a client sent it to the model."""

    name: str
    schema: object
    description: str = ""
    # Codex groups the tools of a server; such a tool is called by both names.
    namespace: str | None = None
    # Gemini has two fields for parameters, which follow different rules.
    json_schema: bool = True


@dataclass
class ModelRequest:
    api: str
    tools: list
    results: list
    body: dict


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


def text_of(content):
    """The text of a message's content, in whichever of the APIs' forms it is."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text_of(part.get("text", part) if isinstance(part, dict) else part) for part in content)
    return json.dumps(content)


def describe(tool):
    return tool.get("description") or ""


# OpenAI, chat completions


def answer_chat(conversation, body, _):
    request = ModelRequest(
        "openai",
        [
            SentTool(t["function"]["name"], t["function"].get("parameters"), describe(t["function"]))
            for t in body.get("tools") or []
            if t.get("type") == "function"
        ],
        [text_of(m.get("content")) for m in body.get("messages", []) if m.get("role") == "tool"],
        body,
    )
    conversation.requests.append(request)
    step = conversation.next_step(request)
    message = {"role": "assistant", "content": None if step else LAST_WORDS}
    if step:
        tool, arguments = step
        message["tool_calls"] = [
            {
                "id": f"call_{len(request.results)}",
                "type": "function",
                "function": {"name": tool.name, "arguments": json.dumps(arguments)},
            }
        ]
    reason = "tool_calls" if step else "stop"
    envelope = {"id": "chatcmpl-1", "created": 1, "model": body.get("model", "mock-model")}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        return {**envelope, "object": "chat.completion", "choices": [choice], "usage": usage}
    delta = dict(message)
    if step:
        delta["tool_calls"] = [{"index": 0, **message["tool_calls"][0]}]
    chunk = {**envelope, "object": "chat.completion.chunk"}
    return [
        (None, {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}),
        (None, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        (None, {**chunk, "choices": [], "usage": usage}),
        (None, "[DONE]"),
    ]


# OpenAI, responses


def response_tools(tools, namespace=None):
    for tool in tools or []:
        if tool.get("type") == "function":
            yield SentTool(tool["name"], tool.get("parameters"), describe(tool), namespace)
        elif tool.get("type") == "namespace":
            yield from response_tools(tool.get("tools"), tool["name"])


def answer_responses(conversation, body, _):
    items = body.get("input") if isinstance(body.get("input"), list) else []
    request = ModelRequest(
        "openai",
        list(response_tools(body.get("tools"))),
        [text_of(i.get("output")) for i in items if i.get("type") == "function_call_output"],
        body,
    )
    conversation.requests.append(request)
    step = conversation.next_step(request)
    if step:
        tool, arguments = step
        number = len(request.results)
        item = {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": tool.name,
            "arguments": json.dumps(arguments),
            "status": "completed",
        }
        if tool.namespace:
            item["namespace"] = tool.namespace
    else:
        item = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": LAST_WORDS, "annotations": []}],
        }
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": body.get("model", "mock-model"),
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 1,
            "output_tokens": 1,
            "total_tokens": 2,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }
    if not body.get("stream"):
        return response
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    events = [{"type": "response.created", "response": begun}]
    if step:
        events += [
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}},
            {
                "type": "response.function_call_arguments.done",
                "output_index": 0,
                "item_id": item["id"],
                "name": item["name"],
                "arguments": item["arguments"],
            },
        ]
    else:
        place = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
        part = {"type": "output_text", "text": "", "annotations": []}
        events += [
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
            {"type": "response.content_part.added", **place, "part": part},
            {"type": "response.output_text.delta", **place, "delta": LAST_WORDS, "logprobs": []},
            {"type": "response.output_text.done", **place, "text": LAST_WORDS, "logprobs": []},
            {"type": "response.content_part.done", **place, "part": {**part, "text": LAST_WORDS}},
        ]
    events += [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    return [(e["type"], {**e, "sequence_number": n}) for n, e in enumerate(events)]


# Anthropic


def answer_messages(conversation, body, _):
    results = []
    for message in body.get("messages", []):
        if isinstance(message.get("content"), list):
            for block in message["content"]:
                if block.get("type") == "tool_result":
                    results.append(text_of(block.get("content", "")))
    request = ModelRequest(
        "anthropic",
        [
            SentTool(t["name"], t["input_schema"], describe(t))
            for t in body.get("tools") or []
            if "input_schema" in t
        ],
        results,
        body,
    )
    conversation.requests.append(request)
    step = conversation.next_step(request)
    if step:
        tool, arguments = step
        block = {"type": "tool_use", "id": f"toolu_{len(results)}", "name": tool.name, "input": arguments}
    else:
        block = {"type": "text", "text": LAST_WORDS}
    reason = "tool_use" if step else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "mock-model"),
        "content": [block],
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": usage,
    }
    if not body.get("stream"):
        return message
    if step:
        opening = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        opening = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": LAST_WORDS}
    events = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": opening},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return [(e["type"], e) for e in events]


def count_message_tokens(_conversation, _body, _):
    return {"input_tokens": 1}


# Gemini


def answer_gemini(conversation, body, streamed):
    tools, results = [], []
    for group in body.get("tools") or []:
        for tool in group.get("functionDeclarations") or group.get("function_declarations") or []:
            for key in ("parametersJsonSchema", "parameters_json_schema"):
                if key in tool:
                    tools.append(SentTool(tool["name"], tool[key], describe(tool)))
                    break
            else:
                sent = SentTool(tool["name"], tool.get("parameters"), describe(tool), json_schema=False)
                tools.append(sent)
    for content in body.get("contents", []):
        for part in content.get("parts", []):
            response = part.get("functionResponse") or part.get("function_response")
            if response:
                results.append(json.dumps(response.get("response"), ensure_ascii=False))
    request = ModelRequest("gemini", tools, results, body)
    conversation.requests.append(request)
    step = conversation.next_step(request)
    if step:
        tool, arguments = step
        part = {"functionCall": {"name": tool.name, "args": arguments}, "thoughtSignature": "c2lnbmVk"}
    else:
        part = {"text": LAST_WORDS}
    answer = {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "mock-model",
        "responseId": "r1",
    }
    return [(None, answer)] if streamed else answer


def count_gemini_tokens(_conversation, _body, _):
    return {"totalTokens": 1}


ANSWERERS = [
    (r"/chat/completions$", answer_chat),
    (r"/responses$", answer_responses),
    (r"/messages/count_tokens$", count_message_tokens),
    (r"/messages$", answer_messages),
    (r":countTokens$", count_gemini_tokens),
    (r":(stream)?[gG]enerateContent$", answer_gemini),
]
