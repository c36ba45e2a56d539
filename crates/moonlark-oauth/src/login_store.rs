//! The login store: one file per upstream, for this user's eyes only.
//!
//! A file is replaced whole or not at all. One that others can read is not
//! used: what is in it may be known to them. Several processes may share the
//! files, so whoever is going to change one takes its lock first.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use moonlark_core::{Problem, Result};
use moonlark_state::state_folder::create_state_folder;
use moonlark_state::{LockFile, write_private_file};
use tokio::time::Instant;

use crate::login_record::LoginRecord;

/// Far more than tokens need.
const MAX_LOGIN_FILE_BYTES: u64 = 1 << 20;
/// Longer than an authorization server may take to answer.
const LOGIN_LOCK_TIMEOUT: Duration = Duration::from_secs(45);
const LOGIN_LOCK_POLL_INTERVAL: Duration = Duration::from_millis(25);

#[derive(Debug, Clone)]
pub(super) struct LoginStore {
    dir: PathBuf,
    upstream: String,
}

impl LoginStore {
    pub(super) fn new(state_dir: &Path, upstream: &str) -> Self {
        Self { dir: state_dir.join("auth"), upstream: upstream.to_owned() }
    }

    pub(super) fn load_record(&self) -> Result<Option<LoginRecord>> {
        let path = self.file_path("json");
        let unusable = |error| self.unusable_login_problem(&path, error);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(error)),
        };
        if file.metadata().map_err(unusable)?.permissions().mode() & 0o077 != 0 {
            let message = format!("the login in {} can be read by others", path.display());
            return Err(Problem::denied(message).with_hint(format!(
                "run `moonlark logout {0}` and `moonlark login {0}`, or keep it with `chmod 600 {1}`",
                self.upstream,
                path.display()
            )));
        }
        let mut text = Vec::new();
        file.take(MAX_LOGIN_FILE_BYTES).read_to_end(&mut text).map_err(unusable)?;
        // What the parser says could quote a token.
        let record: LoginRecord = serde_json::from_slice(&text).map_err(|_| {
            Problem::unavailable(format!("the login in {} is damaged", path.display()))
                .with_retryable(false)
                .with_hint(format!("run `moonlark login {}`", self.upstream))
        })?;
        Ok(Some(record).filter(|record| record.upstream == self.upstream))
    }

    pub(super) fn save_record(&self, record: &LoginRecord) -> Result<()> {
        let path = self.file_path("json");
        let text = serde_json::to_vec_pretty(record).map_err(io::Error::from);
        let written = create_state_folder(&self.dir)
            .and(text)
            .and_then(|text| write_private_file(&path, text));
        written.map_err(|error| {
            Problem::unavailable(format!("{} cannot be written: {error}", path.display()))
                .with_hint("check that the folder can be written to by this user")
        })
    }

    /// Whether there was one.
    pub(super) fn remove_record(&self) -> Result<bool> {
        let path = self.file_path("json");
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => {
                Err(Problem::unavailable(format!("{} cannot be removed: {error}", path.display())))
            }
        }
    }

    /// Held while a login is renewed.
    pub(super) async fn acquire_lock(&self) -> Result<LockFile> {
        let path = self.file_path("lock");
        let unusable = |error| self.unusable_login_problem(&path, error);
        create_state_folder(&self.dir).map_err(unusable)?;
        let give_up = Instant::now() + LOGIN_LOCK_TIMEOUT;
        while Instant::now() < give_up {
            if let Some(lock) = LockFile::try_acquire(&path).map_err(unusable)? {
                return Ok(lock);
            }
            tokio::time::sleep(LOGIN_LOCK_POLL_INTERVAL).await;
        }
        Err(Problem::unavailable(format!(
            "another process has been renewing the login of {} for {} seconds",
            self.upstream,
            LOGIN_LOCK_TIMEOUT.as_secs()
        )))
    }

    fn file_path(&self, extension: &str) -> PathBuf {
        self.dir.join(format!("{}.{extension}", safe_file_name(&self.upstream)))
    }

    fn unusable_login_problem(&self, path: &Path, error: io::Error) -> Problem {
        Problem::unavailable(format!(
            "the login of {} cannot be used: {}: {error}",
            self.upstream,
            path.display()
        ))
        .with_retryable(false)
        .with_hint("check that the file can be read and written by this user")
    }
}

