//! Where an upstream server is, how to get to it, and what one connection may
//! use. It knows nothing of configuration files, nor of what is said there.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use url::Url;

#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamTarget {
    /// What the operator calls it; every message does too.
    pub name: String,
    pub way: McpTransportConfig,
    pub limits: McpConnectionLimits,
}

#[derive(Debug, Clone, PartialEq)]
pub enum McpTransportConfig {
    /// A process of our own, spoken to by its standard input and output.
    Stdio { command: String, args: Vec<String>, env: BTreeMap<String, SecretText>, cwd: PathBuf },
    /// Streamable HTTP.
    Http { url: Url, headers: BTreeMap<String, SecretText> },
    /// HTTP+SSE, as it was before Streamable HTTP.
    Sse { url: Url, headers: BTreeMap<String, SecretText> },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct McpConnectionLimits {
    /// Bytes of one message.
    pub message: usize,
    /// From starting or reaching the server until it has introduced itself.
    pub connect: Duration,
}

impl Default for McpConnectionLimits {
    fn default() -> Self {
        Self { message: 32 << 20, connect: Duration::from_secs(60) }
    }
}

/// Text that is never printed.
#[derive(Clone)]
pub struct SecretText(SecretString);

impl SecretText {
    pub fn new(text: impl Into<String>) -> Self {
        Self(SecretString::from(text.into()))
    }

    /// For handing it over, not for showing it.
    pub fn expose_secret(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

/// To see whether a configuration changed; nobody outside can time it.
impl PartialEq for SecretText {
    fn eq(&self, other: &Self) -> bool {
        self.expose_secret() == other.expose_secret()
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_can_be_printed_without_its_secrets() {
        let headers = BTreeMap::from([("x-key".to_owned(), SecretText::new("hunter22"))]);
        let url = Url::parse("https://mcp.example/").unwrap();
        let way = McpTransportConfig::Http { url, headers };
        let target =
            UpstreamTarget { name: "git".into(), way, limits: McpConnectionLimits::default() };
        let shown = format!("{target:?}");
        assert!(shown.contains("x-key") && !shown.contains("hunter22"), "{shown}");
        assert_eq!(target, target.clone());
    }
}
