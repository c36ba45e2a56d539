//! What scripts look like that were written with another language in mind, and
//! how the same is written here.
//!
//! Models know more JavaScript, Python and Lua 5.4 than Luau. A parser's message
//! about such a line names a character; the hint names the way to write it.

/// How to write a line that the parser does not take. `message` is what it says.
pub(crate) fn hint_for_syntax(message: &str, line: &str) -> Option<&'static str> {
    let code = without_text(line);
    let trimmed = code.trim_start();
    let first_word = word_at_start(trimmed);
    let has = |part: &str| code.contains(part);
    let hint = match first_word {
        "let" | "var" => "variables are declared with local: local name = value",
        "def" | "fn" | "func" => "functions are written local function name(a, b) … end",
        "import" | "from" | "using" => {
            "nothing is imported here: modules such as json are globals, and tools are under sdk"
        }
        "elif" => "the word is elseif: if a then … elseif b then … end",
        "try" | "except" | "catch" | "finally" => {
            "errors are caught by pcall: local ok, value = pcall(function() return … end)"
        }
        "throw" | "raise" => "errors are raised by error(\"message\")",
        "switch" | "case" | "match" => "use if a then … elseif b then … else … end",
        "async" => "functions are not marked async: calls under sdk wait by themselves",
        "class" => "there are no classes: use tables and functions",
        "print" if !trimmed.contains('(') => "print is a function: print(value)",
        _ if trimmed.starts_with("//") || trimmed.starts_with("/*") || is_hash_comment(trimmed) => {
            "comments begin with --"
        }
        _ if has("=>") => "functions are written function(x) return … end",
        _ if has_word(&code, "lambda") => "functions are written function(x) return … end",
        _ if has_word(&code, "await") => {
            "there is no await: sdk.source.fn({ … }) waits by itself; a promise has promise:await()"
        }
        _ if has("!==") || has("!=") => "not equal is written ~=",
        _ if has("===") => "equal is written ==",
        _ if has("&&") => "and is a word: a and b",
        _ if has("||") || has("??") => "or is a word: a or b",
        _ if has("?.") => "there is no ?. here: write a and a.b",
        _ if has("++") || has("--;") => "there is no ++: write n += 1",
        _ if is_negation(&code) => "not is a word: not value",
        _ if has_word(&code, "new") => "there is no new: call a function, or write a table { … }",
        "for" if has(" of ") || (has("(") && has(";")) || ends_block(&code) => {
            "loops are written for _, item in list do … end, or for i = 1, 10 do … end"
        }
        "if" | "while" if ends_block(&code) => {
            "blocks are words: if a then … end, while a do … end"
        }
        "else" | "function" if ends_block(&code) => {
            "blocks end with the word end, without { } or :"
        }
        _ if is_keyword_argument(message, &code) => {
            "arguments are one table of names and values: fn({ name = value })"
        }
        _ if is_field_with_colon(message, &code) => {
            "fields are written { name = value }, or { [\"any name\"] = value }"
        }
        _ if is_choice(&code) => "write if a then b else c, without ? and :",
        _ if is_list_in_brackets(message, &code) => "lists are written { 1, 2, 3 }",
        _ if message.contains("got '}'") && trimmed == "}" => "blocks end with the word end",
        _ => return None,
    };
    Some(hint)
}

/// How a block is written that the line begins in another language's way.
pub(crate) fn hint_for_block(line: &str) -> Option<&'static str> {
    let code = without_text(line);
    let begins =
        matches!(word_at_start(code.trim_start()), "if" | "while" | "for" | "else" | "function");
    if begins && ends_block(&code) { hint_for_syntax("", line) } else { None }
}

/// What a name that is nobody's is called here.
pub(crate) fn hint_for_global(name: &str, line: &str) -> Option<&'static str> {
    let prefixed_text = |quote: &str| line.contains(&format!("{name}{quote}"));
    let hint = match name {
        "null" | "None" | "undefined" | "NULL" => "write nil, or json.null for a null in JSON",
        "True" | "TRUE" => "write true",
        "False" | "FALSE" => "write false",
        "f" | "r" | "b" if prefixed_text("\"") || prefixed_text("'") => {
            "text with values in it is written in backticks: `n: {value}`"
        }
        "console" => "use print(…)",
        "JSON" => "use json.decode(text) and json.encode(value)",
        "Math" => "the module is math, in small letters",
        "Promise" => "use await_all({ … }), await_any({ … }) or map_parallel(list, fn)",
        "Object" | "Array" => {
            "tables are walked with for key, value in t do … end; #list is a length"
        }
        "len" => "the length of a list or a text is #value",
        "str" | "String" | "repr" => "use tostring(value)",
        "int" | "float" | "Number" | "parseInt" | "parseFloat" => "use tonumber(text)",
        "isinstance" => "use type(value) == \"table\"",
        "range" => "write for i = 1, n do … end",
        "enumerate" => "write for index, value in list do … end",
        "sorted" => "use table.sort(list)",
        "dict" | "list" | "set" => "write a table: { … }",
        "exit" | "quit" | "sys" | "process" => "a script ends by return: return value",
        "setTimeout" => "use sleep(seconds)",
        "fetch" | "requests" | "axios" | "curl" => {
            "call a tool that does it: search_docs finds it by what it does"
        }
        "await" => {
            "there is no await: sdk.source.fn({ … }) waits by itself; a promise has promise:await()"
        }
        "try" => "errors are caught by pcall: local ok, value = pcall(function() return … end)",
        "self" | "this" => "there is no object here",
        "const" | "let" | "var" => "variables are declared with local: local name = value",
        _ => return None,
    };
    Some(hint)
}

