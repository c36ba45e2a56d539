//! Secrets: held, compared, never printed.

use std::borrow::Cow;
use std::fmt;

use crate::content::Answer;
use crate::problem::Problem;
use crate::value::Value;

/// The secret values of one script's configuration, to be taken out of
/// whatever leaves it.
#[derive(Clone, Default)]
pub struct Secrets(Vec<Secret>);

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
    pub fn new(mut secrets: Vec<Secret>) -> Self {
        secrets.retain(|secret| secret.value.len() >= SHORTEST);
        // A secret that contains another goes first, so no tail of it is left.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.value.len()));
        Self(secrets)
    }

    /// For logs and errors: every configured secret.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        redact(self.0.iter(), text)
    }

    /// The same for a message that is no text.
    pub fn redact_message(&self, message: Value) -> Value {
        if self.0.is_empty() { message } else { self.redact_value(message, &|_| true) }
    }

    pub fn redact_problem(&self, problem: &mut Problem) {
        if !self.0.is_empty() {
            problem.map_text(|text| self.redact(text).into_owned());
        }
        if let Some(content) = &mut problem.content {
            for block in content.blocks.iter_mut().chain(&mut content.structured) {
                *block = self.redact_value(std::mem::take(block), &|_| true);
            }
        }
    }

    /// For results: only what is secret by its name.
    pub fn redact_result(&self, value: Value) -> Value {
        let by_name = |secret: &Secret| secret.by_name;
        if self.0.iter().any(by_name) { self.redact_value(value, &by_name) } else { value }
    }

    /// The same for a whole answer.
    pub fn redact_answer(&self, answer: Answer) -> Answer {
        if !self.0.iter().any(|secret| secret.by_name) {
            return answer;
        }
        match answer {
            Answer::Value(value) => Answer::Value(self.redact_result(value)),
            Answer::Raw(fields) => match self.redact_result(Value::Object(fields)) {
                Value::Object(fields) => Answer::Raw(fields),
                other => Answer::Value(other),
            },
            Answer::Content(mut content) => {
                for value in content.blocks.iter_mut().chain(&mut content.structured) {
                    *value = self.redact_result(std::mem::take(value));
                }
                Answer::Content(content)
            }
        }
    }

    fn redact_value(&self, value: Value, which: &dyn Fn(&Secret) -> bool) -> Value {
        let edit = |text: String| match redact(self.0.iter().filter(|it| which(it)), &text) {
            Cow::Owned(redacted) => redacted,
            Cow::Borrowed(_) => text,
        };
        match value {
            Value::Str(text) => Value::Str(edit(text)),
            Value::Array(items) => {
                Value::Array(items.into_iter().map(|item| self.redact_value(item, which)).collect())
            }
            Value::Object(object) => Value::Object(
                object
                    .into_iter()
                    .map(|(key, item)| (edit(key), self.redact_value(item, which)))
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

fn redact<'a, 's>(secrets: impl Iterator<Item = &'s Secret>, text: &'a str) -> Cow<'a, str> {
    let mut text = Cow::Borrowed(text);
    for secret in secrets {
        if text.contains(&secret.value) {
            text = text.replace(&secret.value, &format!("[redacted:{}]", secret.key)).into();
        }
    }
    text
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} secrets]", self.0.len())
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
