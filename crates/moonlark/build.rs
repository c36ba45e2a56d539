//! How the binary of the release profile is linked, where the linker can.
//!
//! Three things that change nothing in what the program does: functions that every server
//! needs lie together (`link_order.txt`, written by `cargo x bench link-order`), addresses
//! that the loader fills in are listed in a short form, and the C++ library is in the binary.
//! Docs: `docs/decisions.md`, "Start and memory".

// A build script speaks to cargo on stdout, and writes only where cargo says.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)]

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const LINK_ORDER_FILE: &str = "link_order.txt";
const CPP_LIBRARY: &str = "libstdc++.a";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={LINK_ORDER_FILE}");
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    let is_glibc = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    let is_native = env::var_os("TARGET") == env::var_os("HOST");
    let (Some(out), Some(here)) = (env::var_os("OUT_DIR"), env::var_os("CARGO_MANIFEST_DIR"))
    else {
        return;
    };
    if !is_glibc || !is_native || !is("PROFILE", "release") {
        return;
    }
    let out = PathBuf::from(out);
    let order = Path::new(&here).join(LINK_ORDER_FILE);
    // Names that are no longer there are no mistake.
    let in_order = [
        format!("-Wl,--symbol-ordering-file={}", order.display()),
        "-Wl,--no-warn-symbol-ordering".to_owned(),
    ];
    let short_relocations = ["-Wl,-z,pack-relative-relocs".to_owned()];
    for arguments in [&in_order[..], &short_relocations[..]] {
        if linker_takes(arguments, &out) {
            for argument in arguments {
                println!("cargo:rustc-link-arg-bins={argument}");
            }
        }
    }
    if let Some(folder) = static_cpp_library(&out) {
        println!("cargo:rustc-link-search=native={}", folder.display());
    }
}

/// Whether a program can be linked with these, by whatever links the binary, and runs.
fn linker_takes(arguments: &[String], out: &Path) -> bool {
    let (source, program) = (out.join("probe.rs"), out.join("probe"));
    if std::fs::write(&source, "fn main() {}\n").is_err() {
        return false;
    }
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.arg(&source).arg("-o").arg(&program).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("-Clinker=");
        option.push(linker);
        rustc.arg(option);
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    rustc.args(arguments.iter().map(|argument| format!("-Clink-arg={argument}")));
    let succeeds = |command: &mut Command| command.status().is_ok_and(|status| status.success());
    succeeds(&mut rustc) && succeeds(&mut Command::new(&program))
}

/// A folder in which the linker finds the C++ library to be linked in, before it finds the
/// one to be loaded.
fn static_cpp_library(out: &Path) -> Option<PathBuf> {
    let name = format!("-print-file-name={CPP_LIBRARY}");
    let said = Command::new("cc").arg(name).output().ok()?;
    let library = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim());
    // Where there is none, the compiler says the bare name.
    if !library.is_absolute() || !library.is_file() {
        return None;
    }
    let folder = out.join("static");
    std::fs::create_dir_all(&folder).ok()?;
    let link = folder.join(CPP_LIBRARY);
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(library, link).ok()?;
    Some(folder)
}
