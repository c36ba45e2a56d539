//! The executable and the environment of a command.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use moonlark_core::grant::AllowedExec;
use moonlark_core::value::shorten_text;
use moonlark_core::{Problem, Result, Value};

use crate::args::{ScriptList, ScriptTable};

/// The folders of Moonlark's own `PATH`, as it was at first use, without those
/// that depend on the current folder.
static PATH_FOLDERS: LazyLock<Vec<PathBuf>> =
    LazyLock::new(|| split_path_variable(env::var_os("PATH")));

fn split_path_variable(path: Option<OsString>) -> Vec<PathBuf> {
    let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&path).filter(|folder| folder.is_absolute()).collect()
}

/// The program's file. Neither the script's folder nor Moonlark's is looked at.
pub(super) fn find_program(allowed: &AllowedExec) -> Result<PathBuf> {
    let command = allowed.command();
    if Path::new(command).is_absolute() {
        let path = PathBuf::from(command);
        return if is_program(&path) {
            Ok(path)
        } else {
            Err(not_installed_problem(format!("{command} is not a program on this machine")))
        };
    }
    PATH_FOLDERS.iter().map(|folder| folder.join(command)).find(|path| is_program(path)).ok_or_else(
        || {
            not_installed_problem(format!("{command} is not installed"))
                .with_hint("install it in a folder of the PATH that Moonlark is started with")
        },
    )
}

fn not_installed_problem(message: String) -> Problem {
    Problem::unavailable(message).with_retryable(false)
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Strings as the system takes them: no byte of theirs ends them.
pub(super) fn to_os_arguments(args: Option<ScriptList>) -> Result<Vec<OsString>> {
    let items = args.unwrap_or_default().0.into_iter().enumerate();
    items.map(|(index, item)| to_os_string(item, || format!("args[{}]", index + 1))).collect()
}

/// What Moonlark's environment has that any program may need, and what the
/// script adds. No token, no address, no setting of Moonlark's is in it.
pub(super) fn build_environment(own: Option<ScriptTable>) -> Result<Vec<(OsString, OsString)>> {
    let mut all: Vec<(OsString, OsString)> =
        env::vars_os().filter(|(name, _)| is_inherited_variable(name)).collect();
    if let Ok(path) = env::join_paths(&*PATH_FOLDERS) {
        all.push(("PATH".into(), path));
    }
    for (name, value) in own.unwrap_or_default().0 {
        let shown = shorten_text(&name).into_owned();
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(Problem::bad_request(format!("{shown:?} cannot be a variable's name")));
        }
        if is_loader_setting(&name) {
            return Err(Problem::denied(format!("exec.run may not set {shown}"))
                .with_hint("it would put other code into the command that was allowed"));
        }
        let value = to_os_string(value, || format!("env.{shown}"))?;
        all.retain(|(other, _)| *other != *name);
        all.push((name.into(), value));
    }
    Ok(all)
}

fn is_inherited_variable(name: &OsStr) -> bool {
    matches!(name.as_bytes(), b"HOME" | b"LANG" | b"TMPDIR" | b"TZ")
        || name.as_bytes().starts_with(b"LC_")
}

/// Read by the system before a program's own code runs: they would decide what
/// that code is, and the supervisor's too.
fn is_loader_setting(name: &str) -> bool {
    ["LD_", "DYLD_", "GLIBC_"].iter().any(|prefix| name.starts_with(prefix))
}

fn to_os_string(value: Value, what: impl Fn() -> String) -> Result<OsString> {
    let bytes = match value {
        Value::Str(text) => text.into_bytes(),
        Value::Bytes(bytes) => bytes,
        other => {
            let kind = other.kind();
            return Err(Problem::bad_request(format!("{} must be a string, got {kind}", what())));
        }
    };
    if bytes.contains(&0) {
        return Err(Problem::bad_request(format!("{} contains a NUL byte", what())));
    }
    Ok(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(items: serde_json::Value) -> Option<ScriptList> {
        Some(Value::from_json(items).unwrap().deserialize_into().unwrap())
    }

    fn table(fields: serde_json::Value) -> Option<ScriptTable> {
        Some(Value::from_json(fields).unwrap().deserialize_into().unwrap())
    }

    #[test]
    fn only_absolute_folders_are_looked_at() {
        let found = split_path_variable(Some(":.:/bin:bin:../bin::/usr/bin:~/bin:".into()));
        assert_eq!(found, [Path::new("/bin"), Path::new("/usr/bin")]);
        assert_eq!(split_path_variable(None).len(), 3);
    }

    #[test]
    fn arguments_are_strings_and_stay_as_they_are() {
        let args = json!(["-rf", "$(id); `x` && *", "", "ä\n"]);
        let expected: Vec<OsString> =
            ["-rf", "$(id); `x` && *", "", "ä\n"].map(OsString::from).into();
        assert_eq!(to_os_arguments(list(args)).unwrap(), expected);
        let message = |args| to_os_arguments(list(args)).unwrap_err().message;
        assert_eq!(message(json!(["a", "b\u{0}c"])), "args[2] contains a NUL byte");
        assert_eq!(message(json!([5])), "args[1] must be a string, got integer");
    }

    #[test]
    fn a_script_sets_variables_but_not_the_loaders() {
        let all = build_environment(table(json!({"A": "1", "HOME": "/x", "PATH": "/y"}))).unwrap();
        let get = |name: &str| {
            let mut found = all.iter().filter(|(other, _)| *other == *name);
            let value = found.next().map(|(_, value)| value.to_str().unwrap());
            assert!(found.next().is_none(), "{name} twice");
            value
        };
        assert_eq!((get("A"), get("HOME"), get("PATH")), (Some("1"), Some("/x"), Some("/y")));
        let message = |env| build_environment(table(env)).unwrap_err().message;
        assert_eq!(message(json!({"LD_PRELOAD": "x.so"})), "exec.run may not set LD_PRELOAD");
        assert_eq!(message(json!({"A=B": "x"})), "\"A=B\" cannot be a variable's name");
        assert_eq!(message(json!({"": "x"})), "\"\" cannot be a variable's name");
        assert_eq!(message(json!({"A": "x\u{0}"})), "env.A contains a NUL byte");
        assert_eq!(message(json!({"A": true})), "env.A must be a string, got boolean");
    }
}
