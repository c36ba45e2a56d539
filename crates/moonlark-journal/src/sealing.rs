//! Encryption of what only a replay needs: exact arguments and answers, secrets included,
//! are of no use without the key.
//!
//! The key is a file beside it, for this user's eyes only. What is sealed says
//! where it belongs, so nobody can move it to another row.

use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use moonlark_core::record_id::RecordId;
use moonlark_core::{Problem, Result};
use moonlark_state::read_or_make_key;
use parking_lot::Mutex;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;

/// Nonces that the system is asked for at once: a call of it costs as much as sealing.
const NONCES_PER_FILL: usize = 256;

pub(crate) struct JournalSeal {
    key: LessSafeKey,
    nonces: Mutex<Vec<[u8; NONCE_LEN]>>,
    tokens: hmac::Key,
    digests: hmac::Key,
    logs: hmac::Key,
}

/// Where a sealed value belongs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SealedField {
    Run,
    RunAnswer,
    Arguments,
    Answer,
    Approval,
    /// The arguments as whoever decides is shown them.
    ApprovalShown,
}

const JOURNAL_KEY_BYTES: usize = 32;

impl JournalSeal {
    /// The key beside the database at `file`; made if there is none.
    pub(crate) fn load_beside(file: &Path) -> Result<JournalSeal> {
        let path = file.with_extension("key");
        let bytes = read_or_make_key(&path, JOURNAL_KEY_BYTES, "it")
            .map_err(|error| unusable_key_problem(&path, &error))?;
        Self::from_bytes(&bytes).ok_or_else(|| {
            let file = path.display();
            Problem::unavailable(format!("the key of the journal, {file}, is damaged"))
                .with_retryable(false)
                .with_hint(
                    "move it away: a new one is made, and older runs can no longer be resumed",
                )
        })
    }

    fn from_bytes(bytes: &[u8]) -> Option<JournalSeal> {
        if bytes.len() != JOURNAL_KEY_BYTES {
            return None;
        }
        // One key per purpose.
        let root = hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let sealing = hmac::sign(&root, b"moonlark journal: sealing");
        let tokens = hmac::sign(&root, b"moonlark journal: tokens");
        let digests = hmac::sign(&root, b"moonlark journal: digests");
        let logs = hmac::sign(&root, b"moonlark journal: logs");
        let key = UnboundKey::new(&CHACHA20_POLY1305, sealing.as_ref()).ok()?;
        Some(JournalSeal {
            key: LessSafeKey::new(key),
            nonces: Mutex::default(),
            tokens: hmac::Key::new(hmac::HMAC_SHA256, tokens.as_ref()),
            digests: hmac::Key::new(hmac::HMAC_SHA256, digests.as_ref()),
            logs: hmac::Key::new(hmac::HMAC_SHA256, logs.as_ref()),
        })
    }

    pub(crate) fn seal_value(
        &self,
        spot: SealedField,
        id: RecordId,
        mut plain: Vec<u8>,
    ) -> Result<Vec<u8>> {
        let failed = |_| Problem::internal("a value could not be sealed for the journal");
        let nonce = self.take_nonce().map_err(|_| failed(ring::error::Unspecified))?;
        let aad = Aad::from(associated_data(spot, id));
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut plain)
            .map_err(failed)?;
        plain.extend_from_slice(&nonce);
        Ok(plain)
    }

    /// Random bytes that nothing else has had.
    fn take_nonce(&self) -> Result<[u8; NONCE_LEN], getrandom::Error> {
        let mut nonces = self.nonces.lock();
        if nonces.is_empty() {
            let mut bytes = [0; NONCES_PER_FILL * NONCE_LEN];
            getrandom::fill(&mut bytes)?;
            nonces.extend_from_slice(bytes.as_chunks().0);
        }
        nonces.pop().ok_or(getrandom::Error::UNEXPECTED)
    }

    pub(crate) fn open_value(
        &self,
        spot: SealedField,
        id: RecordId,
        mut sealed: Vec<u8>,
    ) -> Result<Vec<u8>> {
        let failed = || {
            Problem::unavailable(format!("what the journal keeps of {id} cannot be read"))
                .with_retryable(false)
                .with_hint("it was sealed with another key than the file journal.key holds now")
        };
        let at = sealed.len().checked_sub(NONCE_LEN).ok_or_else(failed)?;
        let nonce = Nonce::try_assume_unique_for_key(&sealed[at..]).map_err(|_| failed())?;
        sealed.truncate(at);
        let opened =
            self.key.open_in_place(nonce, Aad::from(associated_data(spot, id)), &mut sealed);
        let length = opened.map_err(|_| failed())?.len();
        sealed.truncate(length);
        Ok(sealed)
    }

    /// The key of the log with this salt.
    pub(crate) fn log_key(&self, salt: &[u8]) -> Option<LessSafeKey> {
        let key = hmac::sign(&self.logs, salt);
        Some(LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).ok()?))
    }

    /// Tells calls apart without saying what is in them.
    pub(crate) fn call_digest(&self, tool: &str, packed_args: &[u8]) -> Vec<u8> {
        let mut context = hmac::Context::with_key(&self.digests);
        context.update(&(tool.len() as u64).to_le_bytes());
        context.update(tool.as_bytes());
        context.update(packed_args);
        context.sign().as_ref().to_vec()
    }

    /// What proves that its holder was told of the approval `id`. It is not
    /// kept anywhere: it can be made again, here only.
    pub(crate) fn approval_token(&self, id: RecordId) -> String {
        let tag = hmac::sign(&self.tokens, id.as_bytes());
        let mut token = id.as_bytes().to_vec();
        token.extend_from_slice(tag.as_ref());
        format!("apr_{}", URL_SAFE_NO_PAD.encode(token))
    }

    /// The approval that a token is for, if it is one of ours.
    pub(crate) fn approval_from_token(&self, token: &str) -> Option<RecordId> {
        let bytes = URL_SAFE_NO_PAD.decode(token.strip_prefix("apr_")?).ok()?;
        let (id, tag) = bytes.split_first_chunk::<16>()?;
        hmac::verify(&self.tokens, id, tag).ok()?;
        Some(RecordId::from_bytes(*id))
    }
}

