//! The protocol of checker processes: JSON, each message with its length before it.
//!
//! A worker knows the host modules by itself. With every script it is told of the tools
//! that the script may mean.

use std::io::{Read, Write};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::CheckFinding;
use super::described_catalog::DescribedCatalog;

/// More than the schemas of any script's tools take.
pub(super) const MAX_CHECK_FRAME_BYTES: usize = 64 << 20;

#[derive(Serialize, Deserialize)]
pub(super) struct CheckRequest {
    pub(super) script: String,
    pub(super) catalog: DescribedCatalog,
    /// Processor time that the check may take.
    pub(super) limit: Duration,
    /// Let the type checker run the script's type functions instead of refusing them. Only
    /// tests of the process's bounds say so.
    #[serde(default)]
    pub(super) run_type_functions: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct FinishedCheck {
    pub(super) findings: Vec<CheckFinding>,
    pub(super) advice: Vec<CheckFinding>,
    /// Types took too much, and were left out.
    pub(super) untyped: bool,
    /// Whether the worker may have another script.
    pub(super) reusable: bool,
}

pub(super) fn encode_frame(message: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = u32::try_from(frame.len() - 4).ok();
    let length = length.filter(|length| *length as usize <= MAX_CHECK_FRAME_BYTES);
    let length = length.ok_or_else(|| std::io::Error::other("a message beyond all limits"))?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// For the worker, which has nothing else to do meanwhile.
pub(super) fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> std::io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

pub(super) fn write_frame(to: &mut impl Write, message: &impl Serialize) -> std::io::Result<()> {
    to.write_all(&encode_frame(message)?)?;
    to.flush()
}
