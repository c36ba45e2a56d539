//! Where each client keeps its configuration, on each system.
//!
//! Some have two names for the same file, or moved it: the first that is there counts,
//! and the first of all is made where none is.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use clap::ValueEnum;
use moonlark_core::{Problem, Result};
use moonlark_state::EnvLookup;

use super::ClientApp;

/// Variables by which clients are told to keep their files elsewhere.
const RELOCATION_VARIABLES: [&str; 9] = [
    "CLAUDE_CONFIG_DIR",
    "CLINE_DATA_DIR",
    "CLINE_DIR",
    "CLINE_MCP_SETTINGS_PATH",
    "CODEX_HOME",
    "CONTINUE_GLOBAL_DIR",
    "GEMINI_CLI_HOME",
    "GOOSE_PATH_ROOT",
    "QWEN_HOME",
];

const CLINE_SETTINGS_FILE: &str = "cline_mcp_settings.json";

/// The folders that the paths begin in.
pub struct ClientConfigPaths {
    system: OperatingSystem,
    home: PathBuf,
    /// Where applications keep their settings: `~/.config` on Linux
    settings: PathBuf,
    /// Where those keep them that do as on Linux, wherever they are.
    xdg: PathBuf,
    /// What the variables of `RELOCATION_VARIABLES` say.
    moved: BTreeMap<&'static str, PathBuf>,
    project: PathBuf,
}

#[derive(Clone, Copy, PartialEq)]
enum OperatingSystem {
    Mac,
    /// Linux, and all that keep to the XDG specification as it does.
    Other,
}

impl ClientConfigPaths {
    /// Of this user, with `project` as the project.
    pub fn for_user(project: &Path, env: EnvLookup<'_>) -> Result<ClientConfigPaths> {
        let system = match std::env::consts::OS {
            "macos" => OperatingSystem::Mac,
            _ => OperatingSystem::Other,
        };
        ClientConfigPaths::for_system(system, project, env)
    }

