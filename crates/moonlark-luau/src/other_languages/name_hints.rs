//! Names of other languages: globals, functions of modules, fields and methods of texts
//! and lists.

/// What a word for a value is called here: these are nil in Luau, silently.
pub(crate) fn hint_for_constant(name: &str) -> Option<&'static str> {
    Some(match name {
        "null" | "None" | "undefined" | "NULL" | "Null" | "Nil" | "NIL" | "nullptr" => {
            "write nil, or json.null for a null in JSON"
        }
        "True" | "TRUE" => "write true",
        "False" | "FALSE" => "write false",
        "NaN" => "write math.nan",
        "Infinity" => "write math.huge",
        _ => return None,
    })
}

/// What a name that is nobody's is called here. `line` has it.
pub(crate) fn hint_for_global(name: &str, line: &str) -> Option<&'static str> {
    let prefixed_text = |quote: &str| line.contains(&format!("{name}{quote}"));
    let hint = match name {
        "f" | "r" | "b" if prefixed_text("\"") || prefixed_text("'") => {
            "text with values in it is written in backticks: `n: {value}`"
        }
        "console" | "puts" | "printf" | "echo" => "use print(…)",
        "JSON" => "use json.decode(text) and json.encode(value)",
        "Math" => "the module is math, in small letters",
        "Promise" => "use await_all({ … }), await_any({ … }) or map_parallel(list, fn)",
        "Object" | "Array" => {
            "tables are walked with for key, value in t do … end; #list is a length"
        }
        "len" | "length" | "count" => "the length of a list or a text is #value",
        "str" | "String" | "repr" => "use tostring(value)",
        "int" | "float" | "Number" | "parseInt" | "parseFloat" => "use tonumber(text)",
        "bool" | "Boolean" => "write value ~= nil and value ~= false",
        "isinstance" => "use type(value) == \"table\"",
        "range" => "write for i = 1, n do … end",
        "enumerate" => "write for index, value in list do … end",
        "zip" => "write for i, a in list do local b = other[i] … end",
        "map" | "filter" | "reduce" => {
            "build the list in a loop: for _, item in list do table.insert(out, item) end"
        }
        "sorted" => "use table.sort(list)",
        "reversed" => "write for i = #list, 1, -1 do … end",
        "sum" => "add in a loop: for _, n in list do total += n end",
        "max" => "use math.max(a, b), or math.max(table.unpack(list))",
        "min" => "use math.min(a, b), or math.min(table.unpack(list))",
        "any" | "all" => "look in a loop: for _, item in list do … end",
        "abs" => "use math.abs(n)",
        "round" => "use math.round(n)",
        "floor" => "use math.floor(n)",
        "ceil" => "use math.ceil(n)",
        "dict" | "list" | "set" | "tuple" | "Map" | "Set" => "write a table: { … }",
        "exit" | "quit" | "sys" | "process" => "a script ends by return: return value",
        "setTimeout" => "use sleep(seconds)",
        "Date" | "datetime" => "use os.time() and os.date(\"!%Y-%m-%d\")",
        "fetch" | "requests" | "axios" | "curl" => {
            "call a tool that does it: search_docs finds it by what it does"
        }
        "await" => {
            "there is no await: sdk.source.fn({ … }) waits by itself; a promise has promise:await()"
        }
        "try" => "errors are caught by pcall: local ok, value = pcall(function() return … end)",
        "throw" | "raise" | "panic" => "errors are raised by error(\"message\")",
        "Error" | "Exception" | "ValueError" => "errors are raised by error(\"message\")",
        "new" => "there is no new: call a function, or write a table { … }",
        "self" | "this" => "there is no object here",
        "const" | "let" | "var" => "variables are declared with local: local name = value",
        "re" => "use string.match(text, pattern), or the module regex",
        _ => return None,
    };
    Some(hint)
}

/// What a function of a module or library is called that has none of this name.
pub(crate) fn hint_for_member(owner: &str, name: &str) -> Option<&'static str> {
    let hint = match (owner, name) {
        ("json", "dumps" | "dump" | "stringify" | "serialize" | "write") => {
            "use json.encode(value)"
        }
        ("json", "loads" | "load" | "parse" | "deserialize" | "read") => "use json.decode(text)",
        ("string", "concat" | "join") => {
            "texts are joined with .., a list with table.concat(list, \", \")"
        }
        ("string", name) => return hint_for_field(FieldReceiver::Text, name),
        ("table", "new") => "write a table: { … }",
        ("table", "copy") => "use table.clone(t)",
        ("table", "empty" | "isEmpty" | "isempty" | "is_empty") => "write next(t) == nil",
        ("table", "merge" | "extend" | "assign") => {
            "write for key, value in other do t[key] = value end"
        }
        ("table", "tostring" | "dump" | "print") => "use json.encode(t), or print(t)",
        ("table", name) => return hint_for_field(FieldReceiver::List, name),
        ("math", "inf" | "infinity") => "write math.huge",
        ("math", "trunc" | "int") => "use math.floor(n)",
        ("math", "mod") => "write a % b",
        ("math", "sum") => "add in a loop: for _, n in list do total += n end",
        ("os", "sleep") | ("time", "sleep") => "use sleep(seconds)",
        _ => return None,
    };
    Some(hint)
}

