//! Secrets: held, compared, never printed.
//!
//! A secret is found by its value, as it is and in the forms that it takes on its way:
//! see [`forms`]. Names that speak of one are judged here too.

mod forms;
mod learned;
mod literals;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use crate::content::Answer;
use crate::problem::Problem;
use crate::value::Value;
use forms::forms;
use learned::Learned;
pub use literals::{literals, without_literals};

/// The secret values of one script's configuration, or of a source's, to be taken
/// out of whatever leaves it.
#[derive(Clone, Default)]
pub struct Secrets(Option<Arc<Held>>);

struct Held {
    configured: Vec<Secret>,
    learned: Mutex<Learned>,
    /// All of both.
    known: ArcSwap<Known>,
}

struct Known {
    secrets: Vec<Secret>,
    /// Finds all of them, made when something is looked for.
    all: OnceLock<Finder>,
    /// Finds those that are secret by their name.
    by_name: OnceLock<Finder>,
}

#[derive(Clone)]
pub struct Secret {
    /// The configuration key, which replaces the value.
    pub key: String,
    pub value: String,
    /// Secret by its name, so never part of a result. Values that only came
    /// from the environment (a base URL, say) may be.
    pub by_name: bool,
}

/// Shorter values would turn up in ordinary text.
const SHORTEST: usize = 4;

impl Secrets {
    pub fn new(secrets: Vec<Secret>) -> Self {
        match secrets.iter().any(Secret::counts) {
            true => Self::learning(secrets),
            false => Self(None),
        }
    }

    /// The same, of which more are [learned](Self::learn) later.
    pub fn learning(mut configured: Vec<Secret>) -> Self {
        configured.retain(Secret::counts);
        let known = ArcSwap::from_pointee(Known::of(configured.clone()));
        Self(Some(Arc::new(Held { configured, learned: Mutex::default(), known })))
    }

    /// A token that was obtained just now, before it is shown to anybody. It takes the
    /// place of the last one of this key, which is forgotten after a while. Only for
    /// those that are made for [learning](Self::learning).
    pub fn learn(&self, key: &str, value: &str) {
        let Some(held) = &self.0 else { return };
        let mut learned = held.learned.lock();
        if learned.learn(key, value, Instant::now()) {
            let all = held.configured.iter().chain(learned.secrets()).cloned().collect();
            held.known.store(Arc::new(Known::of(all)));
        }
    }

    /// For logs and errors: every configured secret.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.known().as_ref().and_then(|known| known.all()) {
            Some(finder) => finder.redact(text),
            None => Cow::Borrowed(text),
        }
    }

    /// The same for a message that is no text.
    pub fn redact_message(&self, message: Value) -> Value {
        match self.known().as_ref().and_then(|known| known.all()) {
            Some(finder) => finder.redact_value(message),
            None => message,
        }
    }

    pub fn redact_problem(&self, problem: &mut Problem) {
        let known = self.known();
        let Some(finder) = known.as_ref().and_then(|known| known.all()) else { return };
        problem.map_text(|text| finder.redact(text).into_owned());
        if let Some(data) = &mut problem.data {
            **data = finder.redact_value(std::mem::take(&mut **data));
        }
        if let Some(content) = &mut problem.content {
            for block in content.blocks.iter_mut().chain(&mut content.structured) {
                *block = finder.redact_value(std::mem::take(block));
            }
        }
    }

    /// For results: only what is secret by its name.
    pub fn redact_result(&self, value: Value) -> Value {
        match self.known().as_ref().and_then(|known| known.by_name()) {
            Some(finder) => finder.redact_value(value),
            None => value,
        }
    }

    /// The same for a whole answer.
    pub fn redact_answer(&self, answer: Answer) -> Answer {
        let known = self.known();
        let Some(finder) = known.as_ref().and_then(|known| known.by_name()) else {
            return answer;
        };
        match answer {
            Answer::Value(value) => Answer::Value(finder.redact_value(value)),
            Answer::Raw(fields) => match finder.redact_value(Value::Object(fields)) {
                Value::Object(fields) => Answer::Raw(fields),
                other => Answer::Value(other),
            },
            Answer::Content(mut content) => {
                for value in content.blocks.iter_mut().chain(&mut content.structured) {
                    *value = finder.redact_value(std::mem::take(value));
                }
                Answer::Content(content)
            }
        }
    }

    fn known(&self) -> Option<Guard<Arc<Known>>> {
        self.0.as_ref().map(|held| held.known.load())
    }
}

