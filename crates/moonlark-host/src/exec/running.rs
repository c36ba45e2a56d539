//! One command from its start to its answer: fed, read and bounded.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use moonlark_core::grant::{AllowedDir, AllowedExec};
use moonlark_core::limits::{seconds, size};
use moonlark_core::value::{Bytes, shorten};
use moonlark_core::{Call, Code, Problem, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use super::{Output, Run, command};
use crate::args::fits;
use moonlark_child::{Ending, Launch, Supervised};

pub(super) async fn run(call: Call, allowed: AllowedExec, args: Run) -> Result<Output> {
    let patience = patience(args.timeout)?;
    let folder = call.grants().dir("exec.run")?;
    let (argv, env) = (command::arguments(args.args)?, command::environment(args.env)?);
    let name = allowed.command().to_owned();
    let feed = args.stdin.is_some();
    let start = move || {
        let program = command::find(&allowed)?;
        let folder = open(&folder, args.cwd.as_deref())?;
        Supervised::start(Launch { program, args: argv, env, folder, feed })
            .map_err(|error| not_started(allowed.command(), &error))
    };
    let started = tokio::task::spawn_blocking(start).await;
    let Supervised { stdin, stdout, stderr, mut status } = started
        .unwrap_or_else(|error| Err(Problem::internal(format!("it was not started: {error}"))))?;

    let most = call.limits().http_body;
    let work = async {
        tokio::try_join!(
            feed_all(stdin, args.stdin.unwrap_or_default()),
            read_all(&name, "stdout", stdout, most),
            read_all(&name, "stderr", stderr, most),
            async { status.ended().await.map_err(|error| lost(&name, &error)) },
        )
    };
    let outcome = tokio::time::timeout(patience, work).await.unwrap_or_else(|_| {
        let spent = seconds(patience);
        Err(Problem::new(Code::Timeout, format!("{name} did not end within {spent}")))
    });
    let ((), stdout, stderr, ending) = match outcome {
        Ok(all) => all,
        Err(problem) => {
            status.kill().await;
            return Err(problem);
        }
    };
    if let Ending::NotStarted { errno } = ending {
        return Err(not_started(&name, &io::Error::from_raw_os_error(errno)));
    }
    fits(&call, stdout.len() + stderr.len())?;
    if args.check && ending != Ending::Exited(0) {
        return Err(failed(&name, ending, &stderr));
    }
    let exit_code = ending.exit_code();
    let success = exit_code == 0;
    Ok(Output { stdout: Bytes(stdout), stderr: Bytes(stderr), exit_code, success })
}

/// How long the script itself is willing to wait. The call's deadline is the
/// caller's to enforce: it drops all of this.
fn patience(timeout: Option<f64>) -> Result<Duration> {
    let Some(timeout) = timeout else { return Ok(Duration::MAX) };
    match Duration::try_from_secs_f64(timeout) {
        Ok(patience) if !patience.is_zero() => Ok(patience),
        // Longer than a Duration can hold is as good as for ever.
        Err(_) if timeout > 0.0 => Ok(Duration::MAX),
        _ => Err(Problem::bad_request(format!(
            "timeout must be a number of seconds over 0, got {timeout}"
        ))),
    }
}

/// The folder to run in. Resolved by the system below the script's directory,
/// and kept open: neither `..` nor a link leads out of it, then or later.
fn open(allowed: &AllowedDir, cwd: Option<&str>) -> Result<OwnedFd> {
    let unusable = |error: io::Error| {
        Problem::unavailable(format!("the script's directory cannot be opened: {}", error.kind()))
    };
    let dir = Dir::open_ambient_dir(allowed.path(), ambient_authority()).map_err(unusable)?;
    let Some(cwd) = cwd else { return Ok(dir.into_std_file().into()) };
    let shown = shorten(cwd);
    let outside = || {
        Problem::denied("exec.run may not leave the script's directory")
            .hint("give cwd as a folder below the script, such as \"data\"")
    };
    if Path::new(cwd).components().any(|part| matches!(part, Component::RootDir)) {
        return Err(outside());
    }
    let found = dir.open_dir(cwd).map_err(|error| match error.kind() {
        // The system itself denies with a number, confinement without one.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => outside(),
        io::ErrorKind::NotFound => Problem::new(Code::NotFound, format!("no folder {shown}")),
        io::ErrorKind::NotADirectory => Problem::bad_request(format!("{shown} is not a folder")),
        kind => Problem::bad_request(format!("the folder {shown} cannot be used: {kind}")),
    })?;
    Ok(found.into_std_file().into())
}

/// A command need not read what it is given.
async fn feed_all(stdin: Option<pipe::Sender>, data: Bytes) -> Result<()> {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&data.0).await;
    }
    Ok(())
}

async fn read_all(
    name: &str,
    stream: &str,
    from: impl AsyncRead + Unpin,
    most: usize,
) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    // One byte more than allowed tells that there is more.
    from.take(most as u64 + 1).read_to_end(&mut data).await.map_err(|error| lost(name, &error))?;
    if data.len() > most {
        return Err(Problem::limit(format!("{name} wrote more than {} to {stream}", size(most)))
            .hint("have it write less, or raise limits.http_body"));
    }
    Ok(data)
}

/// The supervisor is gone without a word.
fn lost(name: &str, error: &io::Error) -> Problem {
    Problem::tool_error(format!("how {name} ended is not known: {}", error.kind()))
        .hint("the process that watches over it was killed, perhaps for lack of memory")
}

fn not_started(name: &str, error: &io::Error) -> Problem {
    let reason = match error.raw_os_error() {
        Some(libc::E2BIG) => {
            return Problem::bad_request(format!("the arguments of {name} are too long"))
                .hint("give it long text by stdin");
        }
        Some(libc::ENOEXEC) => "it is not a program".to_owned(),
        Some(libc::ENOENT) => "it, or what it is to be run with, is not there".to_owned(),
        _ if error.kind() == io::ErrorKind::Unsupported => error.to_string(),
        _ => error.kind().to_string(),
    };
    let busy = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE));
    Problem::unavailable(format!("{name} cannot be started: {reason}")).retryable_if(busy)
}

/// For those who asked for success: what a person would look at first.
fn failed(name: &str, ending: Ending, stderr: &[u8]) -> Problem {
    let how = match ending {
        Ending::Killed { signal } => format!("{name} was killed by signal {signal}"),
        other => format!("{name} exited with {}", other.exit_code()),
    };
    let said = String::from_utf8_lossy(stderr);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    Problem::tool_error(match last {
        Some(line) => format!("{how}: {}", shorten(line)),
        None => how,
    })
}
