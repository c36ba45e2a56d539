//! Limits and budgets of one call: what it may use, and what it has used.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::problem::{Problem, Result};

/// Ceilings for one call and everything it causes.
#[derive(Debug, Clone, PartialEq)]
pub struct CallLimits {
    /// Wall-clock time.
    pub timeout: Duration,
    /// Bytes of one script VM.
    pub memory: usize,
    /// Calls and loop rounds of one Starlark script.
    pub steps: u64,
    /// Tool calls that a call may cause, over all levels.
    pub calls: u32,
    /// Calls in flight at once.
    pub parallel: u32,
    /// Bytes of log output.
    pub logs: u64,
    /// Bytes of one value that crosses a boundary.
    pub value: usize,
    /// Bytes of one HTTP response body.
    pub http_body: usize,
}

const BYTES_PER_MB: usize = 1024 * 1024;

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            memory: 64 * BYTES_PER_MB,
            steps: 1_000_000_000,
            calls: 100,
            parallel: 16,
            logs: BYTES_PER_MB as u64,
            value: 32 * BYTES_PER_MB,
            http_body: 10 * BYTES_PER_MB,
        }
    }
}

/// How deep tools may call tools.
pub const MAX_CALL_DEPTH: u32 = 16;

/// What one root call and all its children have used so far.
#[derive(Debug, Default)]
pub struct CallUsage {
    calls: AtomicU32,
    logs: AtomicU64,
}

impl CallUsage {
    pub fn count_call(&self, limits: &CallLimits) -> Result<()> {
        if self.calls.fetch_add(1, Ordering::Relaxed) >= limits.calls {
            return Err(Problem::limit_exceeded(format!(
                "more than {} tool calls in one call",
                limits.calls
            ))
            .with_hint("do less in one script, or raise limits.calls in moonlark.toml"));
        }
        Ok(())
    }

    pub fn count_log(&self, bytes: usize, limits: &CallLimits) -> Result<()> {
        let before = self.logs.fetch_add(bytes as u64, Ordering::Relaxed);
        if before.saturating_add(bytes as u64) > limits.logs {
            return Err(Problem::limit_exceeded(format!(
                "log output over {}",
                format_size(limits.logs as usize)
            ))
            .with_hint("log less, or raise limits.logs in moonlark.toml"));
        }
        Ok(())
    }
}

/// `64 MB`, for messages.
pub fn format_size(bytes: usize) -> String {
    match bytes {
        b if b >= BYTES_PER_MB && b % BYTES_PER_MB == 0 => format!("{} MB", b / BYTES_PER_MB),
        b if b >= 1024 && b % 1024 == 0 => format!("{} KB", b / 1024),
        b if b >= BYTES_PER_MB => format!("{:.1} MB", b as f64 / BYTES_PER_MB as f64),
        b => format!("{b} bytes"),
    }
}

/// `30 seconds`, for messages.
pub fn format_seconds(duration: Duration) -> String {
    match duration.as_secs_f64() {
        1.0 => "1 second".to_owned(),
        whole if whole.fract() == 0.0 => format!("{whole:.0} seconds"),
        part => format!("{part} seconds"),
    }
}