fn associated_data(spot: SealedField, id: RecordId) -> [u8; 17] {
    let mut aad = [spot as u8; 17];
    aad[1..].copy_from_slice(id.as_bytes());
    aad
}

fn unusable_key_problem(path: &Path, error: &io::Error) -> Problem {
    Problem::unavailable(format!(
        "the key of the journal, {}, cannot be used: {error}",
        path.display()
    ))
    .with_retryable(false)
    .with_hint("check that this user, and nobody else, may read and write it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_where_it_belongs_and_nowhere_else() {
        let seal = JournalSeal::from_bytes(&[7; JOURNAL_KEY_BYTES]).unwrap();
        let (id, other) = (RecordId::new(), RecordId::new());
        let sealed = seal.seal_value(SealedField::Answer, id, b"hunter22".to_vec()).unwrap();
        assert!(!sealed.windows(8).any(|bytes| bytes == b"hunter22"));
        assert_eq!(seal.open_value(SealedField::Answer, id, sealed.clone()).unwrap(), b"hunter22");
        for (spot, id) in [(SealedField::Answer, other), (SealedField::Arguments, id)] {
            assert!(seal.open_value(spot, id, sealed.clone()).is_err());
        }
        let another = JournalSeal::from_bytes(&[8; JOURNAL_KEY_BYTES]).unwrap();
        assert!(another.open_value(SealedField::Answer, id, sealed.clone()).is_err());
        let mut changed = sealed;
        changed[0] ^= 1;
        assert!(seal.open_value(SealedField::Answer, id, changed).is_err());
        for short in [0, 5, 12] {
            assert!(seal.open_value(SealedField::Answer, id, vec![0; short]).is_err());
        }
    }

    #[test]
    fn a_token_names_its_approval_and_cannot_be_made_up() {
        let seal = JournalSeal::from_bytes(&[7; JOURNAL_KEY_BYTES]).unwrap();
        let id = RecordId::new();
        let token = seal.approval_token(id);
        assert_eq!(seal.approval_from_token(&token), Some(id));
        assert_eq!(token, seal.approval_token(id));
        assert_eq!(
            JournalSeal::from_bytes(&[8; JOURNAL_KEY_BYTES]).unwrap().approval_from_token(&token),
            None
        );
        for wrong in ["", "apr_", "apr_AAAA", &token[4..], &token[..token.len() - 2]] {
            assert_eq!(seal.approval_from_token(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_key_is_made_once_for_this_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal.db");
        let id = RecordId::new();
        let sealed = JournalSeal::load_beside(&file)
            .unwrap()
            .seal_value(SealedField::Run, id, b"x".to_vec())
            .unwrap();
        assert_eq!(
            JournalSeal::load_beside(&file)
                .unwrap()
                .open_value(SealedField::Run, id, sealed)
                .unwrap(),
            b"x"
        );
        let names: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names, ["journal.key"]);
        {
            use std::os::unix::fs::PermissionsExt;
            let key = folder.path().join("journal.key");
            let mode = || std::fs::metadata(&key).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(), 0o600);
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
            let problem = JournalSeal::load_beside(&file).err().unwrap();
            assert!(problem.message.contains("others can read it"), "{problem}");
        }
    }
}