    /// Relative values are ignored, as the XDG specification asks.
    fn for_system(
        system: OperatingSystem,
        project: &Path,
        env: EnvLookup<'_>,
    ) -> Result<ClientConfigPaths> {
        let folder = |name: &str| env(name).map(PathBuf::from).filter(|path| path.has_root());
        let home = folder("HOME").ok_or_else(|| {
            Problem::unavailable("the home folder is not known").with_hint("set HOME to its path")
        })?;
        let xdg = folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        let settings = match system {
            OperatingSystem::Mac => home.join("Library/Application Support"),
            OperatingSystem::Other => xdg.clone(),
        };
        let moved =
            RELOCATION_VARIABLES.iter().filter_map(|name| Some((*name, folder(name)?))).collect();
        Ok(ClientConfigPaths { system, home, settings, xdg, moved, project: project.to_owned() })
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The file that holds for all of the user's projects: the first that is there, or
    /// the first of all.
    pub fn user_files(&self, client: ClientApp) -> Vec<PathBuf> {
        let file = match client {
            ClientApp::ClaudeDesktop => self.settings.join("Claude/claude_desktop_config.json"),
            ClientApp::Cursor => self.home.join(".cursor/mcp.json"),
            ClientApp::Vscode => self.settings.join("Code/User/mcp.json"),
            ClientApp::Zed => self.zed_folder().join("settings.json"),
            ClientApp::ClaudeCode => {
                self.moved_or_home("CLAUDE_CONFIG_DIR", "").join(".claude.json")
            }
            ClientApp::Codex => self.moved_or_home("CODEX_HOME", ".codex").join("config.toml"),
            ClientApp::Gemini => {
                self.moved_or_home("GEMINI_CLI_HOME", "").join(".gemini/settings.json")
            }
            ClientApp::Qwen => self.moved_or_home("QWEN_HOME", ".qwen").join("settings.json"),
            ClientApp::Continue => self.continue_folder().join("config.yaml"),
            ClientApp::Windsurf => self.home.join(".codeium/windsurf/mcp_config.json"),
            ClientApp::Cline => return self.cline_files(),
            ClientApp::Goose => self.goose_folder().join("config.yaml"),
            ClientApp::Opencode => {
                let names = ["opencode.json", "opencode.jsonc", "config.json"];
                return names.map(|name| self.xdg.join("opencode").join(name)).to_vec();
            }
        };
        vec![file]
    }

    /// The file of one project, where the client has such: the first that is there, or
    /// the first of all.
    pub fn project_files(&self, client: ClientApp) -> Vec<PathBuf> {
        let files: &[&str] = match client {
            ClientApp::ClaudeDesktop
            | ClientApp::Windsurf
            | ClientApp::Cline
            | ClientApp::Goose => &[],
            ClientApp::Cursor => &[".cursor/mcp.json"],
            ClientApp::Vscode => &[".vscode/mcp.json"],
            ClientApp::Zed => &[".zed/settings.json"],
            ClientApp::ClaudeCode => &[".mcp.json"],
            ClientApp::Codex => &[".codex/config.toml"],
            ClientApp::Gemini => &[".gemini/settings.json"],
            ClientApp::Qwen => &[".qwen/settings.json"],
            ClientApp::Continue => &[".continue/mcpServers/moonlark.yaml"],
            ClientApp::Opencode => &[
                "opencode.json",
                "opencode.jsonc",
                ".opencode/opencode.json",
                ".opencode/opencode.jsonc",
            ],
        };
        files.iter().map(|file| self.project.join(file)).collect()
    }

    /// Everywhere it may have servers, what holds for the project first.
    pub fn all_files(&self, client: ClientApp) -> Vec<PathBuf> {
        let mut files = self.project_files(client);
        match client {
            // Where it kept them before it had a file for them.
            ClientApp::Vscode => files.push(self.project.join(".vscode/settings.json")),
            ClientApp::Qwen => files.push(self.project.join(".qwen/settings.local.json")),
            _ => {}
        }
        files.extend(self.user_files(client));
        if client == ClientApp::Vscode {
            files.push(self.settings.join("Code/User/settings.json"));
        }
        files
    }

    /// Folders in which every file has servers.
    pub fn all_folders(&self, client: ClientApp) -> Vec<PathBuf> {
        match client {
            ClientApp::Continue => vec![
                self.project.join(".continue/mcpServers"),
                self.continue_folder().join("mcpServers"),
            ],
            _ => Vec::new(),
        }
    }

    /// The project whose own file this is, going by where it lies.
    pub fn project_of<'a>(&self, file: &'a Path) -> Option<&'a Path> {
        let mut clients = ClientApp::value_variants().iter();
        // The user's own files lie in folders of the same names.
        if clients.any(|client| self.user_files(*client).iter().any(|it| it == file)) {
            return None;
        }
        project_folder_of(file).filter(|project| *project != self.home)
    }

    fn moved_or_home(&self, variable: &str, below_home: &str) -> PathBuf {
        self.moved.get(variable).cloned().unwrap_or_else(|| self.home.join(below_home))
    }

    fn continue_folder(&self) -> PathBuf {
        self.moved_or_home("CONTINUE_GLOBAL_DIR", ".continue")
    }

    fn zed_folder(&self) -> PathBuf {
        match self.system {
            OperatingSystem::Mac => self.home.join(".config/zed"),
            OperatingSystem::Other => self.settings.join("zed"),
        }
    }

    fn goose_folder(&self) -> PathBuf {
        match self.moved.get("GOOSE_PATH_ROOT") {
            Some(root) => root.join("config"),
            None => self.xdg.join("goose"),
        }
    }

    /// Its command line and, since version 4, its extension share a file; the extension
    /// had its own before.
    fn cline_files(&self) -> Vec<PathBuf> {
        if let Some(file) = self.moved.get("CLINE_MCP_SETTINGS_PATH") {
            return vec![file.clone()];
        }
        let data = self.moved.get("CLINE_DATA_DIR").cloned();
        let data = data.unwrap_or_else(|| self.moved_or_home("CLINE_DIR", ".cline").join("data"));
        let extension = self.settings.join("Code/User/globalStorage/saoudrizwan.claude-dev");
        [data, extension].map(|folder| folder.join("settings").join(CLINE_SETTINGS_FILE)).to_vec()
    }
}

