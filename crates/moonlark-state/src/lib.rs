//! State on disk: the project's folder `.moonlark/`, and the files that people and
//! other programs edit too.
//!
//! What a file means is known where it is used; here is only how it is kept. This
//! crate knows no tool, no protocol and no configuration key.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod env_text;
pub mod secrets_file;
pub mod state_folder;
pub mod user_text_file;

pub use env_text::EnvLookup;