impl Known {
    fn of(secrets: Vec<Secret>) -> Self {
        Self { secrets, all: OnceLock::new(), by_name: OnceLock::new() }
    }

    fn all(&self) -> Option<&Finder> {
        let made = || Finder::new(self.secrets.iter());
        (!self.secrets.is_empty()).then(|| self.all.get_or_init(made))
    }

    fn by_name(&self) -> Option<&Finder> {
        let mut secrets = self.secrets.iter().filter(|secret| secret.by_name).peekable();
        secrets.peek()?;
        Some(self.by_name.get_or_init(|| Finder::new(secrets)))
    }
}

impl Secret {
    fn counts(&self) -> bool {
        self.value.len() >= SHORTEST
    }
}

/// Finds secrets in a text, in one pass for all of them.
struct Finder {
    /// If it could not be made, nothing is found, and nothing let out either.
    automaton: Option<AhoCorasick>,
    /// What stands where a form was found.
    marks: Vec<String>,
}

impl Finder {
    fn new<'s>(secrets: impl Iterator<Item = &'s Secret>) -> Self {
        let mut patterns = Vec::new();
        let mut marks = Vec::new();
        for secret in secrets {
            for form in forms(&secret.value) {
                patterns.push(form);
                marks.push(format!("[redacted:{}]", secret.key));
            }
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&patterns)
            .ok();
        Self { automaton, marks }
    }

    fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(automaton) = &self.automaton else { return Cow::Owned("[redacted]".into()) };
        let mut out = String::new();
        // What was written so far ends here in `text`.
        let mut done = 0;
        let mut from = 0;
        while let Some(found) = automaton.find(Input::new(text).range(from..)) {
            // One that begins inside the last one is part of the same mark, so that no
            // tail of it is left.
            if found.start() >= done {
                out.push_str(&text[done..found.start()]);
                out.push_str(&self.marks[found.pattern()]);
            }
            done = done.max(found.end());
            from = found.start() + 1;
        }
        if done == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }

    fn redact_value(&self, value: Value) -> Value {
        let edit = |text: String| match self.redact(&text) {
            Cow::Owned(redacted) => redacted,
            Cow::Borrowed(_) => text,
        };
        match value {
            Value::Str(text) => Value::Str(edit(text)),
            Value::Array(items) => {
                Value::Array(items.into_iter().map(|item| self.redact_value(item)).collect())
            }
            Value::Object(object) => Value::Object(
                object
                    .into_iter()
                    .map(|(key, item)| (edit(key), self.redact_value(item)))
                    .collect(),
            ),
            other => other,
        }
    }
}

const SECRET_WORDS: [&str; 9] = [
    "token",
    "secret",
    "password",
    "passwd",
    "apikey",
    "privatekey",
    "credential",
    "webhook",
    "cookie",
];

/// Whether the name of a value speaks of a secret.
pub fn looks_secret(name: &str) -> bool {
    let plain = name.to_lowercase().replace(['_', '-'], "");
    SECRET_WORDS.iter().any(|word| plain.contains(word)) || speaks_of_auth(&plain)
}

