//! Operation filters: by name, tag, method or path.

use std::fmt;
use std::str::FromStr;

use moonlark_core::grant::matches_pattern as matches;

use crate::operation::ApiOperation;

/// One of `listPets`, `tag:pets`, `GET`, `GET /pets/*`, `/admin/*`; `*` stands
/// for anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRule {
    method: Option<String>,
    what: OperationRuleSubject,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum OperationRuleSubject {
    Any,
    Name(String),
    Tag(String),
    Path(String),
}

pub(crate) const HTTP_METHOD_NAMES: [&str; 9] =
    ["GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "QUERY"];

impl FromStr for OperationRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (first, rest) = text.split_once(' ').map_or((text, ""), |(a, b)| (a, b.trim()));
        let method = HTTP_METHOD_NAMES.iter().find(|it| it.eq_ignore_ascii_case(first));
        let (method, rest) = match method {
            Some(method) => (Some((*method).to_owned()), rest),
            None => (None, text),
        };
        let what = match rest {
            "" if method.is_some() => OperationRuleSubject::Any,
            "" => return Err("a rule must not be empty".to_owned()),
            path if path.starts_with('/') => OperationRuleSubject::Path(path.to_owned()),
            name => match name.strip_prefix("tag:") {
                Some(tag) => OperationRuleSubject::Tag(tag.trim().to_owned()),
                None => OperationRuleSubject::Name(name.to_owned()),
            },
        };
        Ok(OperationRule { method, what })
    }
}

impl fmt::Display for OperationRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = self.method.as_deref().unwrap_or_default();
        let what = match &self.what {
            OperationRuleSubject::Any => String::new(),
            OperationRuleSubject::Tag(tag) => format!("tag:{tag}"),
            OperationRuleSubject::Name(text) | OperationRuleSubject::Path(text) => text.clone(),
        };
        f.write_str(format!("{method} {what}").trim())
    }
}

impl OperationRule {
    pub(crate) fn matches_operation(&self, operation: &ApiOperation) -> bool {
        let method = self.method.as_deref().is_none_or(|it| it == operation.method.as_str());
        method
            && match &self.what {
                OperationRuleSubject::Any => true,
                OperationRuleSubject::Name(pattern) => matches(pattern, &operation.id),
                OperationRuleSubject::Tag(pattern) => {
                    operation.tags.iter().any(|tag| matches(pattern, tag))
                }
                OperationRuleSubject::Path(pattern) => matches(pattern, &operation.path),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_people_write_them() {
        let rule = |text: &str| text.parse::<OperationRule>().unwrap();
        assert_eq!(
            rule("get"),
            OperationRule { method: Some("GET".into()), what: OperationRuleSubject::Any }
        );
        assert_eq!(rule("tag:pets").what, OperationRuleSubject::Tag("pets".into()));
        assert_eq!(
            rule("POST /a/*"),
            OperationRule {
                method: Some("POST".into()),
                what: OperationRuleSubject::Path("/a/*".into())
            }
        );
        assert_eq!(rule("listPets").what, OperationRuleSubject::Name("listPets".into()));
        assert!("".parse::<OperationRule>().is_err());
        for text in ["GET", "tag:pets", "POST /a/*", "listPets", "/admin/*"] {
            assert_eq!(rule(text).to_string(), text);
        }
    }
}
