//! The memory of all script VMs of this process together: `limits.memory_total`, and
//! a share of it for each caller.
//!
//! A VM grows only while it is polled. Before a poll it reserves room to grow, which
//! bounds it for that poll; afterwards what it holds is put on the account and the
//! rest of the room is given back. So VMs never hold more than the total, whatever
//! they do at the same time. One that is new has its first quarter of a megabyte
//! before it is asked about.
//!
//! On the way of a call that does not wait this is one atomic operation before it and
//! one after. What a script holds outside of its VM, such as an answer that is being
//! sent, is bounded by other limits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use moonlark_core::limits::format_size;
use moonlark_core::{Problem, ProblemCode, Result};
use moonlark_gateway::Caller;
use moonlark_gateway::call::LOCAL_CALLER;
use moonlark_gateway::metrics::family::MetricFamily;
use parking_lot::Mutex;

use crate::machine_memory::machine_memory_bytes;
use crate::vm_pool::VmPool;

/// What memory is counted in, rounded up. All figures here are numbers of these,
/// unless their name ends in `bytes`.
const MEMORY_UNIT_BYTES: usize = 64 * 1024;
/// Room that a VM gets to grow in one poll while memory is short.
const SMALL_GRANT: u32 = 16;
/// Callers after which those without a script are dropped.
const CALLER_SWEEP_THRESHOLD: usize = 1000;
/// When it is worth trying again after a script was refused.
const MEMORY_RETRY_SECONDS: u32 = 5;
/// The default total is at least as much as this many scripts may hold.
const MIN_FULL_SCRIPTS: u64 = 4;

static SCRIPT_MEMORY: LazyLock<Arc<ScriptMemory>> =
    LazyLock::new(|| Arc::new(ScriptMemory::new(default_total_bytes(machine_memory_bytes(), 0))));

/// The account that all VMs share.
pub(crate) struct ScriptMemory {
    total: AtomicU32,
    all: MemoryBalance,
    callers: Mutex<HashMap<Arc<str>, Weak<MemoryBalance>>>,
    /// Where idle VMs are, which go first when memory is short.
    pools: Mutex<Vec<Weak<VmPool>>>,
    /// Scripts that were refused or ended because of the total.
    refused: AtomicU64,
}

impl ScriptMemory {
    pub(crate) fn of_process() -> &'static Arc<ScriptMemory> {
        &SCRIPT_MEMORY
    }

    fn new(total_bytes: u64) -> ScriptMemory {
        ScriptMemory {
            total: AtomicU32::new(total_units(total_bytes)),
            all: MemoryBalance::default(),
            callers: Mutex::default(),
            pools: Mutex::default(),
            refused: AtomicU64::new(0),
        }
    }

    /// Set the total; when it is not given, the default for scripts of this size.
    pub(crate) fn set_total(&self, total_bytes: Option<u64>, one_script_bytes: u64) {
        let total = total_bytes
            .unwrap_or_else(|| default_total_bytes(machine_memory_bytes(), one_script_bytes));
        self.total.store(total_units(total), Ordering::Relaxed);
    }

    /// Drop the idle VMs of this pool when memory is short.
    pub(crate) fn register_pool(&self, pool: &Arc<VmPool>) {
        let mut pools = self.pools.lock();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    /// Whether no script may begin, and no idle VM is kept.
    pub(crate) fn is_short(&self) -> bool {
        is_full(self.all.held(), self.total.load(Ordering::Relaxed))
    }

    fn drop_idle_vms(&self) {
        // Outside of the lock: closing a VM takes a moment.
        let pools: Vec<Arc<VmPool>> = self.pools.lock().iter().filter_map(Weak::upgrade).collect();
        pools.iter().for_each(|pool| pool.drop_idle_vms());
    }

    /// What one caller may hold of it: as with places for calls, three of four parts.
    fn caller_share(&self) -> u32 {
        let total = self.total.load(Ordering::Relaxed);
        total - total / 4
    }

    /// The balance of this caller; none for callers that are not told apart, and for
    /// those at this machine.
    fn caller_balance(&self, caller: &Caller) -> Option<Arc<MemoryBalance>> {
        let name = caller.name.as_ref().filter(|name| ***name != *LOCAL_CALLER)?;
        let mut callers = self.callers.lock();
        if let Some(known) = callers.get(name).and_then(Weak::upgrade) {
            return Some(known);
        }
        if callers.len() >= CALLER_SWEEP_THRESHOLD {
            callers.retain(|_, known| known.strong_count() > 0);
        }
        let balance = Arc::new(MemoryBalance::default());
        callers.insert(name.clone(), Arc::downgrade(&balance));
        Some(balance)
    }

    pub(crate) fn metric_families(&self) -> Vec<MetricFamily> {
        let bytes = |units: u32| units as f64 * MEMORY_UNIT_BYTES as f64;
        vec![
            MetricFamily::gauge(
                "moonlark_script_memory_bytes",
                "Memory that Luau scripts hold, of the limit limits.memory_total",
            )
            .with_value(bytes(self.all.held())),
            MetricFamily::gauge(
                "moonlark_script_memory_limit_bytes",
                "How much that may be: limits.memory_total",
            )
            .with_value(bytes(self.total.load(Ordering::Relaxed))),
            MetricFamily::counter(
                "moonlark_script_memory_refused_total",
                "Luau scripts that were refused or ended because of that limit",
            )
            .with_value(self.refused.load(Ordering::Relaxed) as f64),
        ]
    }
}

