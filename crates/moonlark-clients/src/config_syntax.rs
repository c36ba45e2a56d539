//! The text of a client's file in the syntax it is written in: read, changed in one
//! place, put back.
//!
//! The three syntaxes are in `jsonc`, `toml_text` and `yaml_text`, with `jsonc_edit` and
//! `yaml_edit` for what changes them; `edit_check` looks at what a change did.

use std::path::Path;

use serde_json::Value as Json;

use super::edit_check::replace_range;
use super::syntax_tree::{SyntaxNode, TextFault};
use super::{jsonc, jsonc_edit, toml_text, yaml_edit, yaml_text};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigSyntax {
    /// With comments and trailing commas, which most clients take.
    Json,
    Toml,
    Yaml,
}

impl ConfigSyntax {
    /// By the ending of the file's name.
    pub fn from_path(path: &Path) -> ConfigSyntax {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("toml") => ConfigSyntax::Toml,
            Some("yaml" | "yml") => ConfigSyntax::Yaml,
            _ => ConfigSyntax::Json,
        }
    }

    /// What is in `text`; none when there is nothing but space and comments.
    pub fn parse(self, text: &str) -> Result<Option<SyntaxNode>, TextFault> {
        match self {
            ConfigSyntax::Json => jsonc::parse(text),
            ConfigSyntax::Toml => toml_text::parse(text),
            ConfigSyntax::Yaml => yaml_text::parse(text),
        }
    }

    /// `text` with `value` at `path`; the same text when it is there already.
    pub fn put_value(self, text: &str, path: &[&str], value: &Json) -> Result<String, TextFault> {
        match self {
            ConfigSyntax::Json => jsonc_edit::put_value(text, path, value),
            ConfigSyntax::Toml => toml_text::put_value(text, path, value),
            ConfigSyntax::Yaml => yaml_edit::put_value(text, path, value),
        }
    }

    /// `text` without what is at `path`; the same text when there is nothing.
    pub(crate) fn remove_value(self, text: &str, path: &[&str]) -> Result<String, TextFault> {
        match self {
            ConfigSyntax::Json => jsonc_edit::remove_value(text, path),
            ConfigSyntax::Toml => toml_text::remove_value(text, path),
            ConfigSyntax::Yaml => yaml_edit::remove_value(text, path),
        }
    }

    /// `text` with what `copy` has at `path`, where both have something there.
    pub(crate) fn restore_value(
        self,
        text: &str,
        path: &[&str],
        copy: &str,
    ) -> Result<String, TextFault> {
        match self {
            ConfigSyntax::Toml => return toml_text::restore_value(text, path, copy),
            ConfigSyntax::Yaml => return yaml_edit::restore_value(text, path, copy),
            ConfigSyntax::Json => {}
        }
        let (now, before) = (jsonc::parse(text)?, jsonc::parse(copy)?);
        let now = now.as_ref().and_then(|root| root.find_path(path));
        let before = before.as_ref().and_then(|root| root.find_path(path));
        let (Some(now), Some(before)) = (now, before) else { return Ok(text.to_owned()) };
        Ok(replace_range(text, now.span.clone(), &copy[before.span.clone()]))
    }
}
