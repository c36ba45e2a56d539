//! Sources of `${…}`: a variable of the environment, an entry of `.moonlark/secrets.env`,
//! or a file.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use moonlark_core::secret::is_secret_name;
use moonlark_state::EnvLookup;
use moonlark_state::secrets_file::SecretsFile;

/// `${file:PATH}` names a file.
pub(super) const FILE_REFERENCE_PREFIX: &str = "file:";

/// No secret that a person or a machine keeps in a file is larger.
const MAX_SECRET_FILE_BYTES: u64 = 64 * 1024;

/// Where values come from, for one file.
pub(super) struct ValueSources<'a> {
    env: EnvLookup<'a>,
    secrets: SecretsFile,
    /// What paths are relative to.
    root: PathBuf,
    /// Files that were asked for, there or not.
    asked: RefCell<BTreeSet<PathBuf>>,
}

/// A variable and what stands in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VariableUse {
    pub(super) name: String,
    pub(super) value: String,
    /// It is secret for sure: by its name, or since it was kept where secrets are.
    pub(super) is_secret: bool,
}

impl VariableUse {
    pub(super) fn from_default(name: &str, default: &str) -> Self {
        Self::new(name, default.to_owned(), false)
    }

    fn new(name: &str, value: String, kept_as_secret: bool) -> Self {
        let is_secret = kept_as_secret || is_secret_name(name);
        Self { name: name.to_owned(), value, is_secret }
    }
}

impl<'a> ValueSources<'a> {
    pub(super) fn new(env: EnvLookup<'a>, secrets: SecretsFile, root: &Path) -> Self {
        Self { env, secrets, root: root.to_owned(), asked: RefCell::default() }
    }

    /// The environment comes first: whoever starts Moonlark has the last word.
    pub(super) fn find_variable(&self, name: &str) -> Option<VariableUse> {
        let of_environment = || Some(VariableUse::new(name, (self.env)(name)?, false));
        let kept = || Some(VariableUse::new(name, self.secrets.get(name)?.to_owned(), true));
        of_environment().or_else(kept)
    }

    /// The content of a file without the newline at its end, or why there is none.
    pub(super) fn read_file_value(&self, path: &str) -> Result<VariableUse, String> {
        let text = self.read_text_file(path, MAX_SECRET_FILE_BYTES)?;
        let value = text.trim_end_matches(['\r', '\n']).to_owned();
        Ok(VariableUse::new(&format!("{FILE_REFERENCE_PREFIX}{path}"), value, true))
    }

    pub(super) fn read_text_file(&self, path: &str, most: u64) -> Result<String, String> {
        let path = self.root.join(path);
        let text = read_regular_file(&path, most);
        self.asked.borrow_mut().insert(path);
        text
    }

    /// The files whose changes matter.
    pub(super) fn requested_files(&self) -> Vec<PathBuf> {
        self.asked.borrow().iter().cloned().collect()
    }
}

fn read_regular_file(path: &Path, most: u64) -> Result<String, String> {
    let said = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
        _ => error.to_string(),
    };
    // Before it is opened: a pipe would wait for somebody to write.
    if !path.metadata().map_err(said)?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(said)?;
    if bytes.len() as u64 > most {
        return Err(format!("it is larger than {} KB", most / 1024));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}
