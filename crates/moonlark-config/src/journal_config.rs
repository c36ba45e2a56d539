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
    /// What survives a crash. `"process"`: everything survives the end of Moonlark (`kill
    /// -9` included); a crash of the machine may lose about the last second. `"power"`:
    /// in addition, each call of an agent's script that changes something waits until its
    /// entry is synced to disk.
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
    /// Who decides: `"operator"`: users of `moonlark approvals`, tokens made with
    /// `moonlark token add --operator`, and names in `server.auth.operators`. `"caller"`:
    /// also the user of the calling client, if the client can ask, and REST callers, who
    /// get an approval token. Callers can then approve their own calls.
    pub by: ApproverConfig,
    /// Lifetime of an approval: time to decide and to make the call.
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