/// Half of the machine, and enough for a few scripts where that leaves the machine
/// something.
fn default_total_bytes(machine_bytes: u64, one_script_bytes: u64) -> u64 {
    let few = one_script_bytes.saturating_mul(MIN_FULL_SCRIPTS).min(machine_bytes / 4 * 3);
    (machine_bytes / 2).max(few)
}

fn total_units(bytes: u64) -> u32 {
    // Half of what the figures can hold: what is held and what is reserved stay apart.
    u32::try_from(bytes / MEMORY_UNIT_BYTES as u64).unwrap_or(u32::MAX).clamp(1, u32::MAX / 2)
}

fn units_of(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(MEMORY_UNIT_BYTES)).unwrap_or(u32::MAX / 2).min(u32::MAX / 2)
}

/// The last eighth is for scripts that run already.
fn is_full(held: u32, cap: u32) -> bool {
    held > cap - cap / 8
}

/// What VMs hold (the upper half) and what they have reserved for the poll they are
/// in (the lower half), in one number.
#[derive(Default)]
struct MemoryBalance(AtomicU64);

impl MemoryBalance {
    fn held(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) >> 32) as u32
    }

    /// Reserve up to `want`, and `floor` in any case. Nobody gets more than half of
    /// what is left, because others are being polled at the same time.
    fn reserve(&self, want: u32, cap: u32, floor: u32) -> u32 {
        let mut granted = 0;
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            let taken = ((now >> 32) as u32).saturating_add(now as u32);
            let left = cap.saturating_sub(taken);
            let spare = left.saturating_sub(cap / 8);
            granted = want.min((spare / 2).max(SMALL_GRANT.min(left)).max(floor));
            Some(now + u64::from(granted))
        });
        granted
    }

    /// Give back what was reserved; a VM that held `before` holds `after`.
    fn settle(&self, reserved: u32, before: u32, after: u32) {
        if (reserved, before) == (0, after) {
            return;
        }
        let gained = (u64::from(after) << 32).wrapping_sub(u64::from(before) << 32);
        self.0.fetch_add(gained.wrapping_sub(reserved.into()), Ordering::Relaxed);
    }
}

/// What one VM has of the account. Gives it back when dropped.
pub(crate) struct VmMemory {
    account: Arc<ScriptMemory>,
    lease: Mutex<MemoryLease>,
}

#[derive(Default)]
struct MemoryLease {
    /// `limits.memory` of the call.
    own_bytes: usize,
    held: u32,
    reserved: u32,
    /// Room that it gets whatever is left.
    floor: u32,
    /// Whose share it counts against.
    caller: Option<Arc<MemoryBalance>>,
    /// Why it may not grow to its own limit in this poll.
    shortage: Option<MemoryShortage>,
    /// The run was refused or ended because of that.
    ran_short: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum MemoryShortage {
    Total,
    CallerShare,
}

impl VmMemory {
    pub(crate) fn new(account: &Arc<ScriptMemory>) -> VmMemory {
        VmMemory { account: account.clone(), lease: Mutex::default() }
    }

    /// Begin a run, or refuse it while memory is short. The bytes that the VM may
    /// hold until it is settled.
    pub(crate) fn begin_run(
        &self,
        used_bytes: usize,
        own_bytes: usize,
        caller: &Caller,
    ) -> Result<usize> {
        let account = &*self.account;
        let mut lease = self.lease.lock();
        // A script that does not load now would not load again until it changes.
        let must_run = caller.surface == "load";
        if !must_run && account.is_short() {
            account.drop_idle_vms();
            if account.is_short() {
                return Err(self.refuse(&mut lease, MemoryShortage::Total));
            }
        }
        let balance = account.caller_balance(caller);
        let share = account.caller_share();
        if balance.as_ref().is_some_and(|balance| is_full(balance.held(), share)) {
            return Err(self.refuse(&mut lease, MemoryShortage::CallerShare));
        }
        self.close_lease(&mut lease, used_bytes);
        if let Some(balance) = &balance {
            balance.settle(0, 0, lease.held);
        }
        lease.caller = balance;
        lease.own_bytes = own_bytes;
        lease.floor = if must_run { SMALL_GRANT } else { 0 };
        lease.ran_short = false;
        Ok(self.reserve_growth(&mut lease))
    }

