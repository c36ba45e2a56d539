//! Hints for lines that the parser rejects.

use super::code_text::{first_word, has_word, is_word_letter, strip_quoted_text};

/// Lines before the one that the parser names: what begins a block in another way may be
/// noticed only there.
const MAX_LINES_BACK: u32 = 6;

const CATCH_ERROR_HINT: &str =
    "errors are caught by pcall: local ok, value = pcall(function() return … end)";
const CONDITIONAL_HINT: &str = "write if a then b else c, without ? and :";
const LOOP_HINT: &str = "loops are written for _, item in list do … end, or for i = 1, 10 do … end";
const DEFINE_FUNCTION_HINT: &str = "functions are written local function name(a, b) … end";
const LAMBDA_HINT: &str = "functions are written function(x) return … end";
const ELSEIF_HINT: &str = "the word is elseif: if a then … elseif b then … end";

/// How to write a line that the parser does not take. `message` is what it says, `at` the
/// line that it names, from one.
pub(crate) fn hint_for_syntax<'a>(
    message: &str,
    at: u32,
    line: impl Fn(u32) -> &'a str,
) -> Option<&'static str> {
    if message.starts_with("Expected <eof>")
        && at > 1
        && first_word(line(at - 1).trim_start()) == "return"
    {
        return Some("return ends a block: nothing may follow it there");
    }
    let closed = unclosed_block_line(message).and_then(|at| hint_for_block(line(at)));
    let back = || {
        let before = (1..=MAX_LINES_BACK).map_while(|back| at.checked_sub(back));
        before.filter(|at| *at > 0).find_map(|at| hint_for_block(line(at)))
    };
    closed.or_else(|| hint_for_line(message, line(at))).or_else(back)
}

/// The line of `Expected 'end' (to close 'else' at line 4)`.
fn unclosed_block_line(message: &str) -> Option<u32> {
    let (_, rest) = message.split_once("(to close ")?;
    let (_, rest) = rest.split_once(" at line ")?;
    rest.split(')').next()?.parse().ok()
}

/// How a block is written that the line begins in another language's way.
fn hint_for_block(line: &str) -> Option<&'static str> {
    let code = strip_quoted_text(line);
    let trimmed = code.trim().trim_start_matches("} ");
    if trimmed.starts_with("else if ") || trimmed.starts_with("else if(") {
        return Some(ELSEIF_HINT);
    }
    if !opens_foreign_block(&code) {
        return None;
    }
    Some(match first_word(trimmed) {
        "for" => LOOP_HINT,
        "if" | "while" => "blocks are words: if a then … end, while a do … end",
        "else" | "function" => "blocks end with the word end, without { } or :",
        "elif" | "elsif" => ELSEIF_HINT,
        "try" | "except" | "catch" | "finally" => CATCH_ERROR_HINT,
        "def" | "fn" | "func" => DEFINE_FUNCTION_HINT,
        "switch" | "case" | "match" => "use if a then … elseif b then … else … end",
        "with" => "there is no with: call the functions one after the other",
        "class" => "there are no classes: use tables and functions",
        "do" => "loops that end with a condition are written repeat … until a",
        _ => return None,
    })
}

fn hint_for_line(message: &str, line: &str) -> Option<&'static str> {
    let code = strip_quoted_text(line);
    let trimmed = code.trim_start();
    let got = |what: &str| message.contains(&format!("got '{what}'"));
    let has = |part: &str| code.contains(part);
    if let Some(hint) = hint_for_first_word(trimmed) {
        return Some(hint);
    }
    if let Some(hint) = hint_for_block(line).filter(|_| !has("=>")) {
        return Some(hint);
    }
    let hint = match () {
        () if is_foreign_comment(trimmed) => "comments begin with --",
        () if has("=>") => LAMBDA_HINT,
        () if has_word(&code, "lambda") => LAMBDA_HINT,
        () if has_word(&code, "await") => {
            "there is no await: sdk.source.fn({ … }) waits by itself; a promise has promise:await()"
        }
        () if has_comprehension(&code) => {
            "lists are built in a loop: for _, x in list do table.insert(out, x) end"
        }
        () if has("!==") || has("!=") => "not equal is written ~=",
        () if is_typeof_word(&code) => "type is a function: type(value) == \"string\"",
        () if has("===") => "equal is written ==",
        () if has("&&") => "and is a word: a and b",
        () if has("||") || has("??") => "or is a word: a or b",
        () if has("?.") => "there is no ?. here: write a and a.b",
        () if has("++") => "there is no ++: write n += 1",
        () if is_decrement(&code) => "there is no --, which begins a comment: write n -= 1",
        () if has("**") => "a power is written a ^ b",
        () if is_negation(&code) => "not is a word: not value",
        () if has_word(&code, "new") => "there is no new: call a function, or write a table { … }",
        () if got("in") => {
            "there is no in: write table.find(list, value) ~= nil, t[key] ~= nil or text:find(part, 1, true) ~= nil"
        }
        () if got("is") || has(" is not ") => "write value == nil, or value ~= nil",
        () if got("if") && has_word(&code, "else") => CONDITIONAL_HINT,
        () if is_ternary(&code) => CONDITIONAL_HINT,
        () if has_slice(&code) => {
            "there are no slices: table.move(list, 1, 3, 1, {}) copies items, text:sub(1, 3) cuts a text"
        }
        () if trimmed.starts_with("local {") || trimmed.starts_with("local [") => {
            "take the fields one by one: local a, b = t.a, t.b"
        }
        () if has("{...")
            || has("{ ...")
            || has(", ...") && message.contains("table constructor") =>
        {
            "tables are not spread: local copy = table.clone(t), then copy.name = value"
        }
        () if is_keyword_argument(message, &code) => {
            "arguments are one table of names and values: fn({ name = value })"
        }
        () if is_field_with_colon(message, &code) => {
            "fields are written { name = value }, or { [\"any name\"] = value }"
        }
        () if is_list_in_brackets(message, &code) => "lists are written { 1, 2, 3 }",
        () if has_method_of_literal(message, &code) => {
            "a text in quotes needs parentheses: (\"text\"):upper()"
        }
        () if has_doubled_quote(line) => "a quote inside of a text is written \\' or \\\"",
        () if has_trailing_comment(&code, "#") => "comments begin with --",
        () if has_trailing_comment(&code, "//") => {
            "comments begin with --; a // b divides without a rest"
        }
        () if message.contains("got '}'") && trimmed.starts_with('}') => {
            "blocks end with the word end"
        }
        () => return None,
    };
    Some(hint)
}

