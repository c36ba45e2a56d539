//! Which operations of an API are wanted: by name, tag, method or path.

use std::fmt;
use std::str::FromStr;

use moonlark_core::grant::matches_pattern as matches;

use super::operation::Operation;

/// One of `listPets`, `tag:pets`, `GET`, `GET /pets/*`, `/admin/*`; `*` stands
/// for anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    method: Option<String>,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Any,
    Name(String),
    Tag(String),
    Path(String),
}

pub(crate) const METHODS: [&str; 9] =
    ["GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "QUERY"];

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (first, rest) = text.split_once(' ').map_or((text, ""), |(a, b)| (a, b.trim()));
        let method = METHODS.iter().find(|it| it.eq_ignore_ascii_case(first));
        let (method, rest) = match method {
            Some(method) => (Some((*method).to_owned()), rest),
            None => (None, text),
        };
        let what = match rest {
            "" if method.is_some() => What::Any,
            "" => return Err("a rule must not be empty".to_owned()),
            path if path.starts_with('/') => What::Path(path.to_owned()),
            name => match name.strip_prefix("tag:") {
                Some(tag) => What::Tag(tag.trim().to_owned()),
                None => What::Name(name.to_owned()),
            },
        };
        Ok(Rule { method, what })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = self.method.as_deref().unwrap_or_default();
        let what = match &self.what {
            What::Any => String::new(),
            What::Tag(tag) => format!("tag:{tag}"),
            What::Name(text) | What::Path(text) => text.clone(),
        };
        f.write_str(format!("{method} {what}").trim())
    }
}

impl Rule {
    pub(crate) fn fits(&self, operation: &Operation) -> bool {
        let method = self.method.as_deref().is_none_or(|it| it == operation.method.as_str());
        method
            && match &self.what {
                What::Any => true,
                What::Name(pattern) => matches(pattern, &operation.id),
                What::Tag(pattern) => operation.tags.iter().any(|tag| matches(pattern, tag)),
                What::Path(pattern) => matches(pattern, &operation.path),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_people_write_them() {
        let rule = |text: &str| text.parse::<Rule>().unwrap();
        assert_eq!(rule("get"), Rule { method: Some("GET".into()), what: What::Any });
        assert_eq!(rule("tag:pets").what, What::Tag("pets".into()));
        assert_eq!(
            rule("POST /a/*"),
            Rule { method: Some("POST".into()), what: What::Path("/a/*".into()) }
        );
        assert_eq!(rule("listPets").what, What::Name("listPets".into()));
        assert!("".parse::<Rule>().is_err());
        for text in ["GET", "tag:pets", "POST /a/*", "listPets", "/admin/*"] {
            assert_eq!(rule(text).to_string(), text);
        }
    }
}
