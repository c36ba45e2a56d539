//! `[network]`: network rules for all scripts.

use moonlark_core::grant::{NetworkPolicy, NetworkTarget};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Network rules for all scripts, beside their own grants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkConfig {
    /// Whether tool scripts, extensions and connectors reach public hosts without a
    /// grant. Agents' scripts always need one.
    pub public: bool,
    /// Deny list, overrides every grant: names, patterns, addresses and ranges, each with
    /// a port or for all. An address is blocked for every name that resolves to it.
    #[schemars(example = ["*.ads.example", "10.0.0.0/8", "db.example.com:5432"])]
    pub deny: Vec<String>,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self { public: true, deny: Vec::new() }
    }
}

impl NetworkConfig {
    /// The same for those who check. That it can be read was checked with the file.
    pub fn to_network_rules(&self) -> NetworkPolicy {
        let deny = self.deny.iter().filter_map(|text| text.parse().ok()).collect();
        NetworkPolicy { public: self.public, deny }
    }

    /// What no schema says. The key, and what is wrong.
    pub fn find_faults(&self) -> Vec<(&'static str, String)> {
        let fault = |text: &String| {
            let why = text.parse::<NetworkTarget>().err()?;
            Some(("deny", format!("{text:?} is not a host, address or range: {why}")))
        };
        self.deny.iter().filter_map(fault).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_denied_is_read_or_says_what_is_wrong() {
        let deny = |text: &str| NetworkConfig { deny: vec![text.to_owned()], public: true };
        assert_eq!(deny("10.0.0.0/8:22").find_faults(), []);
        assert_eq!(deny("*.ads.example").to_network_rules().deny.len(), 1);
        assert_eq!(
            deny("10.0.0.0/99").find_faults(),
            [(
                "deny",
                "\"10.0.0.0/99\" is not a host, address or range: the number after / is too large"
                    .to_owned()
            )]
        );
    }
}
