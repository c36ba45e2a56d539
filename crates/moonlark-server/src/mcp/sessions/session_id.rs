//! Ids of sessions, in which is sealed what a session needs to go on: after a restart,
//! or in another process that has the key.
//!
//! Nobody but the holders of the key can read one, make one, or change one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use rmcp::model::InitializeRequestParams;
use serde::{Deserialize, Serialize};

/// Ids travel in a header of every request.
const MAX_SESSION_ID_BYTES: usize = 2048;
/// Sealed values of another kind, or of another form, are none of ours.
const SEAL_PURPOSE: &[u8] = b"moonlark mcp session 1";

pub(super) const SESSION_KEY_BYTES: usize = 32;

/// What an id says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionIdContent {
    /// The name by which the session is known inside.
    #[serde(rename = "i")]
    pub(super) name: String,
    /// When it was begun, in seconds since 1970.
    #[serde(rename = "t")]
    pub(super) issued: u64,
    /// Who began it, where callers show who they are.
    #[serde(rename = "c", skip_serializing_if = "Option::is_none")]
    pub(super) caller: Option<String>,
    /// What the client said at the beginning. None where that does not fit into an id:
    /// such a session ends with its process.
    #[serde(rename = "p", skip_serializing_if = "Option::is_none")]
    pub(super) initialize: Option<InitializeRequestParams>,
}

/// None where there is no randomness to make one of: then there are no sessions.
pub(super) struct SessionIdKey(Option<LessSafeKey>);

impl SessionIdKey {
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<SessionIdKey> {
        let key = UnboundKey::new(&CHACHA20_POLY1305, bytes).ok()?;
        Some(SessionIdKey(Some(LessSafeKey::new(key))))
    }

    /// One that nobody else will ever have.
    pub(super) fn random_key() -> SessionIdKey {
        let mut bytes = [0; SESSION_KEY_BYTES];
        let filled = SystemRandom::new().fill(&mut bytes).is_ok();
        let key = filled.then(|| SessionIdKey::from_bytes(&bytes)).flatten();
        key.unwrap_or(SessionIdKey(None))
    }

    /// The id for clients; none if it cannot be made.
    pub(super) fn seal_content(&self, mut content: SessionIdContent) -> Option<String> {
        let id = self.seal_exactly(&content)?;
        if id.len() <= MAX_SESSION_ID_BYTES {
            return Some(id);
        }
        // Pictures and addresses are for people who look at a list of clients.
        if let Some(params) = &mut content.initialize {
            let info = &mut params.client_info;
            (info.icons, info.website_url, info.description) = (None, None, None);
            params.meta = None;
        }
        let id = self.seal_exactly(&content)?;
        if id.len() <= MAX_SESSION_ID_BYTES {
            return Some(id);
        }
        content.initialize = None;
        self.seal_exactly(&content).filter(|id| id.len() <= MAX_SESSION_ID_BYTES)
    }

    fn seal_exactly(&self, content: &SessionIdContent) -> Option<String> {
        let mut sealed = serde_json::to_vec(content).ok()?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let key_nonce = Nonce::assume_unique_for_key(nonce);
        let key = self.0.as_ref()?;
        key.seal_in_place_append_tag(key_nonce, Aad::from(SEAL_PURPOSE), &mut sealed).ok()?;
        sealed.extend_from_slice(&nonce);
        Some(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// What the id says, if it is one that was made with this key.
    pub(super) fn open_content(&self, id: &str) -> Option<SessionIdContent> {
        if id.len() > MAX_SESSION_ID_BYTES {
            return None;
        }
        let mut sealed = URL_SAFE_NO_PAD.decode(id).ok()?;
        let at = sealed.len().checked_sub(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(&sealed[at..]).ok()?;
        sealed.truncate(at);
        let key = self.0.as_ref()?;
        let opened = key.open_in_place(nonce, Aad::from(SEAL_PURPOSE), &mut sealed).ok()?;
        serde_json::from_slice(opened).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(byte: u8) -> SessionIdKey {
        SessionIdKey::from_bytes(&[byte; SESSION_KEY_BYTES]).unwrap()
    }

    fn content(client: &str, capabilities: serde_json::Value) -> SessionIdContent {
        let initialize = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "clientInfo": {"name": client, "version": "1"},
        });
        SessionIdContent {
            name: "4f0c".to_owned(),
            issued: 1_700_000_000,
            caller: Some("alice".to_owned()),
            initialize: serde_json::from_value(initialize).unwrap(),
        }
    }

    #[test]
    fn what_is_sealed_in_an_id_comes_out_again() {
        let said = content("claude", json!({"roots": {}, "elicitation": {}}));
        let id = key(1).seal_content(said.clone()).unwrap();
        assert_eq!(key(1).open_content(&id), Some(said.clone()));
        assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        assert!(id.len() < 400, "{} {id}", id.len());
        // Twice the same is not the same to those who see the ids.
        assert_ne!(key(1).seal_content(said), Some(id));
    }

    #[test]
    fn an_id_that_was_changed_or_made_with_another_key_is_none() {
        let id = key(1).seal_content(content("claude", json!({}))).unwrap();
        assert_eq!(key(2).open_content(&id), None);
        for at in 0..id.len() {
            let mut bytes = id.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            // The last letter has bits that say nothing; those are refused as well.
            assert_eq!(key(1).open_content(&changed), None, "{at}");
        }
        for other in ["", "A", "unknown", "4f0c9d2e-0000-4000-8000-000000000000", &id[1..]] {
            assert_eq!(key(1).open_content(other), None, "{other}");
        }
        assert_eq!(key(1).open_content(&"A".repeat(100_000)), None);
    }

    #[test]
    fn ids_stay_short_whatever_a_client_says_of_itself() {
        let long = content("claude", json!({"experimental": {"x": {"y": "z".repeat(5000)}}}));
        let id = key(1).seal_content(long.clone()).unwrap();
        assert!(id.len() <= MAX_SESSION_ID_BYTES);
        let opened = key(1).open_content(&id).unwrap();
        assert_eq!(opened, SessionIdContent { initialize: None, ..long });

        let mut pictured = content("claude", json!({}));
        let info = &mut pictured.initialize.as_mut().unwrap().client_info;
        info.website_url = Some(format!("https://example.com/{}", "x".repeat(5000)));
        let opened = key(1).open_content(&key(1).seal_content(pictured).unwrap()).unwrap();
        assert_eq!(opened, content("claude", json!({})));
    }
}
