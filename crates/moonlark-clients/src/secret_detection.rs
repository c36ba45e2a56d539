//! Secret detection in clients' files, and the variables that stand in for what is found.
//!
//! To take something for a secret that is none costs a variable; the reverse
//! puts a secret into a file that people commit. So this leans to one side.

use std::collections::BTreeMap;
use std::ops::Range;

use super::client_variables::to_variable_name;
use super::imported_server::ImportedServer;
use moonlark_state::EnvLookup;

/// What stands in the place of a secret: from where it is (the variable, header, option or
/// part of an address that holds it, such as `GITHUB_TOKEN`) and what it is.
pub(crate) type SecretReplacer<'a> = &'a mut dyn FnMut(&str, &str) -> String;

/// Replace every secret of a server.
pub(crate) fn replace_secrets(server: &mut ImportedServer, stand_in: SecretReplacer<'_>) {
    for (key, value) in &mut server.env {
        replace_parts(value, secret_parts(key, value), key, stand_in);
    }
    for (key, value) in &mut server.headers {
        replace_parts(value, secret_parts(key, value), key, stand_in);
    }
    if let Some(url) = &mut server.url {
        let parts = secret_parts("", url);
        replace_parts(url, parts, "url", stand_in);
    }
    let mut option = String::new();
    for arg in &mut server.args {
        let (key, parts) = secret_argument_parts(&option, arg);
        option = if arg.starts_with('-') { arg.clone() } else { String::new() };
        replace_parts(arg, parts, &key, stand_in);
    }
}

/// Whether `value` under `key` should not be shown.
pub(crate) fn is_secret(key: &str, value: &str) -> bool {
    !secret_parts(key, value).is_empty()
}

/// Whether an argument should not be shown; `before` is the one before it.
pub(crate) fn is_secret_argument(before: &str, arg: &str) -> bool {
    let option = if before.starts_with('-') { before } else { "" };
    !secret_argument_parts(option, arg).1.is_empty()
}

/// The variables that stand in for secrets: each for one value only.
pub(crate) struct SecretVariableNames<'a> {
    /// What each stands for; none when only its owner knows.
    taken: BTreeMap<String, Option<String>>,
    env: EnvLookup<'a>,
}

impl<'a> SecretVariableNames<'a> {
    /// `reserved` are in use for something else.
    pub(crate) fn new<'r>(
        reserved: impl Iterator<Item = &'r str>,
        env: EnvLookup<'a>,
    ) -> SecretVariableNames<'a> {
        SecretVariableNames { taken: reserved.map(|name| (name.to_owned(), None)).collect(), env }
    }

    /// Always with the server's name before it. The environment comes before the file of
    /// secrets: under a name that programs look for (`GITHUB_TOKEN`), a shell that has one of
    /// its own would silently replace the value.
    pub(crate) fn choose_name(&mut self, server: &str, key: &str, value: &str) -> String {
        let full = to_variable_name(&[server, key]);
        let more = (2..).map(|number| format!("{full}_{number}"));
        let mut names = std::iter::once(full.clone()).chain(more);
        let name = names.find(|name| self.is_free(name, value)).unwrap_or(full);
        self.taken.insert(name.clone(), Some(value.to_owned()));
        name
    }

    fn is_free(&self, name: &str, value: &str) -> bool {
        let untaken = match self.taken.get(name) {
            None => true,
            Some(other) => other.as_deref() == Some(value),
        };
        untaken && (self.env)(name).is_none_or(|set| set == value)
    }
}

fn replace_parts(
    text: &mut String,
    parts: Vec<Range<usize>>,
    key: &str,
    stand_in: SecretReplacer<'_>,
) {
    for part in parts.into_iter().rev() {
        // The value itself, not as our file would escape it.
        let new = stand_in(key, &text[part.clone()].replace("$${", "${"));
        text.replace_range(part, &new);
    }
}

/// The secret in an argument, and what to call it. `before` is the option it
/// follows, if any.
fn secret_argument_parts(before: &str, arg: &str) -> (String, Vec<Range<usize>>) {
    // `--token=x`, `TOKEN=x`, `Authorization: Bearer x`, `--header=X-Key:x`
    let mut start = 0;
    for _ in 0..3 {
        let rest = &arg[start..];
        let dashes = rest.len() - rest.trim_start_matches('-').len();
        let named = &rest[dashes..];
        let Some(at) = named.find(['=', ':']) else { break };
        let key = &named[..at];
        if !is_plain_name(key) || named[at..].starts_with("://") {
            break;
        }
        let value = named[at + 1..].trim_start();
        start = arg.len() - value.len();
        let parts = secret_parts(key, value);
        if !parts.is_empty() {
            let moved = parts.into_iter().map(|part| part.start + start..part.end + start);
            return (key.to_owned(), moved.collect());
        }
    }
    let key = before.trim_start_matches('-');
    if start > 0 || arg.starts_with('-') {
        return (key.to_owned(), Vec::new());
    }
    let name = if key.is_empty() { "arg" } else { key };
    (name.to_owned(), secret_parts(key, arg))
}

fn is_plain_name(text: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    !text.is_empty() && text.chars().all(letter)
}

