//! Secrets: held, compared, never printed.
//!
//! A secret is found by its value, as it is and in the forms that it takes on its way:
//! see [`encoded_forms`]. Names that speak of one are judged here too.

mod encoded_forms;
mod learned_secrets;
mod script_literals;
mod secret_text;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use aho_corasick::{AhoCorasick, AhoCorasickKind, Input, MatchKind};
use parking_lot::{Mutex, RwLock};

use crate::content::ToolAnswer;
use crate::problem::Problem;
use crate::value::Value;
use encoded_forms::encoded_forms;
use learned_secrets::LearnedSecrets;
pub use script_literals::{redact_literals, secrets_from_literals, secrets_with_literals};
pub use secret_text::SecretText;

/// The secret values of one script's configuration, or of a source's, to be taken
/// out of whatever leaves it.
#[derive(Clone, Default)]
pub struct Secrets(Option<Arc<SecretsInner>>);

struct SecretsInner {
    configured: Vec<SecretValue>,
    learned: Mutex<LearnedSecrets>,
    /// All of both.
    known: RwLock<Arc<KnownSecrets>>,
}

struct KnownSecrets {
    secrets: Vec<SecretValue>,
    /// Finds all of them, made when something is looked for.
    all: OnceLock<SecretFinder>,
    /// Finds those that are secret by their name.
    by_name: OnceLock<SecretFinder>,
}

#[derive(Clone)]
pub struct SecretValue {
    /// The configuration key, which replaces the value.
    pub key: String,
    pub value: String,
    /// Secret by its name, so never part of a result. Values that only came
    /// from the environment (a base URL, say) may be.
    pub by_name: bool,
}

/// Shorter values would turn up in ordinary text.
const MIN_SECRET_BYTES: usize = 4;

impl Secrets {
    pub fn new(secrets: Vec<SecretValue>) -> Self {
        if secrets.iter().any(SecretValue::is_long_enough) {
            Self::with_learning(secrets)
        } else {
            Self(None)
        }
    }

    /// The same, of which more are [learned](Self::learn_token) later.
    pub fn with_learning(mut configured: Vec<SecretValue>) -> Self {
        configured.retain(SecretValue::is_long_enough);
        let known = RwLock::new(Arc::new(KnownSecrets::from_secrets(configured.clone())));
        Self(Some(Arc::new(SecretsInner { configured, learned: Mutex::default(), known })))
    }

    /// A token that was obtained just now, before it is shown to anybody. It takes the
    /// place of the last one of this key, which is forgotten after a while. Only for
    /// those that are made for [learning](Self::with_learning).
    pub fn learn_token(&self, key: &str, value: &str) {
        let Some(held) = &self.0 else { return };
        let mut learned = held.learned.lock();
        if learned.learn_secret(key, value, Instant::now()) {
            let all = held.configured.iter().chain(learned.secrets()).cloned().collect();
            *held.known.write() = Arc::new(KnownSecrets::from_secrets(all));
        }
    }

    /// For logs and errors: every configured secret.
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.load_known().as_ref().and_then(|known| known.finder_of_all()) {
            Some(finder) => finder.redact_text(text),
            None => Cow::Borrowed(text),
        }
    }

    /// The same for a message that is no text.
    pub fn redact_message(&self, message: Value) -> Value {
        match self.load_known().as_ref().and_then(|known| known.finder_of_all()) {
            Some(finder) => finder.redact_value(message),
            None => message,
        }
    }

    pub fn redact_problem(&self, problem: &mut Problem) {
        let known = self.load_known();
        let Some(finder) = known.as_ref().and_then(|known| known.finder_of_all()) else { return };
        problem.map_text(|text| finder.redact_text(text).into_owned());
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
        match self.load_known().as_ref().and_then(|known| known.finder_by_name()) {
            Some(finder) => finder.redact_value(value),
            None => value,
        }
    }

    /// The same for a whole answer.
    pub fn redact_answer(&self, answer: ToolAnswer) -> ToolAnswer {
        let known = self.load_known();
        let Some(finder) = known.as_ref().and_then(|known| known.finder_by_name()) else {
            return answer;
        };
        match answer {
            ToolAnswer::Value(value) => ToolAnswer::Value(finder.redact_value(value)),
            ToolAnswer::Raw(fields) => match finder.redact_value(Value::Object(fields)) {
                Value::Object(fields) => ToolAnswer::Raw(fields),
                other => ToolAnswer::Value(other),
            },
            ToolAnswer::Content(mut content) => {
                for value in content.blocks.iter_mut().chain(&mut content.structured) {
                    *value = finder.redact_value(std::mem::take(value));
                }
                ToolAnswer::Content(content)
            }
        }
    }

    fn load_known(&self) -> Option<Arc<KnownSecrets>> {
        self.0.as_ref().map(|held| held.known.read().clone())
    }
}

impl KnownSecrets {
    fn from_secrets(secrets: Vec<SecretValue>) -> Self {
        Self { secrets, all: OnceLock::new(), by_name: OnceLock::new() }
    }

    fn finder_of_all(&self) -> Option<&SecretFinder> {
        let made = || SecretFinder::new(self.secrets.iter());
        (!self.secrets.is_empty()).then(|| self.all.get_or_init(made))
    }

