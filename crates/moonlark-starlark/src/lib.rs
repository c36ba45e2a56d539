//! The Starlark engine: extensions, run in worker processes.
//!
//! Starlark's own limits are soft: a script can take memory that nobody counts,
//! or stay in a builtin that nobody can interrupt. So scripts run in processes
//! of the same binary ([`worker`]) that can be killed at any moment, and only
//! their own call suffers. What a script asks of the world comes back here and
//! is answered by the gateway: grants and limits never leave it, nor do secrets
//! but those in the script's own configuration.
//!
//! Only this crate knows Starlark, and only [`worker`] its values.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod engine;
mod extension;
mod load_paths;
mod starlark_test_file;
pub mod worker;
mod worker_process;
mod worker_protocol;

pub use engine::StarlarkEngine;
pub use extension::{ExtensionFile, LoadedExtension};
pub use load_paths::resolve_load;
pub use moonlark_core::script_snapshot::ScriptFileReader;
pub use starlark_test_file::StarlarkTestFile;
pub use worker_protocol::{
    MAX_EXTENSION_DATA_BYTES, MAX_EXTENSION_FILES, MAX_STARLARK_SOURCE_BYTES,
};