    /// Before a poll: the bytes that the VM may hold until it is settled.
    pub(crate) fn begin_poll(&self) -> usize {
        self.reserve_growth(&mut self.lease.lock())
    }

    /// After a poll that did not end the run.
    pub(crate) fn end_poll(&self, used_bytes: usize) {
        self.settle_lease(&mut self.lease.lock(), used_bytes);
    }

    /// The run is over. Its VM counts against nobody's share from here on.
    pub(crate) fn end_run(&self, used_bytes: usize) {
        self.close_lease(&mut self.lease.lock(), used_bytes);
    }

    /// Whether all scripts together hold so much that idle VMs should go.
    pub(crate) fn is_short(&self) -> bool {
        self.account.is_short()
    }

    /// Whether the run was refused or ended because of what others hold: it may go
    /// on another time.
    pub(crate) fn ran_short(&self) -> bool {
        self.lease.lock().ran_short
    }

    /// Why the VM got no more memory.
    pub(crate) fn out_of_memory_problem(&self) -> Problem {
        let mut lease = self.lease.lock();
        let Some(shortage) = lease.shortage else {
            let most = format_size(lease.own_bytes);
            return Problem::limit_exceeded(format!("the script used more than {most} of memory"))
                .with_hint("work in smaller pieces, or raise limits.memory in moonlark.toml");
        };
        if !std::mem::replace(&mut lease.ran_short, true) {
            self.account.refused.fetch_add(1, Ordering::Relaxed);
        }
        let message = format!(
            "the script needed more memory than is left: {}",
            self.describe_shortage(shortage)
        );
        Problem::unavailable(message)
            .with_hint("try again later, or raise limits.memory_total in moonlark.toml")
    }

    fn refuse(&self, lease: &mut MemoryLease, shortage: MemoryShortage) -> Problem {
        lease.ran_short = true;
        self.account.refused.fetch_add(1, Ordering::Relaxed);
        let held = self.describe_shortage(shortage);
        let mut problem = Problem::new(
            ProblemCode::RateLimited,
            format!("no script can begin while memory is short: {held}"),
        )
        .with_hint(format!(
            "try again in {MEMORY_RETRY_SECONDS} seconds, or raise limits.memory_total in moonlark.toml"
        ));
        problem.retry_after = Some(MEMORY_RETRY_SECONDS);
        problem
    }

    /// Callers hear what all may hold, and not what others do with it.
    fn describe_shortage(&self, shortage: MemoryShortage) -> String {
        let size = |units: u32| format_size(units as usize * MEMORY_UNIT_BYTES);
        match shortage {
            MemoryShortage::Total => {
                let total = self.account.total.load(Ordering::Relaxed);
                format!("all scripts together may hold {}", size(total))
            }
            MemoryShortage::CallerShare => {
                let share = self.account.caller_share();
                format!("the scripts of one caller may hold {}", size(share))
            }
        }
    }

    fn reserve_growth(&self, lease: &mut MemoryLease) -> usize {
        let account = &*self.account;
        let want = units_of(lease.own_bytes).saturating_sub(lease.held + lease.reserved);
        let mut granted =
            account.all.reserve(want, account.total.load(Ordering::Relaxed), lease.floor);
        lease.shortage = (granted < want).then_some(MemoryShortage::Total);
        if lease.shortage.is_some() && account.is_short() {
            account.drop_idle_vms();
        }
        if let Some(caller) = &lease.caller {
            let own = caller.reserve(granted, account.caller_share(), lease.floor);
            if own < granted {
                account.all.settle(granted - own, 0, 0);
                lease.shortage = Some(MemoryShortage::CallerShare);
                granted = own;
            }
        }
        lease.reserved += granted;
        let room = (lease.held + lease.reserved) as usize * MEMORY_UNIT_BYTES;
        // Zero would be no limit at all.
        lease.own_bytes.min(room).max(1)
    }

    fn close_lease(&self, lease: &mut MemoryLease, used_bytes: usize) {
        if let Some(caller) = lease.caller.take() {
            caller.settle(lease.reserved, lease.held, 0);
        }
        self.settle_lease(lease, used_bytes);
    }

    fn settle_lease(&self, lease: &mut MemoryLease, used_bytes: usize) {
        let (reserved, before) = (lease.reserved, lease.held);
        lease.held = units_of(used_bytes);
        lease.reserved = 0;
        self.account.all.settle(reserved, before, lease.held);
        if let Some(caller) = &lease.caller {
            caller.settle(reserved, before, lease.held);
        }
    }
}

impl Drop for VmMemory {
    fn drop(&mut self) {
        self.end_run(0);
    }
}

#[cfg(test)]
mod tests;
