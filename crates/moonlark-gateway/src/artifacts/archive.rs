//! Where artifacts are kept beyond this process. The gateway does no I/O: who does is the
//! binary's choice.

use std::sync::Arc;

use super::{ArtifactContent, ArtifactHandle, StoredArtifact};

/// Keeps artifacts where the next process finds them, within bounds of its own.
///
/// Both functions may take a moment. What cannot be kept is lost with this process, and said
/// to the operator.
pub trait ArtifactArchive: Send + Sync {
    /// Keep an artifact; one under the same handle is replaced. When this returns, it
    /// survives the end of this process.
    fn keep_artifact(&self, handle: &ArtifactHandle, artifact: &StoredArtifact);

    /// What is kept under a handle, if it is not too old.
    fn load_artifact(&self, handle: &ArtifactHandle) -> Option<ArchivedArtifact>;

    /// Change how many bytes all of them may take.
    fn set_max_bytes(&self, bytes: usize);
}

/// An artifact that comes back.
#[derive(Debug)]
pub struct ArchivedArtifact {
    pub held: ArtifactContent,
    /// Bytes, as limits count them.
    pub size: usize,
    /// Bytes of memory.
    pub weight: usize,
    /// The tool that made it.
    pub of: String,
    /// The only caller who may read it.
    pub owner: Option<Arc<str>>,
}