/// What to do about an error at run time, by its words and its line.
pub(crate) fn hint_for_failure(
    message: &str,
    line: &str,
    for_agents: bool,
) -> Option<&'static str> {
    let code = without_text(line);
    let method = message
        .strip_prefix("attempt to call missing method '")
        .and_then(|rest| rest.split_once('\''))
        .map(|(name, _)| name);
    let hint = match method {
        Some(
            "filter" | "map" | "forEach" | "reduce" | "find" | "some" | "every" | "slice"
            | "includes" | "flatMap",
        ) => "lists have no methods: use a loop, for _, item in list do … end",
        Some("push" | "append" | "add" | "insert") => "use table.insert(list, value)",
        Some("join") => "use table.concat(list, \", \")",
        Some("sort") => "use table.sort(list, function(a, b) return a < b end)",
        Some("keys" | "values" | "items" | "entries") => "use for key, value in t do … end",
        Some("trim" | "strip") => "use string.match(text, \"^%s*(.-)%s*$\")",
        Some("toLowerCase" | "toUpperCase") => "use text:lower() and text:upper()",
        Some("replace") => "use text:gsub(pattern, replacement)",
        Some("startsWith" | "startswith") => "use text:sub(1, #start) == start",
        Some("toString") => "use tostring(value)",
        _ if message.starts_with("attempt to index nil") && has_index_zero(&code) => {
            "lists count from 1: the first item is list[1]"
        }
        _ if message.starts_with("attempt to concatenate") && message.contains("nil") => {
            "one of the values is nil: print(value) shows what there is, tostring(value) makes text of it"
        }
        _ if message.starts_with("attempt to concatenate") && message.contains("table") => {
            "a table is no text: use one of its fields, or json.encode(value)"
        }
        _ if message.starts_with("attempt to perform arithmetic")
            && message.contains("string")
            && code.contains('+') =>
        {
            "texts are joined with .., or written `a {b}` in backticks"
        }
        _ if message.starts_with("attempt to index nil") && for_agents => {
            "what is before the name is nil: print(value) of the table it came from shows what it has"
        }
        _ if message.contains("(table expected, got nil)") => {
            "the value is nil: print of the table it came from shows what it has"
        }
        _ if message.contains("(table expected, got string)") => {
            "the value is a text: if it is JSON, json.decode(text) gives the table"
        }
        _ => return None,
    };
    Some(hint)
}

/// The line without what is in quotes, which may look like anything.
fn without_text(line: &str) -> String {
    let mut code = String::new();
    let mut quote: Option<char> = None;
    let mut escaped = false;
    for letter in line.chars().take(1000) {
        match quote {
            None => {
                if matches!(letter, '"' | '\'' | '`') {
                    quote = Some(letter);
                }
                code.push(letter);
            }
            Some(_) if escaped => escaped = false,
            Some(_) if letter == '\\' => escaped = true,
            Some(open) if letter == open => {
                quote = None;
                code.push(letter);
            }
            Some(_) => {}
        }
    }
    code
}

fn is_word_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn word_at_start(code: &str) -> &str {
    let end = code.find(|it| !is_word_letter(it)).unwrap_or(code.len());
    &code[..end]
}

fn has_word(code: &str, word: &str) -> bool {
    code.split(|it| !is_word_letter(it)).any(|it| it == word) && !code.contains(&format!(":{word}"))
}

fn is_hash_comment(trimmed: &str) -> bool {
    trimmed.starts_with("# ") || trimmed.starts_with("##")
}

/// `!done`
fn is_negation(code: &str) -> bool {
    let mut letters = code.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '!' && letters.peek().is_some_and(|it| is_word_letter(*it) || *it == '(') {
            return true;
        }
    }
    false
}

