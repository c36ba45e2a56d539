//! A confined directory, which no path leads out of.
//!
//! Every path is resolved by the system from an open descriptor of the
//! directory, so neither `..` nor a symbolic link, not even one that is swapped
//! in meanwhile, reaches anything else.

use std::io::{self, ErrorKind, Read, Write};
use std::path::{Component, Path};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use moonlark_core::grant::AllowedDir;
use moonlark_core::limits::format_size;
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, ProblemCode, Result};

pub(crate) struct ConfinedDir {
    dir: Dir,
    /// The function that asks, for messages.
    what: &'static str,
}

impl ConfinedDir {
    pub(super) fn open(what: &'static str, allowed: &AllowedDir) -> Result<ConfinedDir> {
        Ok(ConfinedDir { dir: open_script_dir(allowed)?, what })
    }

    pub(crate) fn read_file(&self, path: &str, most: usize) -> Result<Vec<u8>> {
        let file = self.open_regular_file(path)?;
        let too_large = || {
            Problem::limit_exceeded(format!(
                "{} is larger than {}",
                shorten_text(path),
                format_size(most)
            ))
            .with_hint("read a smaller file, or raise limits.value")
        };
        let expected = file.metadata().map_or(0, |found| found.len());
        if expected > most as u64 {
            return Err(too_large());
        }
        // One byte more than allowed tells whether the file was larger than it
        // said, or grew.
        let mut data = Vec::with_capacity(expected as usize + 1);
        file.take(most as u64 + 1)
            .read_to_end(&mut data)
            .map_err(|error| self.explain_io_error(path, &error))?;
        if data.len() > most {
            return Err(too_large());
        }
        Ok(data)
    }

    /// Open a file for reading. A pipe, a device or a socket could keep us
    /// waiting for ever: opening does not wait, and then they are refused.
    fn open_regular_file(&self, path: &str) -> Result<File> {
        check_relative_path(self.what, path)?;
        let mut options = OpenOptions::new();
        options.read(true);
        cap_std::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK | libc::O_NOCTTY);
        let refused =
            || Problem::bad_request(format!("{} is not a regular file", shorten_text(path)));
        let file = self.dir.open_with(path, &options).map_err(|error| {
            // Sockets cannot be opened at all.
            match self.dir.metadata(path) {
                Ok(found) if !found.is_file() => refused(),
                _ => self.explain_io_error(path, &error),
            }
        })?;
        let found = file.metadata().map_err(|error| self.explain_io_error(path, &error))?;
        if found.is_file() { Ok(file) } else { Err(refused()) }
    }

    pub(super) fn exists(&self, path: &str) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(problem) if problem.code == ProblemCode::NotFound => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    pub(super) fn metadata(&self, path: &str) -> Result<Metadata> {
        check_relative_path(self.what, path)?;
        self.dir.metadata(path).map_err(|error| self.explain_io_error(path, &error))
    }

    pub(super) fn open_subdirectory(&self, path: &str) -> Result<Dir> {
        check_relative_path(self.what, path)?;
        self.dir.open_dir(path).map_err(|error| match error.kind() {
            ErrorKind::NotADirectory if self.dir.exists(path) => {
                Problem::bad_request(format!("{} is not a directory", shorten_text(path)))
            }
            _ => self.explain_io_error(path, &error),
        })
    }

    /// Readers see the old file or the new one, never half of one.
    pub(super) fn write_file(&self, path: &str, data: &[u8]) -> Result<()> {
        check_relative_path(self.what, path)?;
        let explain = |error: io::Error| self.explain_io_error(path, &error);
        let no_file =
            || Problem::bad_request(format!("{} does not name a file", shorten_text(path)));
        let name =
            Path::new(path).file_name().filter(|_| !path.ends_with('/')).ok_or_else(no_file)?;
        let parent = match Path::new(path).parent() {
            Some(parent) if !parent.as_os_str().is_empty() => match self.dir.open_dir(parent) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.dir.create_dir_all(parent).map_err(explain)?;
                    self.dir.open_dir(parent).map_err(explain)?
                }
                opened => opened.map_err(explain)?,
            },
            _ => self.dir.try_clone().map_err(explain)?,
        };
        let temporary = format!(".moonlark-{}", uuid::Uuid::new_v4().simple());
        let mut options = OpenOptions::new();
        let written = parent
            .open_with(&temporary, options.write(true).create_new(true))
            .and_then(|mut file| {
                // A file that only its owner may read stays so.
                if let Ok(old) = parent.symlink_metadata(name)
                    && old.is_file()
                {
                    file.set_permissions(old.permissions())?;
                }
                file.write_all(data)
            })
            .and_then(|()| parent.rename(&temporary, &parent, name));
        written.map_err(|error| {
            // Nothing to do about a leftover that cannot be removed either.
            let _ = parent.remove_file(&temporary);
            explain(error)
        })
    }

    pub(super) fn remove_entry(&self, path: &str) -> Result<()> {
        check_relative_path(self.what, path)?;
        let found =
            self.dir.symlink_metadata(path).map_err(|error| self.explain_io_error(path, &error))?;
        let removed =
            if found.is_dir() { self.dir.remove_dir(path) } else { self.dir.remove_file(path) };
        removed.map_err(|error| self.explain_io_error(path, &error))
    }

    /// An error of the system, in the script's terms.
    pub(super) fn explain_io_error(&self, path: &str, error: &io::Error) -> Problem {
        let path = shorten_text(path);
        match error.kind() {
            // The system itself denies with a number, confinement without one.
            ErrorKind::PermissionDenied if error.raw_os_error().is_none() => {
                escape_problem(self.what)
            }
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                Problem::new(ProblemCode::NotFound, format!("no file {path}"))
            }
            ErrorKind::IsADirectory => Problem::bad_request(format!("{path} is a directory")),
            ErrorKind::DirectoryNotEmpty => {
                Problem::bad_request(format!("the directory {path} is not empty"))
            }
            kind => Problem::tool_error(format!("cannot use {path}: {kind}")),
        }
    }
}

/// The one ambient path; everything below is relative to it.
pub(crate) fn open_script_dir(allowed: &AllowedDir) -> Result<Dir> {
    Dir::open_ambient_dir(allowed.path(), ambient_authority()).map_err(|error| {
        Problem::unavailable(format!("the script's directory cannot be opened: {}", error.kind()))
    })
}

/// What can be said about a path without looking at the disk.
pub(super) fn check_relative_path(what: &str, path: &str) -> Result<()> {
    if path.contains('\0') {
        return Err(Problem::bad_request("the path contains a NUL byte"));
    }
    let mut depth = 0i64;
    for component in Path::new(path).components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir => depth -= 1,
            Component::RootDir | Component::Prefix(_) => return Err(escape_problem(what)),
        }
        if depth < 0 {
            return Err(escape_problem(what));
        }
    }
    Ok(())
}

fn escape_problem(what: &str) -> Problem {
    Problem::denied(format!("{what} may not leave the script's directory"))
        .with_hint("use paths relative to the script, such as data/items.json")
}
