//! `.moonlark/secrets.env`: values of `${NAME}` that are not in the environment, such
//! as the secrets that `moonlark import` found. Read with every configuration.
//!
//! No value is ever shown, and nobody but the user can read the file.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::{Problem, Result, SourceLocation};

use crate::env_text::{parse_env_text, render_variable};
use crate::state_folder::{STATE_FOLDER_NAME, create_state_folder, state_folder_path};
use crate::user_text_file::UserTextFile;

const SECRETS_FILE_NAME: &str = "secrets.env";

const SECRETS_FILE_HEADER: &str = "# Values of ${NAME} in moonlark.toml, for this user alone. The environment overrides this file.\n";

/// The variables of the file, by name.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretsFile(Arc<BTreeMap<String, String>>);

impl SecretsFile {
    /// That of the project in `root`, and what is wrong with it. A file that is not
    /// there is an empty one.
    pub fn read(root: &Path) -> (SecretsFile, Vec<Problem>) {
        let path = secrets_file_path(root);
        restrict_to_owner(&path);
        let found = match UserTextFile::read(&path, secrets_file_display_path()) {
            Ok(found) => found,
            Err(problem) => return (SecretsFile::default(), vec![problem]),
        };
        let parsed = parse_env_text(found.text());
        let problem = |line| {
            Problem::bad_config("the line is no variable")
                .at_location(SourceLocation::at_line(secrets_file_display_path(), line))
                .with_hint("variables are written NAME=value, one in each line")
        };
        let problems = parsed.bad_lines.into_iter().map(problem).collect();
        (SecretsFile(Arc::new(parsed.variables.into_iter().collect())), problems)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl fmt::Debug for SecretsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let redacted = self.0.keys().map(|name| (name, format_args!("[redacted]")));
        f.debug_map().entries(redacted).finish()
    }
}

pub fn secrets_file_path(root: &Path) -> PathBuf {
    state_folder_path(root).join(SECRETS_FILE_NAME)
}

/// As people know it.
pub fn secrets_file_display_path() -> String {
    format!("{STATE_FOLDER_NAME}/{SECRETS_FILE_NAME}")
}

/// Add what the file does not have yet. Entries that it has stay as they are.
pub fn add_secrets(root: &Path, new: &BTreeMap<String, String>) -> Result<()> {
    let (there, _) = SecretsFile::read(root);
    let lines: String = new
        .iter()
        .filter(|(name, _)| there.get(name).is_none())
        .map(|(name, value)| render_variable(name, value))
        .collect();
    if lines.is_empty() {
        return Ok(());
    }
    create_state_folder(&state_folder_path(root)).map_err(|error| {
        Problem::unavailable(format!("the folder cannot be made: {error}"))
            .at_location(SourceLocation::in_file(STATE_FOLDER_NAME))
            .with_hint("secrets are kept there; check that this user may write to the project")
    })?;
    let path = secrets_file_path(root);
    // What a link leads to may be a file that others read, or that git tracks.
    if path.symlink_metadata().is_ok_and(|it| !it.is_file()) {
        return Err(Problem::unavailable(
            "this is a link or no regular file, so no secret is put there",
        )
        .at_location(SourceLocation::in_file(secrets_file_display_path()))
        .with_hint("remove it, and import again"));
    }
    let file = UserTextFile::read(&path, secrets_file_display_path())?;
    let before = match &file.text {
        None => SECRETS_FILE_HEADER.to_owned(),
        Some(text) if text.is_empty() || text.ends_with('\n') => text.clone(),
        Some(text) => format!("{text}\n"),
    };
    file.replace_text(&format!("{before}{lines}"), true)
}

fn restrict_to_owner(path: &Path) {
    let Ok(there) = fs::metadata(path) else { return };
    if there.is_file() && there.mode() & 0o077 != 0 {
        // Of another user it is not ours to change; reading goes on either way.
        let _ = fs::set_permissions(path, Permissions::from_mode(0o600));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_written_through_a_link() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(state_folder_path(root.path())).unwrap();
        fs::write(root.path().join("notes.md"), "notes\n").unwrap();
        std::os::unix::fs::symlink("../notes.md", secrets_file_path(root.path())).unwrap();
        let problem = add_secrets(root.path(), &some(&[("TOKEN", "s3cret")])).unwrap_err();
        assert!(problem.message.contains("link"), "{problem}");
        assert_eq!(fs::read_to_string(root.path().join("notes.md")).unwrap(), "notes\n");
    }

    fn some(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn secrets_are_added_for_the_user_alone_and_none_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        add_secrets(root.path(), &some(&[("A", "one"), ("B", "it's")])).unwrap();
        add_secrets(root.path(), &some(&[("A", "other"), ("C", "three")])).unwrap();
        let (secrets, problems) = SecretsFile::read(root.path());
        assert_eq!(problems, []);
        assert_eq!(*secrets.0, some(&[("A", "one"), ("B", "it's"), ("C", "three")]));
        let path = secrets_file_path(root.path());
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().mode() & 0o777, 0o700);
        assert!(path.with_file_name(".gitignore").is_file());
        assert_eq!(
            format!("{secrets:?}"),
            r#"{"A": [redacted], "B": [redacted], "C": [redacted]}"#
        );
    }

    #[test]
    fn a_file_that_its_user_wrote_is_closed_and_its_bad_lines_are_named() {
        let root = tempfile::tempdir().unwrap();
        let path = secrets_file_path(root.path());
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, "A=1\nhunter2\nB=2").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let (secrets, problems) = SecretsFile::read(root.path());
        assert_eq!((secrets.get("A"), secrets.get("B")), (Some("1"), Some("2")));
        let said: Vec<String> = problems.iter().map(Problem::to_line).collect();
        assert_eq!(said, [".moonlark/secrets.env:2: the line is no variable"]);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        add_secrets(root.path(), &some(&[("C", "3")])).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "A=1\nhunter2\nB=2\nC=3\n");
    }
}
