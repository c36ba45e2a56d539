//! The watchdog: stops and preempts scripts without slowing them down.
//!
//! Luau offers an interrupt that fires at every loop back-edge and call, but a
//! callback there doubles the run time of tight code. So the slot is left empty
//! and one watchdog thread fills it, from outside, when a script has used up its
//! slice or its deadline has passed. The callback then yields, or raises an
//! error, and an error is raised again at every later interrupt, so that no
//! `pcall` gets past it.
//!
//! What its unsafe code relies on: Luau
//! documents that the interrupt slot may be written from any thread, and a VM
//! can only be dropped by whoever polls it, which is not while it is entered
//! here (the watchdog writes under the same lock that leaving takes).

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use mlua::{Lua, VmState, ffi};
use moonlark_core::Problem;
use moonlark_gateway::Call;
use parking_lot::Mutex;

/// How often the watchdog looks.
const WATCHDOG_INTERVAL: Duration = Duration::from_millis(2);
/// How long a script computes before others get their turn.
const SCRIPT_TIME_SLICE: Duration = Duration::from_millis(6);
/// Looks at nothing before the watchdog goes to sleep: about a tenth of a second.
const MAX_IDLE_TICKS: u32 = 50;

/// The interrupt of one VM, and why it should stop.
pub(crate) struct VmInterrupt {
    slot: *mut *mut c_void,
    callback: *mut c_void,
    state: Mutex<VmInterruptState>,
    cancelled: AtomicBool,
    /// It has given way to others at least once in this run.
    preempted: AtomicBool,
}

#[derive(Default)]
struct VmInterruptState {
    /// The call that runs. Asked for its deadline every time, because that moves
    /// while somebody thinks about what the script asked.
    call: Option<Call>,
    /// Set once and then raised at every interrupt.
    abort_problem: Option<Problem>,
    /// The script's own thread; only there can it yield to the scheduler.
    root: usize,
    /// A yield was asked for in this poll.
    yielding: bool,
}

// SAFETY: `slot` points into the VM's global state and is only written as an
// aligned pointer-sized atomic, which Luau allows from any thread; see above for
// why it is alive.
unsafe impl Send for VmInterrupt {}
// SAFETY: as for `Send`.
unsafe impl Sync for VmInterrupt {}

impl VmInterruptState {
    fn is_past_deadline(&self, now: Instant) -> bool {
        self.call.as_ref().is_some_and(|call| now >= call.deadline().into_std())
    }
}

impl VmInterrupt {
    /// Take over the interrupt of `lua`.
    pub(crate) fn install(lua: &Lua) -> mlua::Result<Arc<VmInterrupt>> {
        // mlua's trampoline turns a safe closure into the callback. It is taken
        // out of the slot again at once: unarmed, it must not be called.
        let shared: Arc<Mutex<Weak<VmInterrupt>>> = Arc::default();
        let inner = shared.clone();
        lua.set_interrupt(move |lua| match inner.lock().upgrade() {
            Some(interrupt) => interrupt.on_interrupt(lua),
            None => Ok(VmState::Continue),
        });
        let mut slot: *mut *mut c_void = std::ptr::null_mut();
        // SAFETY: the closure only reads the address of the callbacks struct,
        // which lives as long as the VM.
        unsafe {
            lua.exec_raw::<()>((), |state| {
                slot = std::ptr::addr_of_mut!((*ffi::lua_callbacks(state)).interrupt).cast();
            })?;
        }
        // SAFETY: just obtained, the VM is alive, and nothing runs in it.
        let callback = unsafe { *slot };
        let interrupt = Arc::new(VmInterrupt {
            slot,
            callback,
            state: Mutex::default(),
            cancelled: AtomicBool::new(false),
            preempted: AtomicBool::new(false),
        });
        *shared.lock() = Arc::downgrade(&interrupt);
        interrupt.write_slot(std::ptr::null_mut());
        Ok(interrupt)
    }

    /// Get ready for a run of `root` until the call's deadline.
    pub(crate) fn begin_run(&self, root: *const c_void, call: Call) {
        self.cancelled.store(false, Ordering::Relaxed);
        self.preempted.store(false, Ordering::Relaxed);
        let fresh = VmInterruptState {
            call: Some(call),
            root: root as usize,
            ..VmInterruptState::default()
        };
        // The old one goes after the lock: a call takes much with it.
        let old = std::mem::replace(&mut *self.state.lock(), fresh);
        drop(old);
    }

    /// The run is over; its call may go.
    pub(crate) fn end_run(&self) {
        let call = self.state.lock().call.take();
        drop(call);
    }

    /// Stop the run for good. Called on the thread that runs it.
    pub(crate) fn abort_run(&self, problem: Problem) {
        self.state.lock().abort_problem.get_or_insert(problem);
        self.write_slot(self.callback);
    }