/// Folders in which clients keep the settings of a project.
const SETTINGS_FOLDERS: [&str; 7] =
    [".cursor", ".vscode", ".zed", ".codex", ".gemini", ".qwen", ".opencode"];

fn project_folder_of(file: &Path) -> Option<&Path> {
    let folder = file.parent()?;
    let name = file.file_name()?.to_str()?;
    if SETTINGS_FOLDERS.iter().any(|settings| folder.ends_with(settings)) {
        return folder.parent();
    }
    if folder.ends_with(".continue/mcpServers") {
        return folder.parent()?.parent();
    }
    matches!(name, ".mcp.json" | "opencode.json" | "opencode.jsonc").then_some(folder)
}

/// The client that a file is of, going by its name and folder; for those whose files
/// need another reading than they show by themselves.
pub fn client_of_file(file: &Path) -> Option<ClientApp> {
    let folder = file.parent()?;
    let name = file.file_name()?.to_str()?;
    match name {
        CLINE_SETTINGS_FILE => Some(ClientApp::Cline),
        "config.toml" => Some(ClientApp::Codex),
        "opencode.json" | "opencode.jsonc" => Some(ClientApp::Opencode),
        _ if folder.ends_with(".gemini") => Some(ClientApp::Gemini),
        _ if folder.ends_with(".qwen") => Some(ClientApp::Qwen),
        _ => None,
    }
}

/// The files of a folder that may have servers, by name; none if it is not there.
pub fn config_files_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let has_servers = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        matches!(ending, "yaml" | "yml" | "json") && path.is_file()
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<PathBuf> = paths.filter(has_servers).collect();
    paths.sort();
    paths
}

/// The first path where there is something, or the first of all.
pub fn first_existing(paths: &[PathBuf]) -> Option<&PathBuf> {
    let is_there = |path: &&PathBuf| std::fs::symlink_metadata(path).is_ok();
    paths.iter().find(is_there).or_else(|| paths.first())
}