/// `auth`, `oauth_url`, `authorization`, but not `author`: hiding every mention
/// of an author's name would spoil results and protect nothing.
fn speaks_of_auth(plain: &str) -> bool {
    plain.match_indices("auth").any(|(at, _)| {
        let after = &plain[at + 4..];
        !after.starts_with("or") || after.starts_with("oriz") || after.starts_with("oris")
    })
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} secrets]", self.known().map_or(0, |known| known.secrets.len()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[redacted:{}]", self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let secret = |key: &str, value: &str, by_name| Secret {
            key: key.into(),
            value: value.into(),
            by_name,
        };
        Secrets::new(vec![
            secret("api_token", "hunter22", true),
            secret("long_token", "hunter22-and-more", true),
            secret("url", "https://jira.example", false),
            secret("short", "ab", true),
        ])
    }

    #[test]
    fn logs_lose_every_secret_and_results_those_secret_by_name() {
        assert_eq!(
            secrets().redact("ab https://jira.example hunter22-and-more hunter22"),
            "ab [redacted:url] [redacted:long_token] [redacted:api_token]"
        );
        assert_eq!(
            secrets().redact_result(Value::object([(
                "hunter22",
                Value::from(vec!["https://jira.example/browse/1", "x hunter22"])
            )])),
            Value::object([(
                "[redacted:api_token]",
                Value::from(vec!["https://jira.example/browse/1", "x [redacted:api_token]"])
            )])
        );
        assert_eq!(format!("{:?}", secrets()), "[3 secrets]");
    }

    #[test]
    fn secrets_that_overlap_leave_no_tail() {
        let secret = |key: &str, value: &str| Secret {
            key: key.into(),
            value: value.into(),
            by_name: false,
        };
        let secrets = Secrets::new(vec![secret("a", "abcdef"), secret("b", "defghi")]);
        assert_eq!(
            secrets.redact("<abcdefghi> äabcdefä defghi"),
            "<[redacted:a]> ä[redacted:a]ä [redacted:b]"
        );
        assert_eq!(secrets.redact("abcde fghi"), "abcde fghi");
    }

    #[test]
    fn a_secret_is_found_in_the_forms_it_travels_in() {
        for text in ["Basic YWRtaW46aHVudGVyMjI=", "68756e7465723232"] {
            let redacted = secrets().redact(text).into_owned();
            assert!(redacted.contains("[redacted:api_token]"), "{redacted}");
        }
        assert_eq!(secrets().redact("?u=https%3A%2F%2Fjira.example"), "?u=[redacted:url]");
    }

    #[test]
    fn what_a_tool_answers_while_failing_is_redacted_like_an_error() {
        let mut problem = Problem::tool_error("see https://jira.example");
        problem.content = Some(Box::new(crate::content::Content {
            extra: Default::default(),
            blocks: vec![Value::object([("text", "see https://jira.example".into())])],
            structured: Some("hunter22".into()),
        }));
        secrets().redact_problem(&mut problem);
        let content = problem.content.unwrap();
        assert_eq!(problem.message, "see [redacted:url]");
        assert_eq!(content.blocks, [Value::object([("text", "see [redacted:url]".into())])]);
        assert_eq!(content.structured, Some("[redacted:api_token]".into()));
    }

    #[test]
    fn what_is_learned_is_taken_out_from_then_on_wherever_it_is_held() {
        let secrets = Secrets::learning(vec![]);
        let elsewhere = secrets.clone();
        let said = "Bearer first-token, then second-token";
        assert_eq!(elsewhere.redact(said), said);
        secrets.learn("access_token", "first-token");
        assert_eq!(elsewhere.redact(said), "Bearer [redacted:access_token], then second-token");
        secrets.learn("access_token", "second-token");
        let none = "Bearer [redacted:access_token], then [redacted:access_token]";
        assert_eq!(elsewhere.redact(said), none);
        assert_eq!(elsewhere.redact_result(said.into()), none.into());
        // It is kept beside what was configured.
        let secrets = self::secrets();
        secrets.learn("access_token", "first-token");
        assert_eq!(
            secrets.redact("hunter22 first-token"),
            "[redacted:api_token] [redacted:access_token]"
        );
    }

    #[test]
    fn names_that_speak_of_a_secret_look_secret() {
        for name in [
            "token",
            "API_TOKEN",
            "client-secret",
            "dbPassword",
            "passwd",
            "api_key",
            "apiKey",
            "X-Api-Key",
            "private_key",
            "credentials",
            "webhook_url",
            "auth",
            "oauth",
            "Authorization",
            "authorisation",
            "cookie",
            "ÄPI_TOKEN",
        ] {
            assert!(looks_secret(name), "{name}");
        }
        for name in ["", "url", "project", "key", "author", "authors", "co_author_name", "pass"] {
            assert!(!looks_secret(name), "{name}");
        }
    }
}