/// The parts of `value` that are secret, in order.
fn secret_parts(key: &str, value: &str) -> Vec<Range<usize>> {
    // What has a variable in it already names its secret.
    if value.replace("$${", "").contains("${") || value.is_empty() {
        return Vec::new();
    }
    if value.contains("://") {
        return secret_url_parts(value);
    }
    for scheme in ["bearer ", "basic ", "token "] {
        if value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)) {
            let rest = scheme.len()..value.len();
            return vec![rest];
        }
    }
    let secret = (looks_secret(key) && !is_harmless(key, value)) || contains_token(value);
    let whole = 0..value.len();
    if secret { vec![whole] } else { Vec::new() }
}

/// `postgres://user:PASSWORD@host`, `https://host/path?api_key=SECRET`.
fn secret_url_parts(value: &str) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let after_scheme = value.find("://").map_or(0, |at| at + 3);
    let authority = value[after_scheme..].split(['/', '?', '#']).next().unwrap_or_default();
    if let Some(at) = authority.rfind('@')
        && let Some(colon) = authority[..at].find(':')
        && colon + 1 < at
    {
        parts.push(after_scheme + colon + 1..after_scheme + at);
    }
    // Some put a key into the path: https://host/v1/KEY/mcp
    let path = after_scheme + authority.len();
    let mut at = path;
    for piece in value[path..].split_inclusive(['/', '?', '#', '&', '=']) {
        let text = piece.trim_end_matches(['/', '?', '#', '&', '=']);
        let before = &value[path..at];
        let name = before.strip_suffix('=').and_then(|name| name.rsplit(['?', '&', '#']).next());
        let named = name.is_some_and(|name| looks_secret(name) && !is_harmless(name, text));
        if !text.is_empty() && (named || looks_random(text)) {
            parts.push(at..at + text.len());
        }
        at += piece.len();
    }
    parts
}

const SECRET_KEY_WORDS: [&str; 10] = [
    "token",
    "key",
    "secret",
    "password",
    "passwd",
    "authorization",
    "credential",
    "cookie",
    "pat",
    "auth",
];

fn looks_secret(key: &str) -> bool {
    let words: Vec<String> =
        key.split(|letter: char| !letter.is_ascii_alphanumeric()).map(str::to_lowercase).collect();
    let whole = words.concat();
    SECRET_KEY_WORDS.iter().any(|word| match *word {
        // Too short to look for inside of others: `path`, `author`, `monkey`.
        "pat" | "auth" => words.iter().any(|other| other == word),
        "key" => {
            words.iter().any(|other| other == "key" || other == "keys") || whole.ends_with("key")
        }
        word => whole.contains(word),
    })
}

/// `DISABLE_TOKENS=true`, `MAX_TOKENS=4096`, `KEY_FILE=/etc/key.pem`.
fn is_harmless(key: &str, value: &str) -> bool {
    let key = key.to_lowercase();
    let number = value.chars().all(|letter| letter.is_ascii_digit());
    matches!(value, "true" | "false")
        || (number && (key.contains("max") || key.ends_with("tokens")))
        || ["path", "file", "dir", "folder"].iter().any(|end| key.ends_with(end))
}

/// Prefixes with which well-known services begin their tokens.
const TOKEN_PREFIXES: [&str; 20] = [
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "xox",
    "AKIA",
    "AIza",
    "eyJ",
    "npm_",
    "pypi-",
    "hf_",
    "sbp_",
    "ntn_",
    "lin_api_",
];

/// A whole text with a token in it somewhere: `{"Authorization": "Bearer x"}`.
fn contains_token(value: &str) -> bool {
    // The digest of an image is long and random and no secret.
    if value.contains("sha256:") {
        return false;
    }
    let between = |letter: char| letter.is_whitespace() || "\"',:;{}[]()".contains(letter);
    value.to_lowercase().contains("bearer ") || value.split(between).any(looks_random)
}

