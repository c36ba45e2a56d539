//! The programs beside which Moonlark is measured: what they are called, and where they are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    ToolScript,
    ContextHarness,
    StarlarkMcp,
    MyCoolProxy,
}

pub(super) const PEERS: [Peer; 4] =
    [Peer::ToolScript, Peer::ContextHarness, Peer::StarlarkMcp, Peer::MyCoolProxy];

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::ToolScript => "ToolScript",
            Peer::ContextHarness => "Context Harness",
            Peer::StarlarkMcp => "starlark-mcp",
            Peer::MyCoolProxy => "my-cool-proxy",
        }
    }

    /// Of its executable.
    pub(super) fn file_name(self) -> &'static str {
        match self {
            Peer::ToolScript => "toolscript",
            Peer::ContextHarness => "ctx",
            Peer::StarlarkMcp => "starlark-mcp",
            Peer::MyCoolProxy => "my-cool-proxy",
        }
    }
}

/// The folder that `--peers` names.
#[derive(Clone)]
pub(super) struct PeerPrograms {
    folder: PathBuf,
}

impl PeerPrograms {
    pub(super) fn in_folder(folder: &Path) -> Result<PeerPrograms> {
        // Peers run in folders of their own.
        let folder = folder
            .canonicalize()
            .with_context(|| format!("cannot open the folder {}", folder.display()))?;
        ensure!(folder.is_dir(), "{} is not a folder", folder.display());
        Ok(PeerPrograms { folder })
    }

    /// If it is there.
    pub(super) fn find(&self, peer: Peer) -> Option<PathBuf> {
        let program = self.folder.join(peer.file_name());
        program.is_file().then_some(program)
    }
}
