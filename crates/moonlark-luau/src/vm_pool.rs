//! Idle VMs, ready for the next script.
//!
//! Building a VM costs more than most scripts do. What a script leaves behind is out of
//! reach of the next one: its globals, coroutines and promises belong to the run, and
//! everything that the runs of a VM share is frozen (see `prelude.luau`). So any script
//! may have any idle VM of its kind, whoever wrote or sent it. A VM goes back only after
//! a clean end, and when none was needed for a while, its memory is given back.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use moonlark_child::{request_memory_return, spawn_owned};
use moonlark_core::Result;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::engine::InterruptGuard;
use crate::prelude::LuauPrelude;
use crate::script_memory::ScriptMemory;
use crate::vm::LuauVm;

/// Idle VMs of one kind; each holds up to a few megabytes, and some 250 KB after its garbage
/// was collected.
const MAX_IDLE_VMS: usize = 128;
/// Idle VMs that are kept however long nobody needs them.
const MIN_IDLE_VMS: usize = 4;
/// How long the others are kept, and these keep their garbage.
const IDLE_VM_LIFETIME: Duration = Duration::from_secs(4);

pub(crate) struct VmPool {
    prelude: Arc<LuauPrelude>,
    max_idle: usize,
    /// The one used last is at the end, and the first to be taken.
    idle: Mutex<Vec<IdleVm>>,
    /// Drops VMs that have been idle for too long, and has the rest drop their garbage.
    trimmer: Mutex<Option<AbortOnDropHandle<()>>>,
}

struct IdleVm {
    vm: LuauVm,
    since: Instant,
    is_collected: bool,
}

impl VmPool {
    pub(crate) fn new(prelude: Arc<LuauPrelude>) -> Arc<VmPool> {
        Self::with_max_idle(prelude, MAX_IDLE_VMS)
    }

    /// A pool that keeps no VM: each run has a new one.
    pub(crate) fn of_new_vms(prelude: Arc<LuauPrelude>) -> Arc<VmPool> {
        Self::with_max_idle(prelude, 0)
    }

    fn with_max_idle(prelude: Arc<LuauPrelude>, max_idle: usize) -> Arc<VmPool> {
        let (idle, trimmer) = (Mutex::default(), Mutex::default());
        let pool = Arc::new(VmPool { prelude, max_idle, idle, trimmer });
        ScriptMemory::of_process().register_pool(&pool);
        pool
    }

    /// A VM for one run, which `guard` can stop.
    pub(crate) fn lease_vm(self: &Arc<Self>, guard: InterruptGuard) -> Result<VmLease> {
        let idle = self.idle.lock().pop();
        let vm = match idle {
            Some(idle) => idle.vm,
            None => LuauVm::new(&self.prelude)?,
        };
        guard.watch_interrupt(vm.interrupt());
        Ok(VmLease { vm, pool: self.clone(), guard })
    }

    pub(crate) fn drop_idle_vms(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }

    #[cfg(test)]
    pub(crate) fn count_idle_vms(&self) -> usize {
        self.idle.lock().len()
    }

    fn park_vm(self: &Arc<Self>, vm: LuauVm) {
        let mut idle = self.idle.lock();
        if idle.len() >= self.max_idle {
            // Closing a VM takes a moment: not under the lock.
            drop(idle);
            return drop(vm);
        }
        idle.push(IdleVm { vm, since: Instant::now(), is_collected: false });
        drop(idle);
        self.keep_trimming();
    }

    /// Begin to trim VMs that nobody has needed for a while, until there is nothing to trim.
    fn keep_trimming(self: &Arc<Self>) {
        let mut trimmer = self.trimmer.lock();
        if trimmer.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let pool = Arc::downgrade(self);
        *trimmer = Some(spawn_owned(async move {
            while Weak::upgrade(&pool).is_some_and(|pool| pool.trim_idle_vms(Instant::now())) {
                tokio::time::sleep(IDLE_VM_LIFETIME / 2).await;
            }
        }));
    }

    /// Drop VMs that have been idle for too long and are not among the last few; of those,
    /// collect the garbage. Whether there will be more to do.
    pub(crate) fn trim_idle_vms(&self, now: Instant) -> bool {
        let is_old = |idle: &IdleVm| now.duration_since(idle.since) >= IDLE_VM_LIFETIME;
        let mut idle = self.idle.lock();
        let spare = idle.len().saturating_sub(MIN_IDLE_VMS);
        let old = idle.iter().take(spare).take_while(|it| is_old(it)).count();
        let dropped: Vec<IdleVm> = idle.drain(..old).collect();
        let (kept, garbage): (Vec<_>, Vec<_>) = std::mem::take(&mut *idle)
            .into_iter()
            .partition(|idle| idle.is_collected || !is_old(idle));
        let is_done =
            kept.len() + garbage.len() <= MIN_IDLE_VMS && kept.iter().all(|idle| idle.is_collected);
        *idle = kept;
        drop(idle);
        let is_trimmed = !dropped.is_empty() || !garbage.is_empty();
        // Both take a moment: not under the lock.
        drop(dropped);
        for mut rested in garbage {
            rested.vm.collect_garbage();
            rested.is_collected = true;
            self.idle.lock().insert(0, rested);
        }
        if is_trimmed {
            request_memory_return();
        }
        !is_done
    }
}

/// A VM for one run. Dropped before [`VmLease::finish_run`], the VM goes with it.
pub(crate) struct VmLease {
    vm: LuauVm,
    pool: Arc<VmPool>,
    guard: InterruptGuard,
}

impl VmLease {
    /// The run has ended like this; after a clean end, the next may have the VM.
    pub(crate) fn finish_run<T>(self, ended: Result<T>) -> Result<T> {
        self.guard.finish_run();
        if ended.is_ok() && self.vm.is_clean() {
            self.pool.park_vm(self.vm);
        }
        ended
    }
}

impl Deref for VmLease {
    type Target = LuauVm;

    fn deref(&self) -> &LuauVm {
        &self.vm
    }
}

impl DerefMut for VmLease {
    fn deref_mut(&mut self) -> &mut LuauVm {
        &mut self.vm
    }
}