/// The line ends as blocks begin elsewhere.
fn ends_block(code: &str) -> bool {
    let code = code.trim_end();
    code.ends_with('{') || code.ends_with(':') || code.ends_with(") {") || code.ends_with("}")
}

/// `f(a = 1)`
fn is_keyword_argument(message: &str, code: &str) -> bool {
    message.contains("Expected ')'") && message.contains("got '='") && code.contains('(')
}

/// `{ a: 1 }`, `{ "a": 1 }`
fn is_field_with_colon(message: &str, code: &str) -> bool {
    let in_message = ["method name", "got ':'", "type annotation", "Expected '('"];
    let colon = code.match_indices(':').any(|(at, _)| {
        let before = code[..at].trim_end();
        let named = before.ends_with(|it: char| is_word_letter(it) || it == '"' || it == '\'');
        named && !code[at + 1..].starts_with(':')
    });
    colon && in_message.iter().any(|part| message.contains(part))
}

/// `a ? b : c`
fn is_choice(code: &str) -> bool {
    code.contains(" ? ") && code.contains(" : ")
}

/// `local a = [1, 2]`
fn is_list_in_brackets(message: &str, code: &str) -> bool {
    let opens = code.match_indices('[').any(|(at, _)| {
        let before = code[..at].trim_end();
        before.ends_with(['=', '(', ',', '{']) || before.ends_with("return") || before.is_empty()
    });
    opens && (message.contains("got '['") || message.contains("Expected"))
}

/// `list[0]`
fn has_index_zero(code: &str) -> bool {
    code.contains("[0]")
}

#[cfg(test)]
mod tests {
    use crate::unit::Unit;

    /// What a script is told that does not compile.
    fn told(script: &str) -> String {
        match Unit::of_text("script", script.to_owned()) {
            Ok(_) => "compiles".to_owned(),
            Err(problem) => problem.hint.unwrap_or_else(|| format!("no hint: {}", problem.message)),
        }
    }

    #[test]
    fn lines_of_other_languages_are_told_how_they_are_written_here() {
        for (script, expected) in [
            ("return sdk.a.b({ severity: \"critical\" })", "fields are written"),
            ("return { \"severity\": 1 }", "fields are written"),
            ("return { a: x }", "fields are written"),
            ("local x = {\n  path: p,\n}", "fields are written"),
            ("return incidents(severity=\"x\")", "arguments are one table"),
            ("return sdk.a.b(path=\"x\", n=1)", "arguments are one table"),
            ("var x = 1", "variables are declared with local"),
            ("let x = 1", "variables are declared with local"),
            ("return await sdk.a.b({})", "there is no await"),
            ("if a != b then return 1 end", "not equal is written ~="),
            ("if a !== b then return 1 end", "not equal is written ~="),
            ("if a === b then return 1 end", "equal is written =="),
            ("if a && b then return 1 end", "and is a word"),
            ("if a || b then return 1 end", "or is a word"),
            ("if !a then return 1 end", "not is a word"),
            ("x++", "there is no ++"),
            ("// first\nreturn 1", "comments begin with --"),
            ("# first\nreturn 1", "comments begin with --"),
            ("/* first */\nreturn 1", "comments begin with --"),
            ("local f = x => x + 1", "functions are written function(x)"),
            ("local f = (x) => { return x }", "functions are written function(x)"),
            ("local f = lambda x: x", "functions are written function(x)"),
            ("def f(x):\n  return x", "functions are written local function"),
            ("import json", "nothing is imported here"),
            ("from a import b", "nothing is imported here"),
            ("if (a) {\n return 1\n}", "blocks are words"),
            ("if a:\n  return 1", "blocks are words"),
            ("for (let i = 0; i < 3; i++) {\n}", "there is no ++"),
            ("for x in list:\n  print(x)", "loops are written"),
            ("for (const x of list) {\n}", "loops are written"),
            ("elif x then", "the word is elseif"),
            ("throw x", "errors are raised by error"),
            ("local a = b ? c : d", "write if a then b else c"),
            ("local a = x?.y", "there is no ?. here"),
            ("local a = x ?? y", "or is a word"),
            ("local a = [1, 2, 3]", "lists are written"),
            ("return [1, 2]", "lists are written"),
            ("return new Error()", "there is no new"),
            ("```lua\nreturn 1\n```", "compiles"),
        ] {
            let told = told(script);
            assert!(told.starts_with(expected), "{script}\n  {told}");
        }
    }

    #[test]
    fn what_is_in_quotes_is_not_looked_at() {
        for script in ["return \"a != b", "local x = 'const' 'y'", "return \"x => y\" z"] {
            let told = told(script);
            assert!(told.starts_with("no hint"), "{script}\n  {told}");
        }
    }
}
