//! Text files that people and other programs edit too: read whole, replaced in one
//! step, kept beside under another name before.
//!
//! What the text means is not known here.

use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use moonlark_core::{Problem, Result, SourceLocation};

use crate::atomic_file::{PRIVATE_FILE_MODE, create_copy, write_private_file, write_user_file};

/// Claude Code keeps conversations in the same file as its servers. Nothing that
/// a person wrote is larger.
const MAX_USER_FILE_BYTES: u64 = 32 * 1024 * 1024;

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// What others than the owner may do.
const SHARED_MODE_BITS: u32 = 0o077;

/// A file as it was found.
pub struct UserTextFile {
    pub path: PathBuf,
    /// The path as the reader knows it.
    pub label: String,
    /// Without a byte order mark; none when there is no such file.
    pub text: Option<String>,
    has_mark: bool,
}

impl UserTextFile {
    pub fn read(path: &Path, label: String) -> Result<UserTextFile> {
        let found = |text: Option<String>, has_mark| UserTextFile {
            path: path.to_owned(),
            label: label.clone(),
            text,
            has_mark,
        };
        let Some(bytes) = read_bytes(path, &label)? else { return Ok(found(None, false)) };
        let text = String::from_utf8(bytes).map_err(|_| {
            Problem::bad_config("the file is not UTF-8 text")
                .at_location(SourceLocation::in_file(&label))
                .with_hint("nothing was changed; save it as UTF-8 and run this again")
        })?;
        Ok(match text.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) => found(Some(rest.to_owned()), true),
            None => found(Some(text), false),
        })
    }

    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }

    /// Put `text` in its place, if it is still as it was found. With `private`, only this
    /// user may read it from then on.
    pub fn replace_text(&self, text: &str, private: bool) -> Result<()> {
        let now = UserTextFile::read(&self.path, self.label.clone())?;
        if now.text != self.text {
            return Err(Problem::unavailable("the file was changed by another program just now")
                .at_location(SourceLocation::in_file(&self.label))
                .with_hint("nothing was changed by this command; run it again"));
        }
        let (target, _) = self.writable_target()?;
        let bytes = format!("{}{text}", self.byte_order_mark()).into_bytes();
        let written = if private {
            write_private_file(&target, bytes)
        } else {
            write_user_file(&target, bytes)
        };
        written.map_err(|error| self.file_problem("write", &error))
    }

    /// Whether others than this user may do anything with it.
    pub fn is_shared(&self) -> bool {
        let file = fs::metadata(&self.path);
        file.is_ok_and(|file| file.permissions().mode() & SHARED_MODE_BITS != 0)
    }

    /// Leave it to this user alone.
    pub fn make_private(&self) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        let private = Permissions::from_mode(PRIVATE_FILE_MODE);
        let made = fs::set_permissions(&self.path, private);
        made.map_err(|error| self.file_problem("change the permissions of", &error))
    }

    /// Give it the permissions that its copy kept.
    pub fn restore_permissions(&self, copy: &UserTextFile) -> Result<()> {
        let Ok(kept) = fs::metadata(&copy.path) else { return Ok(()) };
        let restored = fs::set_permissions(&self.path, kept.permissions());
        restored.map_err(|error| self.file_problem("change the permissions of", &error))
    }

    /// Keep it as it is under another name, with `private` for this user alone. The first
    /// copy stays: it is the one from before anything was changed.
    pub fn create_backup(&self, private: bool) -> Result<()> {
        // A copy of what will not be changed would only lie about.
        let (_, permissions) = self.writable_target()?;
        let (Some(text), Some(mut permissions)) = (&self.text, permissions) else { return Ok(()) };
        if private {
            permissions.set_mode(PRIVATE_FILE_MODE);
        }
        let bytes = format!("{}{text}", self.byte_order_mark()).into_bytes();
        create_copy(&self.backup_path(), &bytes, permissions)
            .map_err(|error| self.file_problem("copy", &error))
            .map(|_| ())
    }

    pub fn read_backup(&self) -> Result<UserTextFile> {
        UserTextFile::read(&self.backup_path(), format!("{}.moonlark-backup", self.label))
    }

    pub fn backup_path(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".moonlark-backup");
        name.into()
    }

    pub fn remove_file(&self) -> Result<()> {
        fs::remove_file(&self.path).map_err(|error| self.file_problem("remove", &error))
    }

    pub fn remove_if_exists(&self) -> Result<()> {
        if self.text.is_some() { self.remove_file() } else { Ok(()) }
    }

    fn byte_order_mark(&self) -> &'static str {
        if self.has_mark { BYTE_ORDER_MARK } else { "" }
    }

    /// The file to write, and its permissions if it is there.
    fn writable_target(&self) -> Result<(PathBuf, Option<Permissions>)> {
        let target = self.link_target()?;
        let permissions = fs::metadata(&target).ok().map(|file| file.permissions());
        // Renaming over it would work all the same, but its owner said no.
        if permissions.as_ref().is_some_and(Permissions::readonly) {
            return Err(Problem::unavailable("the file is read-only")
                .at_location(SourceLocation::in_file(&self.label))
                .with_hint("nothing was changed; make it writable if you want it changed"));
        }
        Ok((target, permissions))
    }

    /// What is written when the path is a link: the file it leads to.
    fn link_target(&self) -> Result<PathBuf> {
        match fs::symlink_metadata(&self.path) {
            Ok(file) if file.is_symlink() => fs::canonicalize(&self.path).map_err(|error| {
                self.file_problem("follow", &error).with_hint("it is a link; see where it leads")
            }),
            _ => Ok(self.path.clone()),
        }
    }

    fn file_problem(&self, what: &str, error: &io::Error) -> Problem {
        io_problem(what, &self.label, error)
    }
}

fn read_bytes(path: &Path, label: &str) -> Result<Option<Vec<u8>>> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_problem("read", label, &error)),
    };
    // A pipe, say, would never end.
    if !file.metadata().map_err(|error| io_problem("read", label, &error))?.is_file() {
        return Err(Problem::bad_request("this is not a file")
            .at_location(SourceLocation::in_file(label))
            .with_hint("name the file that has the servers"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_USER_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| io_problem("read", label, &error))?;
    if bytes.len() as u64 > MAX_USER_FILE_BYTES {
        return Err(Problem::limit_exceeded("the file is larger than 32 MB")
            .at_location(SourceLocation::in_file(label))
            .with_hint("copy the part with the servers into a file of its own"));
    }
    Ok(Some(bytes))
}

fn io_problem(what: &str, label: &str, error: &io::Error) -> Problem {
    Problem::unavailable(format!("cannot {what} it: {error}"))
        .at_location(SourceLocation::in_file(label))
        .with_hint("check that the file and its folder are this user's to read and write")
}
