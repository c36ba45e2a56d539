//! A single secret: a token or a password that is handed on and never printed.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};

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

impl Eq for SecretText {}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
