//! The MCP clients that Moonlark takes servers from and registers itself with:
//! where their configuration is and how it is written.
//!
//! `import` and `install` in `cli` use this. Nothing here prints, and only
//! `config_paths` and the readers of files touch the disk.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub(crate) mod client_variables;
pub mod config_paths;
pub mod config_syntax;
pub mod diff;
mod edit_check;
pub mod import_plan;
pub mod imported_server;
pub mod jsonc;
pub(crate) mod jsonc_edit;
pub mod other_project;
pub mod registration;
pub(crate) mod secret_detection;
pub mod server_entry;
pub(crate) mod server_table;
pub mod syntax_tree;
pub(crate) mod toml_text;
pub(crate) mod yaml_edit;
pub(crate) mod yaml_text;

use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ClientApp {
    ClaudeDesktop,
    Cursor,
    Vscode,
    Zed,
    ClaudeCode,
    Codex,
    #[value(alias = "gemini-cli")]
    Gemini,
    Opencode,
    #[value(alias = "qwen-code")]
    Qwen,
    Continue,
    Windsurf,
    Cline,
    Goose,
}

impl ClientApp {
    /// The name that people know it by.
    pub fn display_name(self) -> &'static str {
        match self {
            ClientApp::ClaudeDesktop => "Claude Desktop",
            ClientApp::Cursor => "Cursor",
            ClientApp::Vscode => "VS Code",
            ClientApp::Zed => "Zed",
            ClientApp::ClaudeCode => "Claude Code",
            ClientApp::Codex => "Codex",
            ClientApp::Gemini => "Gemini CLI",
            ClientApp::Opencode => "opencode",
            ClientApp::Qwen => "Qwen Code",
            ClientApp::Continue => "Continue",
            ClientApp::Windsurf => "Windsurf",
            ClientApp::Cline => "Cline",
            ClientApp::Goose => "goose",
        }
    }

    /// The word that the command line takes.
    pub fn cli_name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The words of all of them.
    pub fn all_cli_names() -> String {
        let words: Vec<String> =
            ClientApp::value_variants().iter().map(|it| it.cli_name()).collect();
        words.join(", ")
    }

    /// The key of its file that holds the servers.
    pub fn servers_key(self) -> &'static str {
        match self {
            ClientApp::Vscode => "servers",
            ClientApp::Zed => "context_servers",
            ClientApp::Codex => "mcp_servers",
            ClientApp::Opencode => "mcp",
            ClientApp::Goose => "extensions",
            _ => "mcpServers",
        }
    }

    /// Its servers are a list, each with its name, instead of an object by names.
    pub(crate) fn lists_servers(self) -> bool {
        self == ClientApp::Continue
    }

    /// What a new file of it has beside servers.
    pub(crate) fn new_file_text(self) -> &'static str {
        match self {
            // It would add this line itself at its next start.
            ClientApp::Opencode => "{\n  \"$schema\": \"https://opencode.ai/config.json\"\n}\n",
            // It takes no file without.
            ClientApp::Continue => "name: Local Config\nversion: 1.0.0\nschema: v1\n",
            _ => "",
        }
    }
}
