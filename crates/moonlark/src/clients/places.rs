//! Where each client keeps its configuration, on each system.

use std::path::{Path, PathBuf};

use moonlark_core::{Problem, Result};

use super::Client;
use crate::config_file::Env;

/// The folders that the paths begin in.
pub(crate) struct Places {
    system: System,
    home: PathBuf,
    /// Where applications keep their settings: `~/.config`, `%APPDATA%`, …
    settings: PathBuf,
    /// Claude Code keeps its file here instead of in the home folder.
    claude_code: Option<PathBuf>,
    project: PathBuf,
}

#[derive(Clone, Copy, PartialEq)]
enum System {
    Mac,
    Windows,
    /// Linux, and all that keep to the XDG specification as it does.
    Other,
}

impl Places {
    /// Of this user, with `project` as the project.
    pub(crate) fn find(project: &Path, env: Env<'_>) -> Result<Places> {
        let system = match std::env::consts::OS {
            "macos" => System::Mac,
            "windows" => System::Windows,
            _ => System::Other,
        };
        Places::on(system, project, env)
    }

    /// Relative values are ignored, as the XDG specification asks.
    fn on(system: System, project: &Path, env: Env<'_>) -> Result<Places> {
        let folder = |name: &str| env(name).map(PathBuf::from).filter(|path| path.has_root());
        let home =
            folder("HOME").or_else(|| folder("USERPROFILE").filter(|_| system == System::Windows));
        let home = home.ok_or_else(|| {
            Problem::unavailable("the home folder is not known").hint("set HOME to its path")
        })?;
        let settings = match system {
            System::Mac => home.join("Library/Application Support"),
            System::Windows => folder("APPDATA").unwrap_or_else(|| home.join("AppData/Roaming")),
            System::Other => folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
        };
        let claude_code = folder("CLAUDE_CONFIG_DIR");
        Ok(Places { system, home, settings, claude_code, project: project.to_owned() })
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The file that holds for all of the user's projects.
    pub(crate) fn user_file(&self, client: Client) -> PathBuf {
        match client {
            Client::ClaudeDesktop => self.settings.join("Claude/claude_desktop_config.json"),
            Client::Cursor => self.home.join(".cursor/mcp.json"),
            Client::Vscode => self.settings.join("Code/User/mcp.json"),
            Client::Zed => self.zed().join("settings.json"),
            Client::ClaudeCode => {
                self.claude_code.as_ref().unwrap_or(&self.home).join(".claude.json")
            }
        }
    }

    /// The file of one project, where the client has such.
    pub(crate) fn project_file(&self, client: Client) -> Option<PathBuf> {
        let file = match client {
            Client::ClaudeDesktop => return None,
            Client::Cursor => ".cursor/mcp.json",
            Client::Vscode => ".vscode/mcp.json",
            Client::Zed => ".zed/settings.json",
            Client::ClaudeCode => ".mcp.json",
        };
        Some(self.project.join(file))
    }

    /// Everywhere it may have servers, what holds for the project first.
    pub(crate) fn all_files(&self, client: Client) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.project_file(client).into_iter().collect();
        files.push(self.user_file(client));
        if client == Client::Vscode {
            // Where it kept them before it had a file for them.
            files.insert(1, self.project.join(".vscode/settings.json"));
            files.push(self.settings.join("Code/User/settings.json"));
        }
        files
    }

    fn zed(&self) -> PathBuf {
        match self.system {
            System::Mac => self.home.join(".config/zed"),
            System::Windows => self.settings.join("Zed"),
            System::Other => self.settings.join("zed"),
        }
    }
}

/// The project whose own file this is, going by where it lies.
pub(crate) fn project_of(file: &Path) -> Option<&Path> {
    let folder = file.parent()?;
    if file.file_name()? == ".mcp.json" {
        return Some(folder);
    }
    let is_settings = [".cursor", ".vscode", ".zed"].iter().any(|name| folder.ends_with(name));
    folder.parent().filter(|_| is_settings)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    fn check(system: System, env: &[(&str, &str)], expected: [&str; 5]) {
        let look_up = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let places = Places::on(system, Path::new("/p"), &look_up).unwrap();
        let files: Vec<PathBuf> =
            Client::value_variants().iter().map(|client| places.user_file(*client)).collect();
        assert_eq!(files, expected.map(PathBuf::from));
    }

    #[test]
    fn every_system_has_its_own_places() {
        check(
            System::Other,
            &[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "relative")],
            [
                "/home/a/.config/Claude/claude_desktop_config.json",
                "/home/a/.cursor/mcp.json",
                "/home/a/.config/Code/User/mcp.json",
                "/home/a/.config/zed/settings.json",
                "/home/a/.claude.json",
            ],
        );
        check(
            System::Other,
            &[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "/x"), ("CLAUDE_CONFIG_DIR", "/c")],
            [
                "/x/Claude/claude_desktop_config.json",
                "/home/a/.cursor/mcp.json",
                "/x/Code/User/mcp.json",
                "/x/zed/settings.json",
                "/c/.claude.json",
            ],
        );
        check(
            System::Mac,
            &[("HOME", "/Users/a"), ("XDG_CONFIG_HOME", "/x")],
            [
                "/Users/a/Library/Application Support/Claude/claude_desktop_config.json",
                "/Users/a/.cursor/mcp.json",
                "/Users/a/Library/Application Support/Code/User/mcp.json",
                "/Users/a/.config/zed/settings.json",
                "/Users/a/.claude.json",
            ],
        );
        check(
            System::Windows,
            &[("USERPROFILE", "/Users/a"), ("APPDATA", "/Users/a/AppData/Roaming")],
            [
                "/Users/a/AppData/Roaming/Claude/claude_desktop_config.json",
                "/Users/a/.cursor/mcp.json",
                "/Users/a/AppData/Roaming/Code/User/mcp.json",
                "/Users/a/AppData/Roaming/Zed/settings.json",
                "/Users/a/.claude.json",
            ],
        );
        assert!(Places::on(System::Other, Path::new("/p"), &|_| None).is_err());
    }

    #[test]
    fn a_file_of_a_project_says_which() {
        for (file, project) in [
            ("/p/.mcp.json", Some("/p")),
            ("/p/.cursor/mcp.json", Some("/p")),
            ("/p/.vscode/settings.json", Some("/p")),
            ("/p/.zed/settings.json", Some("/p")),
            ("/p/servers.json", None),
        ] {
            assert_eq!(project_of(Path::new(file)), project.map(Path::new), "{file}");
        }
    }
}
