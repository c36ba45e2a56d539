//! The process between Moonlark and a command: a hidden mode of the same
//! binary that lives exactly as long as the command.
//!
//! It adopts whatever the command leaves behind, so nothing the command starts
//! gets away from it, neither in a session of its own nor by forking twice. Its
//! standard input is a socket to Moonlark. When that ends, because the call did
//! or because Moonlark is no more, it kills everything below it and goes. When
//! the command ends, it kills the rest, says how the command ended, and goes.
//!
//! Its arguments are the program and the program's arguments, its environment
//! is the program's, and so are its standard output and error until the program
//! has them. The program's input and folder come over the socket.
//!
//! A command of the same user may kill it. On Linux the command dies with it then;
//! what the command had started before may live on, since nobody is left to find it.

use std::env;
use std::ffi::OsString;
#[cfg(target_os = "linux")]
use std::ffi::{CString, OsStr};
use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{OwnedFd, RawFd};
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio, exit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::FdFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus};
use rustix::stdio::stdin;

use crate::process_allocator::allow_huge_pages;
use crate::process_ending::ProcessEnding;
use crate::supervised;

/// The first argument that asks for this mode.
pub(crate) const SUPERVISOR_MODE_ARG: &str = "__supervise";
/// What Moonlark says to have the command asked to end.
pub(crate) const TERMINATE_REQUEST: u8 = b't';

/// For the top of a binary's `main`, before anything else: be the supervisor if
/// that is what this process was started for, and otherwise note that this
/// binary can be one. Without it, nothing can be run.
pub fn supervise_if_asked() {
    if env::args_os().nth(1).is_some_and(|mode| mode == SUPERVISOR_MODE_ARG) {
        run_supervisor();
    }
    supervised::register_supervisor_program();
}

fn run_supervisor() -> ! {
    let ending = match start_command() {
        Ok(command) => wait_for_command(command),
        Err(error) => ProcessEnding::from_start_error(&error),
    };
    // If nobody is there to hear it, nobody asks.
    let _ = rustix::io::write(stdin(), &ending.to_bytes());
    exit(0)
}

/// Everything between being started and the command running.
fn start_command() -> io::Result<Pid> {
    close_inherited_descriptors();
    // What holds for Moonlark's own memory is nothing to a command.
    allow_huge_pages(true);
    // A session of its own: no terminal, and no signal meant for Moonlark's.
    rustix::process::setsid()?;
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let [input, folder] = receive_descriptors()?;
    // The command gets its input as such, and nothing beside it.
    for descriptor in [&input, &folder] {
        rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
    }
    rustix::process::fchdir(&folder)?;
    let nothing = OpenOptions::new().write(true).open("/dev/null")?;
    let mut arguments = env::args_os().skip(2);
    let program = arguments.next().ok_or(io::ErrorKind::InvalidInput)?;
    let arguments: Vec<OsString> = arguments.collect();
    let mut command = Command::new(&program);
    command
        .args(&arguments)
        .stdin(Stdio::from(input))
        // The whole group can be killed at one blow, and we are not in it.
        .process_group(0);
    #[cfg(target_os = "linux")]
    die_with_parent(&mut command, &program, &arguments)?;
    let command = command.spawn()?;
    // Only the command may hold its output open. It runs: nothing may fail now.
    let _ = rustix::stdio::dup2_stdout(&nothing);
    let _ = rustix::stdio::dup2_stderr(&nothing);
    Ok(Pid::from_child(&command))
}

/// Have the kernel kill the command when this process is no more, however it ended.
///
/// A program that is named by its path is started here as well: the C library's way to
/// start one after this hands what is no program to a shell.
#[cfg(target_os = "linux")]
fn die_with_parent(
    command: &mut Command,
    program: &OsStr,
    arguments: &[OsString],
) -> io::Result<()> {
    let parent = rustix::process::getpid();
    let has_path = program.as_bytes().contains(&b'/');
    let words = ArgumentPointers::new(program, arguments)?;
    let ask = move || {
        let signal = Some(rustix::process::Signal::KILL);
        rustix::process::set_parent_process_death_signal(signal)?;
        // It may be gone already, and then nobody would ever be told.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if has_path { Err(words.exec_program()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec this makes three system calls and nothing else.
    unsafe { command.pre_exec(ask) };
    Ok(())
}

/// The words of a command as the system takes them, made before the fork.
#[cfg(target_os = "linux")]
struct ArgumentPointers {
    _texts: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

// SAFETY: the pointers are into the texts beside them, which nobody changes.
#[cfg(target_os = "linux")]
unsafe impl Send for ArgumentPointers {}
// SAFETY: as above.
#[cfg(target_os = "linux")]
unsafe impl Sync for ArgumentPointers {}

#[cfg(target_os = "linux")]
impl ArgumentPointers {
    fn new(program: &OsStr, arguments: &[OsString]) -> io::Result<ArgumentPointers> {
        let words = std::iter::once(program).chain(arguments.iter().map(OsString::as_os_str));
        let texts: Result<Vec<CString>, _> =
            words.map(|word| CString::new(word.as_bytes())).collect();
        let texts = texts.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let pointers = texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Ok(ArgumentPointers { _texts: texts, pointers })
    }

    /// Become the program. Returns only if that fails, with why.
    fn exec_program(&self) -> io::Error {
        // SAFETY: a list of texts that end with a zero, which itself ends with a null.
        unsafe { libc::execv(self.pointers[0], self.pointers.as_ptr()) };
        io::Error::last_os_error()
    }
}

/// What Moonlark opens is not for other processes, but it may have got
/// descriptors from whoever started it.
fn close_inherited_descriptors() {
    let listing = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let open: Vec<RawFd> = std::fs::read_dir(listing)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|descriptor| *descriptor > 2)
        .collect();
    for descriptor in open {
        // SAFETY: this process has opened nothing yet, so nobody in it owns any
        // of them. The listing's own is closed already, and that is no harm.
        unsafe { libc::close(descriptor) };
    }
}

/// The command's input and folder, which Moonlark sends first.
fn receive_descriptors() -> io::Result<[OwnedFd; 2]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(stdin(), &mut parts, &mut ancillary, RecvFlags::empty())?;
    let descriptors: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    descriptors.try_into().map_err(|_| io::ErrorKind::UnexpectedEof.into())
}

