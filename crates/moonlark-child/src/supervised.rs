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

use crate::process_ending::{ENDING_BYTES, ProcessEnding};
use crate::supervisor::{SUPERVISOR_MODE_ARG, TERMINATE_REQUEST};

/// The binary that can be a supervisor.
static SUPERVISOR_PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// What to start.
pub struct LaunchSpec {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// All of its environment.
    pub env: Vec<(OsString, OsString)>,
    /// The folder it runs in: opened, so that nobody can put another there.
    pub folder: OwnedFd,
    /// Give it a standard input to write to; otherwise it finds the end there.
    pub feed: bool,
}

pub struct SupervisedProcess {
    pub stdin: Option<pipe::Sender>,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
    pub status: SupervisorHandle,
}

/// The line to the supervisor; when it is closed, everything ends.
pub struct SupervisorHandle {
    control: UnixStream,
    process: Child,
}

impl SupervisedProcess {
    /// Takes as long as starting a process does: not for an async thread, but
    /// within a runtime.
    pub fn start(launch: LaunchSpec) -> io::Result<SupervisedProcess> {
        let Some(supervisor) = SUPERVISOR_PROGRAM.get() else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this program is not the moonlark binary",
            ));
        };
        // Whatever is opened here closes when another process is started: the
        // end of `ours` must be seen as soon as we are gone.
        let (ours, theirs) = Socket::pair()?;
        let (input, stdin) = if launch.feed {
            let (input, stdin) = io::pipe()?;
            (input.into(), Some(pipe::Sender::from_owned_fd(stdin.into())?))
        } else {
            (OwnedFd::from(File::open("/dev/null")?), None)
        };
        send_descriptors(&ours, [input.as_fd(), launch.folder.as_fd()])?;
        ours.set_nonblocking(true)?;
        let control = UnixStream::from_std(ours)?;
        let mut process = Command::new(supervisor)
            .arg0("moonlark")
            .arg(SUPERVISOR_MODE_ARG)
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
        Ok(SupervisedProcess {
            stdin,
            stdout,
            stderr,
            status: SupervisorHandle { control, process },
        })
    }
}

impl SupervisorHandle {
    /// Wait until the process has ended, and all that it left behind.
    pub async fn wait_for_end(&mut self) -> io::Result<ProcessEnding> {
        let mut report = [0; ENDING_BYTES];
        self.control.read_exact(&mut report).await?;
        self.process.wait().await?;
        ProcessEnding::from_bytes(report).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Ask it to end: the signal that programs can act on, to all of its group.
    pub fn terminate(&self) {
        // If nobody reads it, there is nothing left to end.
        let _ = self.control.try_write(&[TERMINATE_REQUEST]);
    }

    /// End it now, and return when nothing is left.
    pub async fn kill(self) {
        let SupervisorHandle { control, mut process } = self;
        drop(control);
        // It can only fail if there is nothing to wait for.
        let _ = process.wait().await;
    }
}

/// This binary's `main` knows how to be a supervisor.
pub(crate) fn register_supervisor_program() {
    // Also right when the file was replaced by a newer version meanwhile.
    #[cfg(target_os = "linux")]
    let path = Some(PathBuf::from("/proc/self/exe"));
    #[cfg(not(target_os = "linux"))]
    let path = std::env::current_exe().ok();
    if let Some(path) = path {
        let _ = SUPERVISOR_PROGRAM.set(path);
    }
}

/// Send descriptors ahead: they wait in the socket until they are received.
fn send_descriptors(socket: &Socket, descriptors: [BorrowedFd<'_>; 2]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(b"+")], &mut ancillary, SendFlags::empty())?;
    Ok(())
}
