//! A process that does not outlive its handle, nor Moonlark: started below a
//! [`supervisor`](crate::supervisor), ended with all it has started when the
//! handle is dropped.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::ending::{Ending, LENGTH};
use crate::supervisor::{MODE, TERMINATE};

/// The binary that can be a supervisor.
static SUPERVISOR: OnceLock<PathBuf> = OnceLock::new();

/// What to start.
pub struct Launch {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// All of its environment.
    pub env: Vec<(OsString, OsString)>,
    /// The folder it runs in: opened, so that nobody can put another there.
    pub folder: OwnedFd,
    /// Give it a standard input to write to; otherwise it finds the end there.
    pub feed: bool,
}

pub struct Supervised {
    pub stdin: Option<pipe::Sender>,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
    pub status: Status,
}

/// The line to the supervisor; when it is closed, everything ends.
pub struct Status {
    control: UnixStream,
    process: Child,
}

impl Supervised {
    /// Takes as long as starting a process does: not for an async thread, but
    /// within a runtime.
    pub fn start(launch: Launch) -> io::Result<Supervised> {
        let Some(supervisor) = SUPERVISOR.get() else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this program is not the moonlark binary",
            ));
        };
        // Whatever is opened here closes when another process is started: the
        // end of `ours` must be seen as soon as we are gone.
        let (ours, theirs) = Socket::pair()?;
        let (input, stdin) = match launch.feed {
            true => {
                let (input, stdin) = io::pipe()?;
                (input.into(), Some(pipe::Sender::from_owned_fd(stdin.into())?))
            }
            false => (OwnedFd::from(File::open("/dev/null")?), None),
        };
        hand_over(&ours, [input.as_fd(), launch.folder.as_fd()])?;
        ours.set_nonblocking(true)?;
        let control = UnixStream::from_std(ours)?;
        let mut process = Command::new(supervisor)
            .arg0("moonlark")
            .arg(MODE)
            .arg(launch.program)
            .args(launch.args)
            .env_clear()
            .envs(launch.env)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (Some(stdout), Some(stderr)) = (process.stdout.take(), process.stderr.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(Supervised { stdin, stdout, stderr, status: Status { control, process } })
    }
}

impl Status {
    /// Wait until the process has ended, and all that it left behind.
    pub async fn ended(&mut self) -> io::Result<Ending> {
        let mut report = [0; LENGTH];
        self.control.read_exact(&mut report).await?;
        self.process.wait().await?;
        Ending::from_bytes(report).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Ask it to end: the signal that programs can act on, to all of its group.
    pub fn terminate(&self) {
        // If nobody reads it, there is nothing left to end.
        let _ = self.control.try_write(&[TERMINATE]);
    }

    /// End it now, and return when nothing is left.
    pub async fn kill(self) {
        let Status { control, mut process } = self;
        drop(control);
        // It can only fail if there is nothing to wait for.
        let _ = process.wait().await;
    }
}

/// This binary's `main` knows how to be a supervisor.
pub(crate) fn use_this_binary() {
    // Also right when the file was replaced by a newer version meanwhile.
    #[cfg(target_os = "linux")]
    let path = Some(PathBuf::from("/proc/self/exe"));
    #[cfg(not(target_os = "linux"))]
    let path = std::env::current_exe().ok();
    if let Some(path) = path {
        let _ = SUPERVISOR.set(path);
    }
}

/// Send descriptors ahead: they wait in the socket until they are received.
fn hand_over(socket: &Socket, descriptors: [BorrowedFd<'_>; 2]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(b"+")], &mut ancillary, SendFlags::empty())?;
    Ok(())
}
