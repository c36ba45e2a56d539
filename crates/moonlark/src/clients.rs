//! The MCP clients that Moonlark takes servers from and registers itself with:
//! where their configuration is and how it is written.
//!
//! `import` and `install` in `cli` use this. Nothing here prints, and only `file`
//! touches the disk.

pub(crate) mod config_text;
pub(crate) mod diff;
mod edit_check;
pub(crate) mod entry;
pub(crate) mod file;
pub(crate) mod jsonc;
pub(crate) mod jsonc_edit;
pub(crate) mod other_project;
pub(crate) mod places;
pub(crate) mod plan;
pub(crate) mod registration;
pub(crate) mod secret;
pub(crate) mod server;
pub(crate) mod syntax_tree;
pub(crate) mod table;
pub(crate) mod toml_text;
pub(crate) mod variables;
pub(crate) mod yaml_edit;
pub(crate) mod yaml_text;

use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Client {
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

impl Client {
    /// The name that people know it by.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Client::ClaudeDesktop => "Claude Desktop",
            Client::Cursor => "Cursor",
            Client::Vscode => "VS Code",
            Client::Zed => "Zed",
            Client::ClaudeCode => "Claude Code",
            Client::Codex => "Codex",
            Client::Gemini => "Gemini CLI",
            Client::Opencode => "opencode",
            Client::Qwen => "Qwen Code",
            Client::Continue => "Continue",
            Client::Windsurf => "Windsurf",
            Client::Cline => "Cline",
            Client::Goose => "goose",
        }
    }

    /// The word that the command line takes.
    pub(crate) fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The words of all of them.
    pub(crate) fn words() -> String {
        let words: Vec<String> = Client::value_variants().iter().map(|it| it.word()).collect();
        words.join(", ")
    }

    /// The key of its file that holds the servers.
    pub(crate) fn servers_key(self) -> &'static str {
        match self {
            Client::Vscode => "servers",
            Client::Zed => "context_servers",
            Client::Codex => "mcp_servers",
            Client::Opencode => "mcp",
            Client::Goose => "extensions",
            _ => "mcpServers",
        }
    }

    /// Its servers are a list, each with its name, instead of an object by names.
    pub(crate) fn lists_servers(self) -> bool {
        self == Client::Continue
    }

    /// What a new file of it has beside servers.
    pub(crate) fn new_file(self) -> &'static str {
        match self {
            // It would add this line itself at its next start.
            Client::Opencode => "{\n  \"$schema\": \"https://opencode.ai/config.json\"\n}\n",
            // It takes no file without.
            Client::Continue => "name: Local Config\nversion: 1.0.0\nschema: v1\n",
            _ => "",
        }
    }
}
