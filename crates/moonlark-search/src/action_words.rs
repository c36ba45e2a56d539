//! Action words: what is done, in everyday words and in those of interfaces.
//!
//! People make, show, change and remove; interfaces create, get, update and delete.
//! Where a question begins with such a word, the others of its kind mean the same.

use std::sync::LazyLock;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::parsed_query::{ParsedQuery, QueryTermKind};
use crate::tokenizer;

/// What another word for the same action counts.
pub const SAME_ACTION_WEIGHT: f32 = 0.8;

/// Words of one line mean the same action. Some are on two lines: one shows a thing,
/// and shows all of them.
const ACTION_WORDS: [&[&str]; 5] = [
    &["create", "make", "add", "new", "insert", "register", "post", "put", "generate"],
    &["get", "show", "read", "retrieve", "fetch", "view", "see", "look", "find", "describe"],
    &["list", "show", "get", "display"],
    &["update", "change", "edit", "modify", "set", "patch", "rename", "replace", "fix", "alter"],
    &["delete", "remove", "destroy", "erase", "drop", "clear", "purge", "throw"],
];

/// Other words that requests begin with.
#[rustfmt::skip]
const REQUEST_VERBS: [&str; 96] = [
    "accept", "activate", "analyze", "apply", "approve", "archive", "ask", "assign", "attach",
    "ban", "bind", "block", "book", "build", "buy", "call", "cancel", "capture", "check", "close",
    "collect", "compare", "connect", "convert", "copy", "count", "deploy", "detach", "disable",
    "download", "draft", "draw", "email", "enable", "end", "execute", "export", "finalize", "finish",
    "follow", "give", "hand", "import", "install", "invite", "join", "keep", "kick", "leave", "let",
    "link", "lock", "mark", "merge", "monitor", "move", "notify", "open", "order", "pack", "pause",
    "pay", "pin", "plan", "play", "print", "publish", "reboot", "refund", "reject", "release",
    "remind", "report", "request", "reset", "resize", "restart", "restore", "resume", "revoke",
    "run", "save", "schedule", "search", "send", "share", "sign", "start", "stop", "submit",
    "summarize", "tell", "transfer", "turn", "upload", "write",
];

/// The other words for the action that a question begins with: the number of its
/// word, and terms that mean the same.
pub fn leading_action(question: &ParsedQuery) -> Option<(usize, &'static [String])> {
    let number = question.terms.iter().position(|it| it.kind == QueryTermKind::Word)?;
    Some((number, SAME_ACTION_TERMS.get(question.terms[number].term.as_str())?))
}

/// Whether a request may begin with this word, given as its stem.
pub(crate) fn is_request_verb(term: &str) -> bool {
    static ALL_REQUEST_VERBS: LazyLock<FxHashSet<String>> = LazyLock::new(|| {
        let actions = ACTION_WORDS.iter().copied().flatten().filter(|it| **it != "new");
        actions.chain(&REQUEST_VERBS).map(|word| stem(word)).collect()
    });
    ALL_REQUEST_VERBS.contains(term)
}

static SAME_ACTION_TERMS: LazyLock<FxHashMap<String, Vec<String>>> = LazyLock::new(|| {
    let mut same: FxHashMap<String, Vec<String>> = FxHashMap::default();
    for line in ACTION_WORDS {
        for word in line {
            let others = same.entry(stem(word)).or_default();
            for other in line.iter().filter(|other| *other != word).map(|other| stem(other)) {
                if !others.contains(&other) {
                    others.push(other);
                }
            }
        }
    }
    same
});

fn stem(word: &str) -> String {
    let mut word = word.to_owned();
    tokenizer::stem_word(&mut word);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(question: &str) -> Vec<&'static str> {
        let question = ParsedQuery::parse(question);
        leading_action(&question)
            .map_or(Vec::new(), |(_, same)| same.iter().map(String::as_str).collect())
    }

    #[test]
    fn the_first_word_of_a_question_has_other_words_for_its_action() {
        assert!(same("make an issue").contains(&"creat"));
        assert!(same("How do I get rid of a user?").contains(&"retriev"));
        let show = same("show the orders");
        assert!(show.contains(&"get") && show.contains(&"list"), "{show:?}");
        assert_eq!(same("issues to remove"), [] as [&str; 0]);
        assert_eq!(same(""), [] as [&str; 0]);
    }

    #[test]
    fn a_request_begins_with_a_verb() {
        assert!(is_request_verb(&stem("refund")) && is_request_verb(&stem("delete")));
        assert!(!is_request_verb(&stem("order1")) && !is_request_verb("new"));
    }
}
