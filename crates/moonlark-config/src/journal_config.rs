//! `[journal]` and `[approvals]`: retention of runs and calls, and who decides on calls
//! that need approval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ByteSize, HumanDuration};

/// The record of every run and call. It is a file beside that of `[store]`;
/// secrets are taken out of what people can read there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JournalConfig {
    /// Keep a journal. Read at the start only. Without a journal, no run can be
    /// resumed and no call can be approved.
    pub enabled: bool,
    /// What the entry of a call that changes something survives before an agent's script
    /// may make the call: `"process"` the end of Moonlark, however it ends (`kill -9`
    /// included), and a crash of the machine but for about the last second; `"power"`
    /// also that second, by waiting until the entry is synced to disk.
    pub durability: JournalDurability,
    /// How long entries are kept.
    #[schemars(example = &"90d")]
    pub keep: HumanDuration,
    /// Max. size on disk. Entries of the caller that has most are removed first, oldest first.
    #[schemars(example = &"10GB")]
    pub size: ByteSize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum JournalDurability {
    // The loss of power.
    Power,
    // The end of the process, however it ends.
    #[default]
    Process,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            durability: JournalDurability::default(),
            keep: HumanDuration::from_seconds(30 * 86_400),
            size: ByteSize::from_mib(1024),
        }
    }
}

/// Approval of calls that match a rule of `[policy]` with `action = "approve"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalsConfig {
    /// Who may decide: `"operator"` are users of `moonlark approvals`, and
    /// tokens with `operator = true`. `"caller"` also asks the user of the client
    /// that calls, where the client can ask, and gives a token to REST callers that
    /// approves: then callers can approve their own calls.
    pub by: ApproverConfig,
    /// Time to decide, and then to make the call.
    #[schemars(example = &"15min")]
    pub expiry: HumanDuration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ApproverConfig {
    Caller,
    #[default]
    Operator,
}

impl Default for ApprovalsConfig {
    fn default() -> Self {
        Self { by: ApproverConfig::default(), expiry: HumanDuration::from_seconds(3600) }
    }
}