fn hint_for_first_word(trimmed: &str) -> Option<&'static str> {
    let rest = trimmed.strip_prefix(first_word(trimmed)).unwrap_or_default().trim_start();
    // A variable or function of the script may have that name.
    let is_name = rest.starts_with(['=', '.', ':', '[', ',']) && !rest.starts_with(":\n");
    Some(match first_word(trimmed) {
        "let" | "var" | "val" | "my" if !is_name => {
            "variables are declared with local: local name = value"
        }
        "def" | "fn" | "func" => DEFINE_FUNCTION_HINT,
        "import" | "from" | "using" | "use" | "include" if !is_name => {
            "nothing is imported here: modules such as json are globals, and tools are under sdk"
        }
        "elif" | "elsif" => ELSEIF_HINT,
        "try" | "except" | "catch" | "finally" => CATCH_ERROR_HINT,
        "throw" | "raise" => "errors are raised by error(\"message\")",
        "switch" | "case" | "match" if !is_name => "use if a then … elseif b then … else … end",
        "async" => "functions are not marked async: calls under sdk wait by themselves",
        "class" if !is_name => "there are no classes: use tables and functions",
        "pass" if rest.is_empty() => "an empty block needs no word: leave pass out",
        "with" if !is_name => "there is no with: call the functions one after the other",
        "del" | "delete" if !is_name => "write t.name = nil, or table.remove(list, n)",
        "print" if !trimmed.contains('(') => "print is a function: print(value)",
        "for" if rest.starts_with('(') || trimmed.contains(" of ") => LOOP_HINT,
        _ => return None,
    })
}

fn is_foreign_comment(trimmed: &str) -> bool {
    ["//", "/*", "# ", "##", "#!"].iter().any(|start| trimmed.starts_with(start))
}

/// `x = 1 # the first`, `x = 1 // the first`
fn has_trailing_comment(code: &str, mark: &str) -> bool {
    let Some((before, after)) = code.split_once(mark) else { return false };
    let after = after.trim_start();
    let word = first_word(after);
    let rest = after[word.len()..].trim_start();
    let is_prose = !word.is_empty() && (rest.is_empty() || rest.starts_with(is_word_letter));
    // A length stands where a value is wanted, a comment after one.
    let after_value =
        before.trim_end().ends_with(|it: char| is_word_letter(it) || "\"')}]".contains(it));
    after_value && is_prose && before.ends_with(' ')
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

/// `n--`
fn is_decrement(code: &str) -> bool {
    let code = code.trim_end().trim_end_matches(';');
    code.strip_suffix("--").is_some_and(|it| it.ends_with(is_word_letter))
}

/// `typeof x === "string"`
fn is_typeof_word(code: &str) -> bool {
    code.split_once("typeof ").is_some_and(|(_, rest)| rest.starts_with(is_word_letter))
}

/// The line ends as blocks begin elsewhere.
fn opens_foreign_block(code: &str) -> bool {
    code.trim_end().ends_with(['{', ':', '}'])
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

/// `list[1:3]`, `text[:5]`
fn has_slice(code: &str) -> bool {
    let is_bound = |text: &str| text.chars().all(|it| is_word_letter(it) || " -#.".contains(it));
    code.match_indices('[').any(|(at, _)| {
        let inside = code[at + 1..].split(']').next().unwrap_or_default();
        let named = code[..at].ends_with(|it: char| is_word_letter(it) || it == ']' || it == ')');
        named && inside.split_once(':').is_some_and(|(from, to)| is_bound(from) && is_bound(to))
    })
}

/// `[x for x in list]`
fn has_comprehension(code: &str) -> bool {
    let inside = code.split_once(['[', '(', '{']).map(|(_, rest)| rest).unwrap_or_default();
    inside.contains(" for ") && inside.contains(" in ")
}

/// `a ? b : c`
fn is_ternary(code: &str) -> bool {
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

/// `'it''s'`
fn has_doubled_quote(line: &str) -> bool {
    line.match_indices("''").any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(is_word_letter);
        before && line[at + 2..].starts_with(is_word_letter)
    })
}

/// `"abc".upper()`, `"abc":upper()`
fn has_method_of_literal(message: &str, code: &str) -> bool {
    let after_text = ["\".", "'.", "\":", "':"].iter().any(|part| code.contains(part));
    after_text && (message.contains("got '.'") || message.contains("got ':'"))
}
