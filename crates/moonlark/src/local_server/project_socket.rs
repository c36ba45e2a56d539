//! The socket of a project: where it is, whose it is, and who listens on it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use moonlark_state::LockFile;
use moonlark_state::state_folder::{create_state_folder, state_folder_path};

const SOCKET_FILE_NAME: &str = "server.sock";
/// Locked for as long as somebody listens. The system unlocks it when a process
/// ends, however it ends; so a socket without that lock is a stale one.
const LOCK_FILE_NAME: &str = "server.lock";
/// What an address of a Unix socket may have, without the byte that ends it. Some
/// systems take fewer than Linux.
const MAX_SOCKET_ADDRESS_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

#[derive(Debug, Clone)]
pub(crate) struct ProjectSocket {
    folder: PathBuf,
}

/// The right to be the one that listens, until it is dropped.
pub(crate) struct SocketClaim {
    pub(super) listener: UnixListener,
    path: PathBuf,
    _lock: LockFile,
}

impl ProjectSocket {
    /// Of the project in this folder.
    pub(crate) fn for_project(root: &Path) -> Self {
        Self { folder: state_folder_path(root) }
    }

    /// A connection to whoever listens; none if nobody does.
    pub(super) async fn connect(&self) -> io::Result<Option<UnixStream>> {
        let path = self.folder.join(SOCKET_FILE_NAME);
        if !path.exists() {
            return Ok(None);
        }
        let address = ShortSocketPath::for_folder(&self.folder)?;
        let stream = match UnixStream::connect(&address.path).await {
            Ok(stream) => stream,
            // Left behind by a process that was killed, or gone this moment.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if !is_same_user(&stream)? {
            return Err(other_user_error(&path));
        }
        Ok(Some(stream))
    }

    /// Listen, unless somebody does already.
    pub(crate) fn claim_listener(&self) -> io::Result<Option<SocketClaim>> {
        create_state_folder(&self.folder)?;
        if self.folder.metadata()?.uid() != own_user_id() {
            return Err(other_user_error(&self.folder));
        }
        let Some(lock) = LockFile::try_acquire(&self.folder.join(LOCK_FILE_NAME))? else {
            return Ok(None);
        };
        let path = self.folder.join(SOCKET_FILE_NAME);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let address = ShortSocketPath::for_folder(&self.folder)?;
        let listener = UnixListener::bind(&address.path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Some(SocketClaim { listener, path, _lock: lock }))
    }
}

impl Drop for SocketClaim {
    /// The lock is still held here: what is removed is surely ours.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether the process at the other end is of the same user as this one.
pub(super) fn is_same_user(stream: &UnixStream) -> io::Result<bool> {
    Ok(stream.peer_cred()?.uid() == own_user_id())
}

fn other_user_error(path: &Path) -> io::Error {
    let message = format!("{} belongs to another user", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, message)
}

fn own_user_id() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The socket's path in a form that fits into an address.
struct ShortSocketPath {
    path: PathBuf,
    /// Open as long as the path leads through it.
    _folder: Option<File>,
}

impl ShortSocketPath {
    fn for_folder(folder: &Path) -> io::Result<ShortSocketPath> {
        let path = folder.join(SOCKET_FILE_NAME);
        if path.as_os_str().as_bytes().len() <= MAX_SOCKET_ADDRESS_BYTES {
            return Ok(ShortSocketPath { path, _folder: None });
        }
        if !cfg!(target_os = "linux") {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("the path {} is too long for a socket", path.display()),
            ));
        }
        // The kernel knows every open folder under a short name as well.
        let open = File::open(folder)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET_FILE_NAME}", open.as_raw_fd()));
        Ok(ShortSocketPath { path, _folder: Some(open) })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn is_answered(socket: &ProjectSocket, claim: &SocketClaim) -> bool {
        let Some(mut client) = socket.connect().await.unwrap() else { return false };
        let (mut server, _) = claim.listener.accept().await.unwrap();
        server.write_all(b"x").await.unwrap();
        client.read_u8().await.unwrap() == b'x'
    }

    #[tokio::test]
    async fn one_process_listens_and_the_next_one_can_when_it_has_ended() {
        let root = tempfile::tempdir().unwrap();
        let socket = ProjectSocket::for_project(root.path());
        assert!(socket.connect().await.unwrap().is_none());
        let first = socket.claim_listener().unwrap().unwrap();
        assert!(socket.claim_listener().unwrap().is_none());
        assert!(is_answered(&socket, &first).await);
        drop(first);
        assert!(!root.path().join(".moonlark").join(SOCKET_FILE_NAME).exists());
        let second = socket.claim_listener().unwrap().unwrap();
        assert!(is_answered(&socket, &second).await);
    }

    #[tokio::test]
    async fn a_socket_that_was_left_behind_is_nobodys_and_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let socket = ProjectSocket::for_project(root.path());
        let folder = root.path().join(".moonlark");
        std::fs::create_dir(&folder).unwrap();
        drop(UnixListener::bind(folder.join(SOCKET_FILE_NAME)).unwrap());
        assert!(folder.join(SOCKET_FILE_NAME).exists());
        assert!(socket.connect().await.unwrap().is_none());
        let claim = socket.claim_listener().unwrap().unwrap();
        assert!(is_answered(&socket, &claim).await);
    }

    #[tokio::test]
    async fn only_the_owner_can_reach_it() {
        let root = tempfile::tempdir().unwrap();
        let socket = ProjectSocket::for_project(root.path());
        let _claim = socket.claim_listener().unwrap().unwrap();
        let mode = |path: PathBuf| path.metadata().unwrap().mode() & 0o777;
        let folder = root.path().join(".moonlark");
        assert_eq!(mode(folder.join(SOCKET_FILE_NAME)), 0o600);
        assert_eq!(mode(folder.join(LOCK_FILE_NAME)), 0o600);
        assert_eq!(mode(folder), 0o700);
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn a_folder_whose_path_is_long_is_no_obstacle() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a".repeat(100)).join("b".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let socket = ProjectSocket::for_project(&deep);
        let claim = socket.claim_listener().unwrap().unwrap();
        assert!(is_answered(&socket, &claim).await);
        drop(claim);
        assert!(socket.connect().await.unwrap().is_none());
    }
}