/// Names are the operator's, so they may hold what a file name must not.
fn safe_file_name(name: &str) -> String {
    let mut safe = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => safe.push(byte.into()),
            other => safe.push_str(&format!("%{other:02x}")),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;
    use crate::login_record::{OAuthClient, OAuthTokens};

    fn record(upstream: &str, token: &str) -> LoginRecord {
        LoginRecord {
            upstream: upstream.into(),
            resource: "https://mcp.example/mcp".parse().unwrap(),
            issuer: "https://login.example".into(),
            client: OAuthClient {
                id: "me".into(),
                secret: Some("s3cret".into()),
                redirect_uri: "http://127.0.0.1:1/callback".into(),
                registered: true,
            },
            tokens: Some(OAuthTokens {
                access: token.into(),
                refresh: Some("again".into()),
                expires_at: Some(17),
                issued_at: 3,
                scopes: vec!["read".into()],
            }),
            wanted: Vec::new(),
            revocation: None,
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_login_is_kept_for_this_user_only() {
        let state = tempfile::tempdir().unwrap();
        let store = LoginStore::new(state.path(), "git");
        assert_eq!(store.load_record().unwrap(), None);
        store.save_record(&record("git", "one")).unwrap();
        store.save_record(&record("git", "two")).unwrap();
        assert_eq!(store.load_record().unwrap(), Some(record("git", "two")));

        let dir = state.path().join("auth");
        assert_eq!(mode(&dir), 0o700);
        assert_eq!(mode(&dir.join("git.json")), 0o600);
        assert!(fs::read_to_string(dir.join(".gitignore")).unwrap().ends_with("\n*\n"));
        let mut names: Vec<_> =
            fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".gitignore", "git.json"]);

        assert!(store.remove_record().unwrap());
        assert!(!store.remove_record().unwrap());
        assert_eq!(store.load_record().unwrap(), None);
    }

    #[test]
    fn a_login_that_others_can_read_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let store = LoginStore::new(state.path(), "git");
        store.save_record(&record("git", "one")).unwrap();
        let path = state.path().join("auth/git.json");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let problem = store.load_record().unwrap_err();
        assert!(problem.message.contains("can be read by others"), "{problem}");
        // The next login mends it.
        store.save_record(&record("git", "two")).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn a_damaged_login_is_a_problem_that_quotes_nothing() {
        let state = tempfile::tempdir().unwrap();
        let store = LoginStore::new(state.path(), "git");
        store.save_record(&record("git", "one")).unwrap();
        fs::write(state.path().join("auth/git.json"), "{\"tokens\": \"hunter22").unwrap();
        let problem = store.load_record().unwrap_err().to_string();
        assert!(problem.contains("damaged") && !problem.contains("hunter22"), "{problem}");
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        for (name, file) in [
            ("git-hub_2", "git-hub_2"),
            ("../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd"),
            ("größe", "gr%c3%b6%c3%9fe"),
            (".", "%2e"),
        ] {
            assert_eq!(safe_file_name(name), file);
        }
    }

    #[tokio::test]
    async fn only_one_at_a_time_holds_the_lock() {
        let state = tempfile::tempdir().unwrap();
        let store = LoginStore::new(state.path(), "git");
        let first = store.acquire_lock().await.unwrap();
        let path = state.path().join("auth/git.lock");
        assert!(LockFile::is_held(&path));
        drop(first);
        store.acquire_lock().await.unwrap();
        assert_eq!(mode(&path), 0o600);
    }
}
