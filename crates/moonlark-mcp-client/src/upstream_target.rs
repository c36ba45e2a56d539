//! The target of an upstream: where it is, how to connect, and what one connection may
//! use. It knows nothing of configuration files, nor of what is said there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use moonlark_core::secret::SecretText;
use url::Url;

#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamTarget {
    /// What the operator calls it; every message does too.
    pub name: String,
    pub transport: McpTransportConfig,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_can_be_printed_without_its_secrets() {
        let headers = BTreeMap::from([("x-key".to_owned(), SecretText::new("hunter22"))]);
        let url = Url::parse("https://mcp.example/").unwrap();
        let transport = McpTransportConfig::Http { url, headers };
        let target = UpstreamTarget {
            name: "git".into(),
            transport,
            limits: McpConnectionLimits::default(),
        };
        let shown = format!("{target:?}");
        assert!(shown.contains("x-key") && !shown.contains("hunter22"), "{shown}");
        assert_eq!(target, target.clone());
    }
}
