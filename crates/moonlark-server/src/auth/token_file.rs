//! Bearer tokens that were handed out here, in `.moonlark/tokens.json`: whose
//! they are, and what they are for. Of the tokens themselves only hashes are kept.
//!
//! The file is replaced whole. Whoever asks looks first whether it is still the
//! one that was read, so a token that was removed is gone with the next request.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use moonlark_core::nearest::nearest_name;
use moonlark_core::{Problem, Result};
use moonlark_gateway::call::{ANONYMOUS_CALLER, LOCAL_CALLER};
use moonlark_state::atomic_file::create_private_folder;
use moonlark_state::{LockFile, write_private_file};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::unix_time;

/// What ours begin with, so that scanners for leaked secrets know them.
const TOKEN_PREFIX: &str = "mlk_";
const MAX_TOKENS: usize = 1000;
/// Far more than that many need.
const MAX_TOKEN_FILE_BYTES: u64 = 1 << 20;

/// One token, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredToken {
    pub name: String,
    /// SHA-256 of the token. Gone with the token, while what its holder could
    /// not reach stays out of reach for runs that they left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<TokenHash>,
    /// Patterns of the tools that there are for its holder; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Whether its holder may see and decide what others may not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub operator: bool,
    /// In seconds since 1970.
    pub created: u64,
}

/// SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenHash([u8; 32]);

/// A weak token can be guessed from its hash.
impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hash]")
    }
}

/// All tokens, as they were at one moment.
#[derive(Default)]
pub(crate) struct TokenTable {
    pub(crate) held: Vec<StoredToken>,
    /// Whether there is a file at all.
    pub(crate) is_there: bool,
    pub(crate) problem: Option<Problem>,
    stamp: Option<TokenFileStamp>,
}

/// Tells one version of the file from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TokenFileStamp {
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

/// The file.
#[derive(Debug, Clone)]
pub struct TokenFile(PathBuf);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFileContent {
    tokens: Vec<StoredToken>,
}

impl TokenFile {
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Hand one out. It is returned here and nowhere else.
    pub fn add_token(&self, name: &str, tools: Vec<String>, operator: bool) -> Result<String> {
        check_token_name(name).map_err(Problem::bad_request)?;
        let token = generate_token()?;
        let hash = Some(TokenHash::from_token(&token));
        let new = StoredToken {
            name: name.to_owned(),
            hash,
            tools,
            operator,
            created: unix_time().as_secs(),
        };
        self.edit_tokens(|held| {
            if held.iter().any(|it| it.name == name && it.hash.is_some()) {
                let message = format!("there is a token of the name {name} already");
                return Err(Problem::bad_request(message).with_hint(format!(
                    "choose another name, or run `moonlark token remove {name}` first"
                )));
            }
            held.retain(|it| it.name != name);
            if held.len() >= MAX_TOKENS {
                return Err(Problem::limit_exceeded(format!(
                    "there are {MAX_TOKENS} tokens already"
                ))
                .with_hint("remove some that nobody uses: `moonlark token list`"));
            }
            held.push(new);
            Ok(())
        })?;
        Ok(token)
    }

    /// All that are good, in the order they were made.
    pub fn list_tokens(&self) -> Result<Vec<StoredToken>> {
        let mut held = self.read_tokens()?.unwrap_or_default();
        held.retain(|it| it.hash.is_some());
        Ok(held)
    }

    /// How many are left.
    pub fn remove_token(&self, name: &str) -> Result<usize> {
        let mut left = 0;
        self.edit_tokens(|held| {
            let is_good = |it: &&mut StoredToken| it.hash.is_some();
            let Some(found) = held.iter_mut().filter(is_good).find(|it| it.name == name) else {
                let names = held.iter().filter(|it| it.hash.is_some());
                let near = nearest_name(name, names.map(|it| it.name.as_str()));
                let message = format!("there is no token of the name {name}");
                return Err(Problem::not_found(message).with_hint(match near {
                    Some(near) => format!("did you mean {near}?"),
                    None => "`moonlark token list` shows which there are".to_owned(),
                }));
            };
            found.hash = None;
            held.retain(|it| it.hash.is_some() || !it.tools.is_empty());
            left = held.iter().filter(|it| it.hash.is_some()).count();
            Ok(())
        })?;
        Ok(left)
    }

    /// What is in the file now; the same table while it is the same file. One
    /// that cannot be used has no token in it, and lets nobody in.
    pub(crate) fn current_table(&self, last: &Arc<TokenTable>) -> Arc<TokenTable> {
        let stamp = match fs::metadata(&self.0) {
            Ok(metadata) => TokenFileStamp::from_metadata(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return if last.is_there { Arc::default() } else { last.clone() };
            }
            Err(error) => {
                let problem = Some(self.unusable_file_problem(&error.to_string()));
                return Arc::new(TokenTable { is_there: true, problem, ..TokenTable::default() });
            }
        };
        if last.stamp == Some(stamp) {
            return last.clone();
        }
        let (held, problem) = match self.read_tokens() {
            Ok(held) => (held.unwrap_or_default(), None),
            Err(problem) => (Vec::new(), Some(problem)),
        };
        Arc::new(TokenTable { held, is_there: true, problem, stamp: Some(stamp) })
    }

