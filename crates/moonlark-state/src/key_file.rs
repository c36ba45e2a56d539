//! A key file: random bytes that only this user can read, made once.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::atomic_file::create_private_file;

/// Far more than a key has.
const MAX_KEY_FILE_BYTES: u64 = 1024;

/// The key at `path`, made with so many bytes if there is none. What it is called in the
/// error about one that others can read is `name`.
pub fn read_or_make_key(path: &Path, key_bytes: usize, name: &str) -> io::Result<Vec<u8>> {
    match read_key(path, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let mut key = vec![0; key_bytes];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    // Whoever else makes one at the same time ends up with the same.
    if create_private_file(path, &key)? { Ok(key) } else { read_key(path, name) }
}

fn read_key(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        let message = format!("others can read {name}: `chmod 600` keeps it");
        return Err(io::Error::other(message));
    }
    let mut bytes = Vec::new();
    file.take(MAX_KEY_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
