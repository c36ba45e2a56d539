//! Keys of a script table that are the script's own, and which of them are secret.
//!
//! Nothing here prints a value: a script's configuration never appears in a
//! listing, an error or a log. What makes a value secret is decided in
//! `config_file::secret`.

use std::fmt;

use moonlark_core::Problem;
use moonlark_core::secret::SecretValue;
use serde::Deserialize;
use serde_json::{Map, Value};

/// What one script sees as `context.config`.
#[derive(Clone, PartialEq, Default, Deserialize)]
#[serde(transparent)]
pub struct ScriptConfig {
    pub values: Map<String, Value>,
    /// Filled when a file is loaded; one value may give several.
    #[serde(skip)]
    pub secrets: Vec<ConfigSecret>,
    /// Variables and files that it needs and that are not there.
    #[serde(skip)]
    pub outage: Vec<Problem>,
}

/// A text that must not appear wherever something of this script is echoed.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigSecret {
    /// The key it comes from, within the script's table: `jira.headers[0]`.
    pub key: String,
    /// The name of the key or of the variable says that it is secret. When
    /// false, all that is known is that it came from the environment.
    pub by_name: bool,
    value: String,
}

impl ConfigSecret {
    pub fn new(key: impl Into<String>, value: impl Into<String>, by_name: bool) -> Self {
        Self { key: key.into(), by_name, value: value.into() }
    }

    /// The same for what takes secrets out of answers.
    pub fn to_secret_value(&self) -> SecretValue {
        SecretValue { key: self.key.clone(), value: self.value.clone(), by_name: self.by_name }
    }

    /// The secret itself. Never empty when it comes from a loaded file.
    pub fn expose_secret(&self) -> &str {
        &self.value
    }
}

impl fmt::Debug for ConfigSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("key", &self.key)
            .field("by_name", &self.by_name)
            .field("value", &format_args!("[redacted]"))
            .finish()
    }
}

impl fmt::Debug for ScriptConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let redacted = self.values.keys().map(|key| (key, format_args!("[redacted]")));
        f.debug_map().entries(redacted).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_prints_keys_and_no_value() {
        let mut config: ScriptConfig =
            serde_json::from_str(r#"{"url": "https://x", "deep": {"pin": "1234"}}"#).unwrap();
        config.secrets.push(ConfigSecret::new("deep.pin", "1234", true));
        assert_eq!(format!("{config:?}"), r#"{"url": [redacted], "deep": [redacted]}"#);
        assert_eq!(
            format!("{:?}", config.secrets),
            r#"[Secret { key: "deep.pin", by_name: true, value: [redacted] }]"#
        );
    }
}