/// What a field or method of another language is asked of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldReceiver {
    Text,
    List,
    Unknown,
}

/// How the same is done here, for a field or method that texts and lists have elsewhere.
pub(crate) fn hint_for_field(receiver: FieldReceiver, name: &str) -> Option<&'static str> {
    let of_text = || hint_for_text_field(name);
    let of_list = || hint_for_list_field(name);
    match receiver {
        FieldReceiver::Text => of_text(),
        FieldReceiver::List => of_list(),
        FieldReceiver::Unknown => match (of_text(), of_list()) {
            (Some(text), Some(list)) if text != list => hint_for_either_field(name),
            (text, list) => list.or(text),
        },
    }
}

fn hint_for_text_field(name: &str) -> Option<&'static str> {
    Some(match name {
        "length" | "size" | "count" => "#text is its length",
        "trim" | "strip" | "trimStart" | "trimEnd" | "lstrip" | "rstrip" => {
            "use text:match(\"^%s*(.-)%s*$\")"
        }
        "toLowerCase" | "toUpperCase" | "lowercase" | "uppercase" | "toLower" | "toUpper" => {
            "use text:lower() and text:upper()"
        }
        "replace" | "replaceAll" | "replace_all" => {
            "use text:gsub(pattern, replacement), where % before a sign takes it as it is"
        }
        "startsWith" | "startswith" | "starts_with" => "use text:sub(1, #start) == start",
        "endsWith" | "endswith" | "ends_with" => "use text:sub(-#ending) == ending",
        "includes" | "contains" | "indexOf" | "index" | "search" => {
            "use text:find(part, 1, true), which is nil where there is none"
        }
        "substring" | "substr" | "slice" => "use text:sub(from, to), which counts from 1",
        "charAt" | "at" => "use text:sub(n, n), which counts from 1",
        "charCodeAt" => "use text:byte(n), which counts from 1",
        "splitlines" | "lines" => "use text:split(\"\\n\")",
        "join" => "use table.concat(list, \", \")",
        "concat" => "texts are joined with ..",
        "toString" | "to_s" => "it is a text already",
        "padStart" | "padEnd" | "zfill" | "ljust" | "rjust" => "use string.format(\"%5s\", text)",
        "matchAll" => "use text:gmatch(pattern) in a loop",
        "isdigit" | "isnumeric" => "use tonumber(text) ~= nil",
        "isEmpty" | "empty" | "isempty" => "write text == \"\"",
        "capitalize" => "use text:sub(1, 1):upper() .. text:sub(2)",
        "encode" | "decode" => "texts are bytes here: use it as it is",
        _ => return None,
    })
}

fn hint_for_list_field(name: &str) -> Option<&'static str> {
    Some(match name {
        "length" | "size" | "count" | "len" => "#list is its length",
        "push" | "append" | "add" => "use table.insert(list, value)",
        "pop" => "use table.remove(list)",
        "shift" => "use table.remove(list, 1)",
        "unshift" => "use table.insert(list, 1, value)",
        "map" | "filter" | "reduce" | "flatMap" | "flat" => {
            "build it in a loop: for _, item in list do table.insert(out, item) end"
        }
        "forEach" | "each" | "some" | "every" | "entries" => {
            "use a loop: for _, item in list do … end"
        }
        "keys" | "values" | "items" => "use for key, value in t do … end",
        "find" | "findIndex" => {
            "look in a loop: for _, item in list do … end; table.find(list, value) finds a value"
        }
        "includes" | "contains" | "indexOf" | "index" => {
            "use table.find(list, value), which is nil where there is none"
        }
        "join" => "use table.concat(list, \", \")",
        "sort" | "sorted" => "use table.sort(list, function(a, b) return a < b end)",
        "reverse" => "write for i = #list, 1, -1 do … end",
        "slice" | "splice" => "use table.move(list, from, to, 1, {}), which counts from 1",
        "concat" | "extend" => "use table.move(other, 1, #other, #list + 1, list)",
        "first" => "write list[1]",
        "last" | "at" => "write list[#list]",
        "hasOwnProperty" | "has" | "has_key" => "write t[key] ~= nil",
        "get" => "write t[key] or default",
        "toString" => "use json.encode(value)",
        "isEmpty" | "empty" => "write #list == 0, or next(t) == nil",
        _ => return None,
    })
}

/// Where texts and lists have ways of their own.
fn hint_for_either_field(name: &str) -> Option<&'static str> {
    Some(match name {
        "length" | "size" | "count" => "the length of a list or a text is #value",
        "includes" | "contains" | "indexOf" | "index" => {
            "use table.find(list, value) for a list, text:find(part, 1, true) for a text"
        }
        "slice" => {
            "use table.move(list, from, to, 1, {}) for a list, text:sub(from, to) for a text"
        }
        "at" => "write list[n], or text:sub(n, n); both count from 1",
        "concat" => {
            "texts are joined with .., lists with table.move(other, 1, #other, #list + 1, list)"
        }
        "toString" => "use tostring(value), or json.encode(value) for a table",
        "isEmpty" | "empty" => "write #value == 0",
        _ => return hint_for_list_field(name),
    })
}