/// Wait for the command's end, and end what it left.
fn wait_for_command(command: Pid) -> ProcessEnding {
    let below = Arc::new(ProcessTree { command, reaping: Mutex::new(()) });
    let watching = below.clone();
    let watch = move || {
        watching.serve_requests_until_closed();
        let _end = watching.lock_reaping();
        watching.kill_all();
        exit(0)
    };
    if std::thread::Builder::new().stack_size(64 * 1024).spawn(watch).is_err() {
        // Nothing would end it: better now than never.
        below.kill_all();
        return ProcessEnding::NotStarted { errno: rustix::io::Errno::AGAIN.raw_os_error() };
    }
    loop {
        // Wait without taking anybody away: the number of a process that was
        // not waited for cannot become another's.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let waited = rustix::process::waitid(WaitId::All, options);
        let _reaping = below.lock_reaping();
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return ProcessEnding::NotStarted { errno: error.raw_os_error() },
        }
        if let Some(ending) = below.reap_children() {
            below.kill_all();
            return ending;
        }
    }
}

/// All processes below this one.
struct ProcessTree {
    command: Pid,
    /// Held while children are waited for, or listed and killed.
    reaping: Mutex<()>,
}

impl ProcessTree {
    fn lock_reaping(&self) -> MutexGuard<'_, ()> {
        self.reaping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moonlark holds the other end, and may say that the command is to end.
    fn serve_requests_until_closed(&self) {
        loop {
            match rustix::io::read(stdin(), &mut [0; 16]) {
                Ok(0) => return,
                Ok(_) => self.terminate_command_group(),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    fn terminate_command_group(&self) {
        // Not while it may be waited for: its number could be another's by then.
        let _here = self.lock_reaping();
        let _ = rustix::process::kill_process_group(self.command, rustix::process::Signal::TERM);
    }

    /// Take away all that have ended; the command's ending, if it is among them.
    fn reap_children(&self) -> Option<ProcessEnding> {
        let mut ending = None;
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if pid == self.command {
                ending = Some(ending_from_status(status));
            }
        }
        ending
    }

    /// Until there is nobody left, or nobody that we may kill. The orphans of
    /// whoever dies become children here and are next.
    #[cfg(target_os = "linux")]
    fn kill_all(&self) {
        loop {
            let mut children = list_children();
            if children.is_empty() && self.has_command() {
                // There is no list: the command itself is all we know.
                children.push(self.command);
            }
            let killed = children.into_iter().filter(|child| kill_child_group(*child)).count();
            if killed == 0 {
                return;
            }
            // One at least will end, whatever the others do.
            let _ = rustix::process::wait(WaitOptions::empty());
            self.reap_children();
        }
    }

    /// Whether the command is still a child, ended or not.
    #[cfg(target_os = "linux")]
    fn has_command(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        rustix::process::waitid(WaitId::Pid(self.command), options).is_ok()
    }

    /// Elsewhere orphans are not ours: the command's group is all we know.
    #[cfg(not(target_os = "linux"))]
    fn kill_all(&self) {
        let _ = rustix::process::kill_process_group(self.command, rustix::process::Signal::KILL);
        while rustix::process::wait(WaitOptions::empty()).is_ok() {}
    }
}

/// Each thread has a list of its own. One that is made meanwhile is seen in the
/// next round, and none goes away: only we wait for them.
#[cfg(target_os = "linux")]
fn list_children() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists: Vec<String> = threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .collect();
    let numbers = lists.iter().flat_map(|list| list.split_ascii_whitespace());
    numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
}

/// Kill a child with its whole group. The group may be larger than what is
/// below us only if it is our own, which the child may have joined.
#[cfg(target_os = "linux")]
fn kill_child_group(child: Pid) -> bool {
    use rustix::process::{Signal, getpgid, getpgrp, kill_process, kill_process_group};
    if let Ok(group) = getpgid(Some(child))
        && group != getpgrp()
    {
        // Members that are not ours to kill do not spare the others.
        let _ = kill_process_group(group, Signal::KILL);
    }
    kill_process(child, Signal::KILL).is_ok()
}

fn ending_from_status(status: WaitStatus) -> ProcessEnding {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ProcessEnding::Exited(code),
        (None, Some(signal)) => ProcessEnding::Killed { signal },
        (None, None) => ProcessEnding::Exited(0),
    }
}