    /// Nobody waits for the run any more.
    pub(crate) fn cancel_run(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the script has given way in this run.
    pub(crate) fn was_preempted(&self) -> bool {
        self.preempted.load(Ordering::Relaxed)
    }

    /// Why the run was stopped, if it was.
    pub(crate) fn take_abort_problem(&self) -> Option<Problem> {
        self.state.lock().abort_problem.take()
    }

    /// Whether the script just gave way to others, not to the host.
    pub(crate) fn take_yield(&self) -> bool {
        std::mem::take(&mut self.state.lock().yielding)
    }

    fn on_interrupt(&self, lua: &Lua) -> mlua::Result<VmState> {
        let mut state = self.state.lock();
        if state.abort_problem.is_none() {
            if self.cancelled.load(Ordering::Relaxed) {
                state.abort_problem = Some(Problem::new(
                    moonlark_core::ProblemCode::Cancelled,
                    "the caller went away",
                ));
            } else if state.is_past_deadline(Instant::now()) {
                state.abort_problem = Some(Problem::new(
                    moonlark_core::ProblemCode::Timeout,
                    "the deadline has passed",
                ));
            }
        }
        if state.abort_problem.is_some() {
            // Stays armed: caught once, it is raised again.
            return Err(mlua::Error::runtime("the script was stopped"));
        }
        self.write_slot(std::ptr::null_mut());
        let at_root = lua.current_thread().to_pointer() as usize == state.root;
        if at_root && !state.yielding {
            state.yielding = true;
            self.preempted.store(true, Ordering::Relaxed);
            return Ok(VmState::Yield);
        }
        drop(state);
        // It cannot yield here (a coroutine, a comparator, a metamethod), so the
        // scheduler's work moves to another thread and this one stays behind.
        if tokio::runtime::Handle::try_current().is_ok_and(|runtime| {
            runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread
        }) {
            tokio::task::block_in_place(|| {});
        }
        Ok(VmState::Continue)
    }

    fn write_slot(&self, callback: *mut c_void) {
        // SAFETY: see the impl of Send and Sync.
        unsafe { AtomicPtr::from_ptr(self.slot) }.store(callback, Ordering::Release);
    }
}

/// While it lives, the watchdog looks after the VM that runs on this thread.
pub(crate) struct EnteredVm {
    interrupt: Arc<VmInterrupt>,
    cell: Arc<WatchedThread>,
}

/// Enter a VM for one poll.
pub(crate) fn enter_vm(interrupt: &Arc<VmInterrupt>) -> EnteredVm {
    let watchdog = &*SCRIPT_WATCHDOG;
    let cell = CURRENT_THREAD.with(Clone::clone);
    *cell.running.lock() = Some(RunningVm { interrupt: interrupt.clone(), since: Instant::now() });
    interrupt.state.lock().yielding = false;
    watchdog.active.fetch_add(1, Ordering::SeqCst);
    if watchdog.asleep.load(Ordering::SeqCst) {
        watchdog.thread.unpark();
    }
    EnteredVm { interrupt: interrupt.clone(), cell }
}

impl Drop for EnteredVm {
    fn drop(&mut self) {
        *self.cell.running.lock() = None;
        SCRIPT_WATCHDOG.active.fetch_sub(1, Ordering::SeqCst);
        // A run that is to be aborted stays armed; nobody will resume it.
        if self.interrupt.state.lock().abort_problem.is_none() {
            self.interrupt.write_slot(std::ptr::null_mut());
        }
    }
}

/// What one thread runs at the moment.
#[derive(Default)]
struct WatchedThread {
    running: Mutex<Option<RunningVm>>,
}

struct RunningVm {
    interrupt: Arc<VmInterrupt>,
    since: Instant,
}

struct Watchdog {
    thread: Thread,
    active: AtomicUsize,
    asleep: AtomicBool,
    cells: Mutex<Vec<Weak<WatchedThread>>>,
}

thread_local! {
    static CURRENT_THREAD: Arc<WatchedThread> = {
        let cell = Arc::new(WatchedThread::default());
        let mut cells = SCRIPT_WATCHDOG.cells.lock();
        cells.retain(|cell| cell.strong_count() > 0);
        cells.push(Arc::downgrade(&cell));
        cell
    };
}

static SCRIPT_WATCHDOG: LazyLock<Watchdog> = LazyLock::new(|| {
    let handle = std::thread::Builder::new()
        .name("watchdog".into())
        .spawn(run_watchdog)
        .unwrap_or_else(|error| {
            // Without it no script could be stopped: refuse to run any.
            eprintln!("error[internal]: cannot start the watchdog thread: {error}");
            std::process::exit(1)
        });
    Watchdog {
        thread: handle.thread().clone(),
        active: AtomicUsize::new(0),
        asleep: AtomicBool::new(false),
        cells: Mutex::default(),
    }
});

fn run_watchdog() {
    let watchdog = &*SCRIPT_WATCHDOG;
    let mut idle = 0;
    loop {
        if watchdog.active.load(Ordering::SeqCst) > 0 {
            idle = 0;
            interrupt_overdue_vms(watchdog);
        } else {
            idle += 1;
        }
        if idle < MAX_IDLE_TICKS {
            std::thread::sleep(WATCHDOG_INTERVAL);
            continue;
        }
        watchdog.asleep.store(true, Ordering::SeqCst);
        if watchdog.active.load(Ordering::SeqCst) == 0 {
            std::thread::park();
        }
        watchdog.asleep.store(false, Ordering::SeqCst);
        idle = 0;
    }
}

fn interrupt_overdue_vms(watchdog: &Watchdog) {
    let now = Instant::now();
    for cell in watchdog.cells.lock().iter().filter_map(Weak::upgrade) {
        let mut running = cell.running.lock();
        let Some(running) = running.as_mut() else { continue };
        let interrupt = &running.interrupt;
        let late = interrupt.state.lock().is_past_deadline(now);
        let spent = now.duration_since(running.since) >= SCRIPT_TIME_SLICE;
        if late || spent || interrupt.cancelled.load(Ordering::Relaxed) {
            interrupt.write_slot(interrupt.callback);
            running.since = now;
        }
    }
}
