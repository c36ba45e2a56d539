"""What the model's APIs are sent and answer: a request read, the next step written.

Each function takes the conversation, the body of a request and whether the path asks for a
stream, and gives an answer: an object, or a list of events (name, data).
"""

import json
from dataclasses import dataclass

LAST_WORDS = "All done."


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
