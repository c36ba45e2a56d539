//! What the pool and its worker processes say to each other: JSON, each message
//! with its length before it.
//!
//! A worker knows the host modules by itself. Of a catalog it is told the names
//! of all sources once, and everything else, once, when the first script names it.

use std::io::{Read, Write};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::CheckFinding;

/// More than the schemas of any script's tools take.
pub(super) const MAX_CHECK_FRAME_BYTES: usize = 64 << 20;

#[derive(Serialize, Deserialize)]
pub(super) enum CheckOrder {
    Check(CheckRequest),
    Definitions(ToolDefinitions),
}

#[derive(Serialize, Deserialize)]
pub(super) struct CheckRequest {
    /// The number that this worker knows the catalog by.
    pub(super) catalog: u64,
    /// What is in it, when the worker hears of it for the first time.
    pub(super) names: Option<CatalogNames>,
    /// A catalog that is not spoken of again.
    pub(super) forget: Option<u64>,
    pub(super) script: String,
    /// Processor time that the check may take.
    pub(super) limit: Duration,
    /// Let the type checker run the script's type functions instead of refusing them. Only
    /// tests of the process's bounds say so.
    #[serde(default)]
    pub(super) run_type_functions: bool,
}

#[derive(Serialize, Deserialize)]
pub(super) struct CatalogNames {
    /// The identifier and the original name of each source.
    pub(super) sources: Vec<(String, String)>,
    /// Sources that may have anything, because they are not connected.
    pub(super) awaited: Vec<String>,
}

#[derive(Serialize, Deserialize)]
pub(super) enum CheckWorkerReport {
    Wanted(WantedDefinitions),
    Checked(FinishedCheck),
}

/// What a script names and the worker has not been told yet.
#[derive(Serialize, Deserialize)]
pub(super) struct WantedDefinitions {
    /// Sources whose functions it does not know, by their place.
    pub(super) sources: Vec<usize>,
    /// The names in the script: which of their functions it needs.
    pub(super) names: Vec<String>,
    /// Functions of other sources, by the place of both.
    pub(super) functions: Vec<(usize, usize)>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ToolDefinitions {
    pub(super) sources: Vec<SourceFunctions>,
    pub(super) functions: Vec<FunctionSchemas>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SourceFunctions {
    pub(super) source: usize,
    /// The identifier and the original name of each function.
    pub(super) functions: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct FunctionSchemas {
    pub(super) source: usize,
    pub(super) function: usize,
    pub(super) input: Map<String, Json>,
    pub(super) output: Option<Map<String, Json>>,
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

pub(super) fn decode_frame<T: DeserializeOwned>(body: &[u8]) -> std::io::Result<T> {
    Ok(serde_json::from_slice(body)?)
}

/// For the worker, which has nothing else to do meanwhile.
pub(super) fn read_frame<T: DeserializeOwned>(from: &mut impl Read) -> std::io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut body)?;
    decode_frame(&body)
}

pub(super) fn write_frame(to: &mut impl Write, message: &impl Serialize) -> std::io::Result<()> {
    to.write_all(&encode_frame(message)?)?;
    to.flush()
}
