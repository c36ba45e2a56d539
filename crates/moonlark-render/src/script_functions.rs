//! The functions that agents' scripts find beside `sdk` and the modules.
//!
//! Said here once: the type checker, `get_function_docs`, `search_docs` and
//! completion take their names, types and words from this list. What they do is in
//! the prelude of the engine.

/// A global function of agents' scripts.
#[derive(Debug, Clone, Copy)]
pub struct ScriptFunction {
    pub name: &'static str,
    /// As documentation shows it.
    pub signature: &'static str,
    /// As the type checker is told it.
    pub declared: &'static str,
    pub doc: &'static str,
    pub example: &'static str,
    /// Words of a question that it is an answer to.
    pub words: &'static [&'static str],
}

pub const SCRIPT_FUNCTIONS: [ScriptFunction; 6] = [
    ScriptFunction {
        name: "map_parallel",
        signature: "map_parallel<T, R>(list: {T}, fn: (item: T, index: number) -> R, options: { limit: number? }?): ({R}, { [number]: Problem }?)",
        declared: "map_parallel<T, R>(list: {T}, f: (item: T, index: number) -> R, options: any?): ({R}, any)",
        doc: "Call fn for every item, in parallel. The results are in the order of the list. \
              If an item fails, that raises, and no more items are begun. \
              A script that takes the second result gets the errors there instead, by the number of \
              their item, nil if there are none; the place of an item that failed is nil in the results.",
        example: "local pages, errors = map_parallel(ids, function(id) return sdk.SOURCE.FUNCTION({ id = id }) end, { limit = 4 })",
        words: &["parallel", "concurrent", "concurrently", "batch", "simultaneously"],
    },
    ScriptFunction {
        name: "await_all",
        signature: "await_all(promises: { [any]: Promise }): ({ [any]: any }, { [any]: Problem }?)",
        declared: "await_all(promises: any): (any, any)",
        doc: "Wait for all promises of a table; the values have the same keys. If one fails, that \
              raises; a script that takes the second result gets the errors there instead, by key.",
        example: "local both = await_all({ first = SOURCE.FUNCTION({}), second = SOURCE.OTHER({}) })",
        words: &["await", "promise", "promises"],
    },
    ScriptFunction {
        name: "await_any",
        signature: "await_any(promises: { [any]: Promise }): (any, any)",
        declared: "await_any(promises: any): (any, any)",
        doc: "The value and the key of the first promise that succeeds. Raises if all fail.",
        example: "local value, key = await_any({ a = SOURCE.FUNCTION({}), b = SOURCE.OTHER({}) })",
        words: &["race", "fastest"],
    },
    ScriptFunction {
        name: "paginate",
        signature: "paginate(operation, args: { [string]: any }?): () -> any",
        declared: "paginate(operation: any, args: any?): () -> any",
        doc: "The pages of an API operation that lists, one after the other, for a loop.",
        example: "for page in paginate(sdk.API.OPERATION, {}) do print(#page) end",
        words: &["pages", "pagination", "paginate"],
    },
    ScriptFunction {
        name: "artifact",
        signature: "artifact(handle: string, options: { path: string?, from: number?, count: number? }?): any",
        declared: "artifact(handle: any, options: any?): any",
        doc: "A result that was too long to show, or a part of it: a field by path, items of a list \
              or bytes of a text by from and count.",
        example: "local rows = artifact(\"art_…\", { path = \"rows\", from = 1, count = 100 })",
        words: &["artifact", "handle"],
    },
    ScriptFunction {
        name: "result",
        signature: "result(value: any)",
        declared: "result(value: any): ()",
        doc: "Give the answer of the script, once, as return does. Do not name a variable result.",
        example: "result({ total = 3 })",
        words: &[],
    },
];

/// The helper of this name.
pub fn find_script_function(name: &str) -> Option<&'static ScriptFunction> {
    SCRIPT_FUNCTIONS.iter().find(|helper| helper.name == name)
}

/// The helpers that a question asks for by name or by a word.
pub fn script_functions_for(question: &str) -> impl Iterator<Item = &'static ScriptFunction> {
    let question = question.to_lowercase();
    let words: Vec<String> =
        question.split(|it: char| !it.is_alphanumeric() && it != '_').map(str::to_owned).collect();
    SCRIPT_FUNCTIONS.iter().filter(move |helper| {
        let asked = |word: &str| words.iter().any(|it| it == word);
        asked(helper.name) || helper.words.iter().any(|word| asked(word))
    })
}

impl ScriptFunction {
    /// As `get_function_docs` shows it.
    pub fn to_page(&self) -> String {
        format!("-- {}\nfunction {}\n\n-- for example:\n{}", self.doc, self.signature, self.example)
    }

    /// As `search_docs` shows it.
    pub fn to_line(&self) -> String {
        let first = self.doc.split_once(". ").map_or(self.doc, |(first, _)| first);
        let end = if first.ends_with('.') { "" } else { "." };
        format!(
            "{}\n  {first}{end} (a global of scripts: get_function_docs {})",
            self.signature, self.name
        )
    }
}
