//! State on disk: the project's folder `.moonlark/`, files that are replaced whole, locks
//! between processes, SQLite files, and the files that people and other programs edit too.
//!
//! What a file means is known where it is used; here is only how it is kept. This
//! crate knows no tool, no protocol and no configuration key.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

pub mod atomic_file;
pub mod env_text;
mod key_file;
mod lock_file;
pub mod secrets_file;
pub mod state_database;
pub mod state_folder;
pub mod user_text_file;

pub use atomic_file::{create_private_file, write_private_file, write_user_file};
pub use env_text::EnvLookup;
pub use key_file::read_or_make_key;
pub use lock_file::LockFile;