    fn read_tokens(&self) -> Result<Option<Vec<StoredToken>>> {
        let unusable = |error: io::Error| self.unusable_file_problem(&error.to_string());
        // Opening a pipe would wait for somebody to write.
        if self.0.metadata().is_ok_and(|kind| !kind.is_file()) {
            return Err(self.unusable_file_problem("it is not a regular file"));
        }
        let file = match File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(error)),
        };
        if file.metadata().map_err(unusable)?.mode() & 0o022 != 0 {
            let path = self.0.display();
            return Err(self
                .unusable_file_problem("others can write to it, and so let themselves in")
                .with_hint(format!(
                    "see whether you know all in `moonlark token list` after `chmod 600 {path}`"
                )));
        }
        let mut text = Vec::new();
        file.take(MAX_TOKEN_FILE_BYTES + 1).read_to_end(&mut text).map_err(unusable)?;
        let content: Option<TokenFileContent> = serde_json::from_slice(&text).ok();
        let sound = |content: &TokenFileContent| {
            content.tokens.iter().all(|it| check_token_name(&it.name).is_ok())
                && text.len() as u64 <= MAX_TOKEN_FILE_BYTES
        };
        let whole = content.filter(sound).map(|content| Some(content.tokens));
        whole.ok_or_else(|| self.unusable_file_problem("it is damaged"))
    }

    fn edit_tokens(&self, edit: impl FnOnce(&mut Vec<StoredToken>) -> Result<()>) -> Result<()> {
        let cannot = |error: io::Error| {
            Problem::unavailable(format!("{} cannot be written: {error}", self.0.display()))
                .with_hint("check that the folder can be written to by this user")
        };
        if let Some(folder) = self.0.parent() {
            create_private_folder(folder).map_err(cannot)?;
        }
        // Held until the end, so that of two who change it none is lost.
        let _lock = LockFile::acquire(&self.0.with_extension("lock")).map_err(cannot)?;
        let mut held = self.read_tokens()?.unwrap_or_default();
        edit(&mut held)?;
        let text = serde_json::to_vec_pretty(&TokenFileContent { tokens: held });
        let text = text.map_err(|error| cannot(error.into()))?;
        write_private_file(&self.0, text).map_err(cannot)
    }

    fn unusable_file_problem(&self, why: &str) -> Problem {
        Problem::unavailable(format!("the tokens in {} cannot be used: {why}", self.0.display()))
            .with_retryable(false)
            .with_hint("check that it is a file of this user's; without it, tokens have to be handed out anew")
    }
}

impl TokenTable {
    /// Whose token it is. Takes as long for a wrong one as for a right one.
    pub(crate) fn find_token(&self, token: TokenHash) -> Option<&StoredToken> {
        let mut found = None;
        for held in &self.held {
            if held.hash.is_some_and(|hash| hash.equals_in_constant_time(token)) {
                found = Some(held);
            }
        }
        found
    }
}

impl TokenHash {
    pub fn from_token(token: &str) -> TokenHash {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        TokenHash(hash)
    }

    /// In constant time.
    pub(crate) fn equals_in_constant_time(self, other: TokenHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl TryFrom<String> for TokenHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| "no hash")?;
        bytes.try_into().map(TokenHash).map_err(|_| "no hash of this length")
    }
}

impl From<TokenHash> for String {
    fn from(hash: TokenHash) -> String {
        URL_SAFE_NO_PAD.encode(hash.0)
    }
}

impl TokenFileStamp {
    fn from_metadata(metadata: &fs::Metadata) -> Self {
        // Not when it was written, which can be set, but when it was changed.
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Self { inode: metadata.ino(), length: metadata.len(), changed }
    }
}

/// Names that rules can tell apart from patterns, and from who has no token.
pub fn check_token_name(name: &str) -> Result<(), String> {
    let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.' | '@');
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return Err("a name has letters, digits, -, _, . and @, and at most 64 of them".to_owned());
    }
    match name {
        LOCAL_CALLER | ANONYMOUS_CALLER => {
            Err(format!("{name} is what callers without a token are called"))
        }
        _ => Ok(()),
    }
}

fn generate_token() -> Result<String> {
    let mut bytes = [0; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Problem::unavailable("the system has no random numbers"))?;
    Ok(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_lost_of_many_that_are_handed_out_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path().join("new/tokens.json"));
        std::thread::scope(|scope| {
            for number in 0..8 {
                let file = &file;
                scope.spawn(move || file.add_token(&format!("t{number}"), vec![], false).unwrap());
            }
        });
        assert_eq!(file.list_tokens().unwrap().len(), 8);
    }

    #[test]
    fn a_hash_is_not_printed() {
        let settings = crate::auth::AuthSettings {
            tokens: vec![("ci".to_owned(), TokenHash([171; 32]))],
            ..Default::default()
        };
        let printed = format!("{settings:?}");
        assert!(printed.contains(r#"("ci", [hash])"#), "{printed}");
    }

    #[test]
    fn a_table_is_read_again_only_when_the_file_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path().join("tokens.json"));
        let none = file.current_table(&Arc::default());
        assert!(!none.is_there);
        assert!(Arc::ptr_eq(&file.current_table(&none), &none));

        let token = file.add_token("ci", vec![], false).unwrap();
        let one = file.current_table(&none);
        assert!(one.is_there && Arc::ptr_eq(&file.current_table(&one), &one));
        assert_eq!(one.find_token(TokenHash::from_token(&token)).unwrap().name, "ci");
        assert_eq!(one.find_token(TokenHash::from_token("mlk_")), None);

        assert_eq!(file.remove_token("ci"), Ok(0));
        let gone = file.current_table(&one);
        assert!(gone.is_there && gone.find_token(TokenHash::from_token(&token)).is_none());
        fs::remove_file(file.path()).unwrap();
        assert!(!file.current_table(&gone).is_there);
    }
}
