//! Ids of records: runs, calls, approvals.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

use crate::problem::{Problem, Result};
use crate::value::shorten_text;

/// What identifies a run, a call, an approval: a UUID that sorts by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId(Uuid);

impl RecordId {
    /// A new one; later ones sort behind.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// The boundary of a time: what was made before sorts before it.
    pub fn first_at(time: SystemTime) -> Self {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        Self(Uuid::from_u128(u128::from(millis) << 80))
    }

    /// One that follows from another and from bytes that nobody can guess; it sorts about
    /// where the other does.
    pub fn derived_from(other: RecordId, drawn: [u8; 16]) -> Self {
        let mut bytes = drawn;
        bytes[..6].copy_from_slice(&other.as_bytes()[..6]);
        bytes[6] = 0x70 | (bytes[6] & 0x0f);
        bytes[8] = 0x80 | (bytes[8] & 0x3f);
        Self(Uuid::from_bytes(bytes))
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl Default for RecordId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RecordId {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self> {
        Uuid::parse_str(text).map(RecordId).map_err(|_| {
            let text = shorten_text(text);
            Problem::bad_request(format!("'{text}' is not an id")).with_hint(
                "ids look like 0199c0de-0000-7000-8000-000000000000: `moonlark runs` lists them",
            )
        })
    }
}