/// Without `.` and `..`, by the text alone.
pub fn normalize_path(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(system: OperatingSystem, env: &[(&str, &str)]) -> ClientConfigPaths {
        let look_up = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        ClientConfigPaths::for_system(system, Path::new("/p"), &look_up).unwrap()
    }

    fn check(system: OperatingSystem, env: &[(&str, &str)], expected: &[&str]) {
        let places = places(system, env);
        let files: Vec<PathBuf> = ClientApp::value_variants()
            .iter()
            .filter_map(|client| places.user_files(*client).into_iter().next())
            .collect();
        assert_eq!(files, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn every_system_has_its_own_places() {
        check(
            OperatingSystem::Other,
            &[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "relative")],
            &[
                "/home/a/.config/Claude/claude_desktop_config.json",
                "/home/a/.cursor/mcp.json",
                "/home/a/.config/Code/User/mcp.json",
                "/home/a/.config/zed/settings.json",
                "/home/a/.claude.json",
                "/home/a/.codex/config.toml",
                "/home/a/.gemini/settings.json",
                "/home/a/.config/opencode/opencode.json",
                "/home/a/.qwen/settings.json",
                "/home/a/.continue/config.yaml",
                "/home/a/.codeium/windsurf/mcp_config.json",
                "/home/a/.cline/data/settings/cline_mcp_settings.json",
                "/home/a/.config/goose/config.yaml",
            ],
        );
        check(
            OperatingSystem::Other,
            &[
                ("HOME", "/home/a"),
                ("XDG_CONFIG_HOME", "/x"),
                ("CLAUDE_CONFIG_DIR", "/c"),
                ("CODEX_HOME", "/codex"),
                ("GEMINI_CLI_HOME", "/gemini"),
                ("QWEN_HOME", "/qwen"),
                ("CONTINUE_GLOBAL_DIR", "/continue"),
                ("CLINE_DIR", "/cline"),
                ("GOOSE_PATH_ROOT", "/goose"),
            ],
            &[
                "/x/Claude/claude_desktop_config.json",
                "/home/a/.cursor/mcp.json",
                "/x/Code/User/mcp.json",
                "/x/zed/settings.json",
                "/c/.claude.json",
                "/codex/config.toml",
                "/gemini/.gemini/settings.json",
                "/x/opencode/opencode.json",
                "/qwen/settings.json",
                "/continue/config.yaml",
                "/home/a/.codeium/windsurf/mcp_config.json",
                "/cline/data/settings/cline_mcp_settings.json",
                "/goose/config/config.yaml",
            ],
        );
        check(
            OperatingSystem::Mac,
            &[("HOME", "/Users/a"), ("XDG_CONFIG_HOME", "/x")],
            &[
                "/Users/a/Library/Application Support/Claude/claude_desktop_config.json",
                "/Users/a/.cursor/mcp.json",
                "/Users/a/Library/Application Support/Code/User/mcp.json",
                "/Users/a/.config/zed/settings.json",
                "/Users/a/.claude.json",
                "/Users/a/.codex/config.toml",
                "/Users/a/.gemini/settings.json",
                "/x/opencode/opencode.json",
                "/Users/a/.qwen/settings.json",
                "/Users/a/.continue/config.yaml",
                "/Users/a/.codeium/windsurf/mcp_config.json",
                "/Users/a/.cline/data/settings/cline_mcp_settings.json",
                "/x/goose/config.yaml",
            ],
        );
        assert!(
            ClientConfigPaths::for_system(OperatingSystem::Other, Path::new("/p"), &|_| None)
                .is_err()
        );
    }

    #[test]
    fn files_that_moved_are_known_by_their_old_place_too() {
        let mac = places(OperatingSystem::Mac, &[("HOME", "/Users/a")]);
        assert_eq!(
            mac.user_files(ClientApp::Cline)[1],
            Path::new(
                "/Users/a/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
            )
        );
        let told = [("HOME", "/home/a"), ("CLINE_MCP_SETTINGS_PATH", "/m.json")];
        assert_eq!(
            places(OperatingSystem::Other, &told).user_files(ClientApp::Cline),
            [Path::new("/m.json")]
        );
    }

    #[test]
    fn a_file_of_a_project_says_which() {
        let places = places(OperatingSystem::Other, &[("HOME", "/home/a")]);
        for (file, project) in [
            ("/p/.mcp.json", Some("/p")),
            ("/p/.cursor/mcp.json", Some("/p")),
            ("/p/.vscode/settings.json", Some("/p")),
            ("/p/.zed/settings.json", Some("/p")),
            ("/p/.codex/config.toml", Some("/p")),
            ("/p/.gemini/settings.json", Some("/p")),
            ("/p/opencode.jsonc", Some("/p")),
            ("/p/.opencode/opencode.json", Some("/p")),
            ("/p/.continue/mcpServers/x.yaml", Some("/p")),
            ("/p/servers.json", None),
            ("/home/a/.cursor/mcp.json", None),
            ("/home/a/.config/opencode/opencode.json", None),
            ("/home/a/.codex/config.toml", None),
            ("/home/a/.continue/mcpServers/x.yaml", None),
        ] {
            assert_eq!(places.project_of(Path::new(file)), project.map(Path::new), "{file}");
        }
    }
}