/// Letters and digits mixed at length, as nobody names things.
fn looks_random(value: &str) -> bool {
    let token = |letter: char| letter.is_ascii_alphanumeric() || "_-+=.~".contains(letter);
    if value.len() < 16 || !value.chars().all(token) {
        return false;
    }
    if TOKEN_PREFIXES.iter().any(|prefix| value.starts_with(prefix)) {
        return true;
    }
    if value.len() >= 32 && value.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-')
    {
        return true;
    }
    value.split(['_', '-', '.', '~']).any(|part| {
        let digits = part.chars().filter(char::is_ascii_digit).count();
        part.len() >= 16 && digits >= 3 && part.len() - digits >= 3
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(server: &ImportedServer) -> ImportedServer {
        let mut server = server.clone();
        replace_secrets(&mut server, &mut |key, _| format!("<{key}>"));
        server
    }

    #[test]
    fn what_another_client_keeps_is_not_printed() {
        let pair = |name: &str| vec![(name.to_owned(), "hunter22".to_owned())];
        let server = ImportedServer {
            url: Some("https://example.com?key=hunter22".to_owned()),
            args: vec!["--token=hunter22".to_owned()],
            env: pair("API_TOKEN"),
            headers: pair("Authorization"),
            ..ImportedServer::default()
        };
        let printed = format!("{server:?}");
        assert!(printed.contains("API_TOKEN") && printed.contains("Authorization"), "{printed}");
        assert!(!printed.contains("hunter22"), "{printed}");
    }

    fn check(key: &str, value: &str, expected: &str) {
        let pair = |value: &str| vec![(key.to_owned(), value.to_owned())];
        let server = ImportedServer { env: pair(value), ..ImportedServer::default() };
        assert_eq!(hidden(&server).env, pair(expected));
    }

    #[test]
    fn values_are_secret_by_their_key_or_by_their_look() {
        for (key, value) in [
            ("GITHUB_TOKEN", "x"),
            ("api-key", "abc"),
            ("OPENAI_APIKEY", "abc"),
            ("DB_PASSWORD", "12345"),
            ("GITHUB_PAT", "abc"),
            ("Cookie", "a=b"),
            ("X", "ghp_0123456789abcdefghij"),
            ("X", "4f3c2b1a-0000-4000-8000-0123456789ab"),
            ("X", "q8Zr2Lw0Xn5Ty7Kd"),
        ] {
            check(key, value, &format!("<{key}>"));
        }
        for (key, value) in [
            ("HOME", "/home/somebody/with/a/long/path"),
            ("MAX_TOKENS", "4096"),
            ("USE_TOKEN", "true"),
            ("SSH_KEY_FILE", "/etc/ssh/key"),
            ("AUTHOR", "ann"),
            ("MONKEYPATCH", "on"),
            ("NAME", "a-long-name-of-a-service-2024"),
            ("URL", "https://example.com/a/path"),
            ("TOKEN", "${TOKEN}"),
            ("TOKEN", ""),
        ] {
            check(key, value, value);
        }
    }

    #[test]
    fn of_a_value_only_the_secret_part_goes() {
        check("Authorization", "Bearer abc", "Bearer <Authorization>");
        check(
            "DATABASE",
            "postgres://ann:pw@host:5432/db",
            "postgres://ann:<DATABASE>@host:5432/db",
        );
        check("URL", "https://h/mcp?api_key=abc&x=1", "https://h/mcp?api_key=<URL>&x=1");
        check("URL", "https://h/s/q8Zr2Lw0Xn5Ty7Kd/mcp", "https://h/s/<URL>/mcp");
    }

    #[test]
    fn arguments_are_looked_at_with_the_option_before_them() {
        let args = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let server = ImportedServer {
            args: args(&[
                "-y",
                "@scope/package@1.2.3",
                "--api-key",
                "abc",
                "--token=def",
                "-e",
                "MY_SECRET=ghi",
                "--header",
                "Authorization: Bearer jkl",
                "--port",
                "8080",
                "--dsn",
                "postgres://a:b@c/d",
                "--key-file",
                "/x",
            ]),
            ..ImportedServer::default()
        };
        let expected: Vec<String> = args(&[
            "-y",
            "@scope/package@1.2.3",
            "--api-key",
            "<api-key>",
            "--token=<token>",
            "-e",
            "MY_SECRET=<MY_SECRET>",
            "--header",
            "Authorization: Bearer <Authorization>",
            "--port",
            "8080",
            "--dsn",
            "postgres://a:<dsn>@c/d",
            "--key-file",
            "/x",
        ]);
        assert_eq!(hidden(&server).args, expected);
    }

    #[test]
    fn a_variable_never_stands_for_two_values() {
        let env = |name: &str| (name == "NOTION_API_TOKEN").then(|| "other".to_owned());
        let reserved = ["X_SENTRY_AUTH_TOKEN"].into_iter();
        let mut names = SecretVariableNames::new(reserved, &env);
        let mut choose =
            |server: &str, key: &str, value: &str| names.choose_name(server, key, value);
        assert_eq!(choose("brave", "API_KEY", "c"), "BRAVE_API_KEY");
        assert_eq!(choose("brave", "API_KEY", "c"), "BRAVE_API_KEY");
        assert_eq!(choose("brave", "API_KEY", "d"), "BRAVE_API_KEY_2");
        assert_eq!(choose("web", "Authorization", "e"), "WEB_AUTHORIZATION");
        // In use for something else, or set to something else.
        assert_eq!(choose("x", "SENTRY_AUTH_TOKEN", "f"), "X_SENTRY_AUTH_TOKEN_2");
        assert_eq!(choose("notion", "API_TOKEN", "g"), "NOTION_API_TOKEN_2");
    }

    #[test]
    fn no_variable_has_a_name_that_a_shell_may_set_for_other_programs() {
        let mut names = SecretVariableNames::new([].into_iter(), &|_| None);
        for (server, key, expected) in [
            ("github", "GITHUB_TOKEN", "GITHUB_GITHUB_TOKEN"),
            ("gh", "GITHUB_TOKEN", "GH_GITHUB_TOKEN"),
            ("openai", "OPENAI_API_KEY", "OPENAI_OPENAI_API_KEY"),
        ] {
            assert_eq!(names.choose_name(server, key, "x"), expected);
        }
    }
}