    fn finder_by_name(&self) -> Option<&SecretFinder> {
        let mut secrets = self.secrets.iter().filter(|secret| secret.by_name).peekable();
        secrets.peek()?;
        Some(self.by_name.get_or_init(|| SecretFinder::new(secrets)))
    }
}

impl SecretValue {
    fn is_long_enough(&self) -> bool {
        self.value.len() >= MIN_SECRET_BYTES
    }
}

/// Finds secrets in a text, in one pass for all of them.
struct SecretFinder {
    /// If it could not be made, nothing is found, and nothing let out either.
    automaton: Option<AhoCorasick>,
    /// What stands where a form was found.
    marks: Vec<String>,
}

impl SecretFinder {
    fn new<'s>(secrets: impl Iterator<Item = &'s SecretValue>) -> Self {
        let mut patterns = Vec::new();
        let mut marks = Vec::new();
        for secret in secrets {
            for form in encoded_forms(&secret.value) {
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

    fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
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
        let edit = |text: String| match self.redact_text(&text) {
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
pub fn is_secret_name(name: &str) -> bool {
    let plain = name.to_lowercase().replace(['_', '-'], "");
    SECRET_WORDS.iter().any(|word| plain.contains(word)) || mentions_auth(&plain)
}

/// `auth`, `oauth_url`, `authorization`, but not `author`: hiding every mention
/// of an author's name would spoil results and protect nothing.
fn mentions_auth(plain: &str) -> bool {
    plain.match_indices("auth").any(|(at, _)| {
        let after = &plain[at + 4..];
        !after.starts_with("or") || after.starts_with("oriz") || after.starts_with("oris")
    })
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} secrets]", self.load_known().map_or(0, |known| known.secrets.len()))
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[redacted:{}]", self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let secret = |key: &str, value: &str, by_name| SecretValue {
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
            secrets().redact_text("ab https://jira.example hunter22-and-more hunter22"),
            "ab [redacted:url] [redacted:long_token] [redacted:api_token]"
        );
        assert_eq!(
            secrets().redact_result(Value::from_fields([(
                "hunter22",
                Value::from(vec!["https://jira.example/browse/1", "x hunter22"])
            )])),
            Value::from_fields([(
                "[redacted:api_token]",
                Value::from(vec!["https://jira.example/browse/1", "x [redacted:api_token]"])
            )])
        );
        assert_eq!(format!("{:?}", secrets()), "[3 secrets]");
    }

    #[test]
    fn secrets_that_overlap_leave_no_tail() {
        let secret = |key: &str, value: &str| SecretValue {
            key: key.into(),
            value: value.into(),
            by_name: false,
        };
        let secrets = Secrets::new(vec![secret("a", "abcdef"), secret("b", "defghi")]);
        assert_eq!(
            secrets.redact_text("<abcdefghi> äabcdefä defghi"),
            "<[redacted:a]> ä[redacted:a]ä [redacted:b]"
        );
        assert_eq!(secrets.redact_text("abcde fghi"), "abcde fghi");
    }

    #[test]
    fn a_secret_is_found_in_the_forms_it_travels_in() {
        for text in ["Basic YWRtaW46aHVudGVyMjI=", "68756e7465723232"] {
            let redacted = secrets().redact_text(text).into_owned();
            assert!(redacted.contains("[redacted:api_token]"), "{redacted}");
        }
        assert_eq!(secrets().redact_text("?u=https%3A%2F%2Fjira.example"), "?u=[redacted:url]");
    }

    #[test]
    fn what_a_tool_answers_while_failing_is_redacted_like_an_error() {
        let mut problem = Problem::tool_error("see https://jira.example");
        problem.content = Some(Box::new(crate::content::Content {
            extra: Default::default(),
            blocks: vec![Value::from_fields([("text", "see https://jira.example".into())])],
            structured: Some("hunter22".into()),
        }));
        secrets().redact_problem(&mut problem);
        let content = problem.content.unwrap();
        assert_eq!(problem.message, "see [redacted:url]");
        assert_eq!(content.blocks, [Value::from_fields([("text", "see [redacted:url]".into())])]);
        assert_eq!(content.structured, Some("[redacted:api_token]".into()));
    }

    #[test]
    fn what_is_learned_is_taken_out_from_then_on_wherever_it_is_held() {
        let secrets = Secrets::with_learning(vec![]);
        let elsewhere = secrets.clone();
        let said = "Bearer first-token, then second-token";
        assert_eq!(elsewhere.redact_text(said), said);
        secrets.learn_token("access_token", "first-token");
        assert_eq!(
            elsewhere.redact_text(said),
            "Bearer [redacted:access_token], then second-token"
        );
        secrets.learn_token("access_token", "second-token");
        let none = "Bearer [redacted:access_token], then [redacted:access_token]";
        assert_eq!(elsewhere.redact_text(said), none);
        assert_eq!(elsewhere.redact_result(said.into()), none.into());
        // It is kept beside what was configured.
        let secrets = self::secrets();
        secrets.learn_token("access_token", "first-token");
        assert_eq!(
            secrets.redact_text("hunter22 first-token"),
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
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["", "url", "project", "key", "author", "authors", "co_author_name", "pass"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
