from typing import Any, Callable, Dict, List, Literal, NoReturn, NotRequired, TypedDict

# What an extension and the host agree on

class ToolParameter:
    """One parameter of a tool."""

    def __init__(
        self,
        name: str = ...,
        param_type: Literal["string", "integer", "number", "boolean", "array", "object"] = ...,
        required: bool = False,
        default: Any = None,
        description: str | None = None,
        enum: List[Any] | None = None,
        items: "str | ToolParameter | Dict[str, Any] | None" = None,
        properties: "List[ToolParameter] | Dict[str, Any] | None" = None,
        minimum: float | None = None,
        maximum: float | None = None,
        pattern: str | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        min_items: int | None = None,
        max_items: int | None = None,
        format: str | None = None,
        title: str | None = None,
    ) -> None:
        """One parameter of a tool.

        required: Whether the caller must give it.
        default: What it is when the caller does not give it.
        description: Shown to the agent.
        enum: The only values it may have.
        items: What an array holds: a type, or a parameter without a name.
        properties: What an object holds: a list of parameters.
        pattern: A regular expression that text must match.
        """

class Annotations(TypedDict, total=False):
    readOnlyHint: bool
    destructiveHint: bool
    idempotentHint: bool
    openWorldHint: bool
    read_only: bool
    """Changes nothing."""
    destructive: bool
    """May destroy or overwrite something."""
    idempotent: bool
    """Twice does no more than once."""
    open_world: bool
    """Reaches beyond this machine."""

class Tool:
    """A tool that an extension provides."""

    def __init__(
        self,
        name: str,
        description: str = "",
        parameters: List[ToolParameter] | Dict[str, Any] = [],
        handler: Callable[..., Any] = ...,
        title: str | None = None,
        annotations: Annotations | None = None,
        output: Dict[str, Any] | None = None,
        output_schema: Dict[str, Any] | None = None,
    ) -> None:
        """A tool that an extension provides.

        name: Letters, digits, `_`, `-` and `.`, at most 128.
        description: What it does, in a line an agent can act on.
        parameters: A list of parameters, or a JSON Schema of an object.
        handler: Called as `handler(params)` or `handler(params, context)`, with checked
            parameters. What it returns is the result: any plain value, or
            `{"content": [...], "isError": False}`.
        title: Its name for people.
        output: A JSON Schema that every result is held to; `output_schema` is the same.
        annotations: What a call does to the world; agents and operators rely on it.
        """

class Extension:
    """What `describe_extension` returns."""

    def __init__(
        self,
        name: str,
        version: str = "",
        description: str = "",
        tools: List[Tool] = [],
        allowed_exec: List[str] = [],
    ) -> None:
        """What `describe_extension` returns.

        allowed_exec: The commands it runs with `exec.run`; the operator must allow them too.
        """

class TryError:
    """Why something failed."""

    code: str
    message: str
    hint: str | None
    retryable: bool

class TryResult:
    """What `try_call` gives."""

    ok: bool
    value: Any
    """What the function returned, if it went well."""
    error: Any
    """A `TryError`, if it did not."""

def try_call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> TryResult:
    """Call a function that may fail, and go on. Limits end the call all the same."""

def describe_extension() -> Extension:
    """Every extension defines this function; Moonlark calls it to learn about the tools."""

class Caller(TypedDict):
    surface: Literal["mcp", "rest", "cli"]
    """Which way in the call came."""
    name: str
    """Who calls, as rules know them."""
    client: str | None
    """The client's name for itself."""

class Context:
    """The second parameter of a handler, if it has one.

    Write `def handler(params, context):  # type: (dict, Context) -> object` for completion.
    """

    config: Dict[str, Any]
    """The extension's own keys in moonlark.toml."""
    caller: Caller
    """Who calls."""

    def call(self, tool: str, args: Dict[str, Any] = {}) -> Any:
        """Call another tool; needs the grant `tool:NAME`."""

    def search(self, query: str, *SEARCH_OPTIONS) -> Any:
        """Search the knowledge base."""

    def get(
        self,
        id: str,
        section: str | None = None,
        offset: int | None = None,
        limit: int | None = None,
    ) -> Any:
        """A document of the knowledge base by its ID, or a part of it."""

    def sources(self) -> Any:
        """What the knowledge base is made from."""

def load(module: str, *names: str, **renamed: str) -> None:
    """Take names from another file of the extensions folder: `load("other.star", "fn")`."""

def struct(**fields: Any) -> Any:
    """A value with these fields: `struct(a=1).a`."""

def record(**fields: Any) -> Any:
    """A type with these fields: `record(host=str, port=field(int, 80))`."""

def field(type: Any, default: Any = ...) -> Any:
    """A field of a record, with a default."""

def enum(*values: str) -> Any:
    """A type that has only these values."""

def partial(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """A function with some of its arguments given."""

def pprint(*args: Any) -> None:
    """Log the values at level info, laid out over lines."""

def pstr(value: Any) -> str:
    """A value as text, laid out over lines."""

def print(*args: Any, sep: str = " ") -> None:
    """Log the values at level info, as text."""

def fail(*args: Any, sep: str = " ") -> NoReturn:
    """End the call with this message."""
