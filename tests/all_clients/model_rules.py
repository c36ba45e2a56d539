"""The published rules of the three model APIs for tools, applied to what a client sent.

One tool that breaks a rule fails the whole request, so every complaint counts.
"""

import re

NAME_PATTERNS = {
    "openai": r"[a-zA-Z0-9_-]{1,64}",
    "anthropic": r"[a-zA-Z0-9_-]{1,128}",
    "gemini": r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
}
ANTHROPIC_KEY_PATTERN = r"[a-zA-Z0-9_.-]{1,64}"
JSON_TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}
REFUSED_AT_TOP = {
    "openai": ("oneOf", "anyOf", "allOf", "enum", "not"),
    "anthropic": ("oneOf", "anyOf", "allOf"),
    "gemini": (),
}
# The fields of Gemini's own Schema message; anything else is an unknown name to it.
GEMINI_SCHEMA_KEYS = set(
    "type format title description nullable enum maxItems minItems properties required minProperties "
    "maxProperties minLength maxLength pattern example anyOf propertyOrdering default items minimum "
    "maximum".split()
)
GEMINI_STRING_FORMATS = {"enum", "date-time"}


def broken_rules(api, tools):
    """What the API would refuse in these tools, one line for each complaint."""
    complaints = []
    seen = set()
    for tool in tools:
        called = (tool.namespace or "") + tool.name
        if called in seen:
            complaints.append(f"{called}: there are two tools of this name")
        seen.add(called)
        # A namespace and its tool are two fields, each with the rule for names.
        if not re.fullmatch(NAME_PATTERNS[api], tool.name):
            complaints.append(f"{tool.name}: not a name for {api}")
        complaints += [f"{tool.name}: {c}" for c in broken_schema_rules(api, tool)]
    return complaints


def broken_schema_rules(api, tool):
    schema = tool.schema
    if schema is None:
        return [] if api != "anthropic" else ["no schema"]
    if not isinstance(schema, dict):
        return ["the schema is no object"]
    complaints = []
    if str(schema.get("type", "")).lower() != "object":
        complaints.append(f"the type of the parameters is {schema.get('type')!r}")
    complaints += [f"{key} at the top" for key in REFUSED_AT_TOP[api] if key in schema]
    for path, part in parts_of(schema):
        complaints += [f"{c} at {path or '/'}" for c in broken_part_rules(api, tool, schema, part)]
    return complaints


def broken_part_rules(api, tool, root, part):
    gemini_message = api == "gemini" and not tool.json_schema
    kinds = part.get("type")
    if isinstance(kinds, list) and gemini_message:
        yield f"a list of types {kinds}"
    kinds = [str(k).lower() for k in (kinds if isinstance(kinds, list) else [kinds]) if k is not None]
    for kind in kinds:
        if kind not in JSON_TYPES:
            yield f"unknown type {kind!r}"
    if api != "anthropic" and "array" in kinds and not {"items", "prefixItems"} & part.keys():
        yield "an array without items"
    if "$ref" in part and not gemini_message and find_reference(root, part["$ref"]) is None:
        yield f"unknown reference {part['$ref']}"
    properties = part.get("properties")
    if isinstance(properties, dict):
        if api == "anthropic":
            for key in properties:
                if not re.fullmatch(ANTHROPIC_KEY_PATTERN, key):
                    yield f"property key {key!r}"
        if gemini_message:
            for key in part.get("required") or []:
                if key not in properties:
                    yield f"required {key!r} is no property"
    if gemini_message:
        for key in part:
            camel = re.sub(r"_(\w)", lambda m: m[1].upper(), key)
            if camel not in GEMINI_SCHEMA_KEYS:
                yield f"unknown field {key!r}"
        if part.get("enum") and not all(isinstance(value, str) for value in part["enum"]):
            yield "an enum of other things than texts"
        if kinds == ["string"] and part.get("format") not in (None, *GEMINI_STRING_FORMATS):
            yield f"the format {part['format']!r}"


def parts_of(schema, path=""):
    """All schemas within a schema, with their places."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key in ("properties", "$defs", "definitions", "patternProperties"):
        if isinstance(schema.get(key), dict):
            for name, part in schema[key].items():
                yield from parts_of(part, f"{path}/{key}/{name}")
    for key in ("items", "additionalProperties", "not", "contains"):
        yield from parts_of(schema.get(key), f"{path}/{key}")
    for key in ("anyOf", "oneOf", "allOf", "any_of", "prefixItems"):
        for number, part in enumerate(schema.get(key) or []):
            yield from parts_of(part, f"{path}/{key}/{number}")


def find_reference(root, reference):
    if not reference.startswith("#"):
        return None
    part = root
    for step in reference[1:].split("/"):
        if step:
            step = step.replace("~1", "/").replace("~0", "~")
            part = part.get(step) if isinstance(part, dict) else None
            if part is None:
                return None
    return part
