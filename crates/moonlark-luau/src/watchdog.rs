//! Stops and preempts scripts without slowing them down.
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
use moonlark_core::{Call, Problem};
use parking_lot::Mutex;

/// How often the watchdog looks.
const TICK: Duration = Duration::from_millis(2);
/// How long a script computes before others get their turn.
const SLICE: Duration = Duration::from_millis(6);
/// Looks at nothing before the watchdog goes to sleep: about a tenth of a second.
const IDLE_TICKS: u32 = 50;

/// The interrupt of one VM, and why it should stop.
pub(crate) struct Interrupt {
    slot: *mut *mut c_void,
    callback: *mut c_void,
    state: Mutex<State>,
    cancelled: AtomicBool,
    /// It has given way to others at least once in this run.
    preempted: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The call that runs. Asked for its deadline every time, because that moves
    /// while somebody thinks about what the script asked.
    call: Option<Call>,
    /// Set once and then raised at every interrupt.
    doom: Option<Problem>,
    /// The script's own thread; only there can it yield to the scheduler.
    root: usize,
    /// A yield was asked for in this poll.
    yielding: bool,
}

// SAFETY: `slot` points into the VM's global state and is only written as an
// aligned pointer-sized atomic, which Luau allows from any thread; see above for
// why it is alive.
unsafe impl Send for Interrupt {}
unsafe impl Sync for Interrupt {}

impl State {
    fn is_late(&self, now: Instant) -> bool {
        self.call.as_ref().is_some_and(|call| now >= call.deadline().into_std())
    }
}

impl Interrupt {
    /// Take over the interrupt of `lua`.
    pub(crate) fn install(lua: &Lua) -> mlua::Result<Arc<Interrupt>> {
        // mlua's trampoline turns a safe closure into the callback. It is taken
        // out of the slot again at once: unarmed, it must not be called.
        let shared: Arc<Mutex<Weak<Interrupt>>> = Arc::default();
        let inner = shared.clone();
        lua.set_interrupt(move |lua| match inner.lock().upgrade() {
            Some(interrupt) => interrupt.fired(lua),
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
        let interrupt = Arc::new(Interrupt {
            slot,
            callback,
            state: Mutex::default(),
            cancelled: AtomicBool::new(false),
            preempted: AtomicBool::new(false),
        });
        *shared.lock() = Arc::downgrade(&interrupt);
        interrupt.write(std::ptr::null_mut());
        Ok(interrupt)
    }

    /// Get ready for a run of `root` until the call's deadline.
    pub(crate) fn begin(&self, root: *const c_void, call: Call) {
        self.cancelled.store(false, Ordering::Relaxed);
        self.preempted.store(false, Ordering::Relaxed);
        let fresh = State { call: Some(call), root: root as usize, ..State::default() };
        // The old one goes after the lock: a call takes much with it.
        let old = std::mem::replace(&mut *self.state.lock(), fresh);
        drop(old);
    }

    /// The run is over; its call may go.
    pub(crate) fn end(&self) {
        let call = self.state.lock().call.take();
        drop(call);
    }

    /// Stop the run for good. Called on the thread that runs it.
    pub(crate) fn doom(&self, problem: Problem) {
        self.state.lock().doom.get_or_insert(problem);
        self.write(self.callback);
    }

    /// Nobody waits for the run any more.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the script has given way in this run.
    pub(crate) fn was_preempted(&self) -> bool {
        self.preempted.load(Ordering::Relaxed)
    }

    /// Why the run was stopped, if it was.
    pub(crate) fn take_doom(&self) -> Option<Problem> {
        self.state.lock().doom.take()
    }

    /// Whether the script just gave way to others, not to the host.
    pub(crate) fn take_yield(&self) -> bool {
        std::mem::take(&mut self.state.lock().yielding)
    }

    fn fired(&self, lua: &Lua) -> mlua::Result<VmState> {
        let mut state = self.state.lock();
        if state.doom.is_none() {
            if self.cancelled.load(Ordering::Relaxed) {
                state.doom =
                    Some(Problem::new(moonlark_core::Code::Cancelled, "the caller went away"));
            } else if state.is_late(Instant::now()) {
                state.doom =
                    Some(Problem::new(moonlark_core::Code::Timeout, "the deadline has passed"));
            }
        }
        if state.doom.is_some() {
            // Stays armed: caught once, it is raised again.
            return Err(mlua::Error::runtime("the script was stopped"));
        }
        self.write(std::ptr::null_mut());
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

    fn write(&self, callback: *mut c_void) {
        // SAFETY: see the impl of Send and Sync.
        unsafe { AtomicPtr::from_ptr(self.slot) }.store(callback, Ordering::Release);
    }
}

/// While it lives, the watchdog looks after the VM that runs on this thread.
pub(crate) struct Entered {
    interrupt: Arc<Interrupt>,
    cell: Arc<Cell>,
}

/// Enter a VM for one poll.
pub(crate) fn enter(interrupt: &Arc<Interrupt>) -> Entered {
    let watchdog = &*WATCHDOG;
    let cell = THIS_THREAD.with(Clone::clone);
    *cell.running.lock() = Some(Running { interrupt: interrupt.clone(), since: Instant::now() });
    interrupt.state.lock().yielding = false;
    watchdog.active.fetch_add(1, Ordering::SeqCst);
    if watchdog.asleep.load(Ordering::SeqCst) {
        watchdog.thread.unpark();
    }
    Entered { interrupt: interrupt.clone(), cell }
}

impl Drop for Entered {
    fn drop(&mut self) {
        *self.cell.running.lock() = None;
        WATCHDOG.active.fetch_sub(1, Ordering::SeqCst);
        // A doomed run stays armed; nobody will resume it.
        if self.interrupt.state.lock().doom.is_none() {
            self.interrupt.write(std::ptr::null_mut());
        }
    }
}

/// What one thread runs at the moment.
#[derive(Default)]
struct Cell {
    running: Mutex<Option<Running>>,
}

struct Running {
    interrupt: Arc<Interrupt>,
    since: Instant,
}

struct Watchdog {
    thread: Thread,
    active: AtomicUsize,
    asleep: AtomicBool,
    cells: Mutex<Vec<Weak<Cell>>>,
}

thread_local! {
    static THIS_THREAD: Arc<Cell> = {
        let cell = Arc::new(Cell::default());
        let mut cells = WATCHDOG.cells.lock();
        cells.retain(|cell| cell.strong_count() > 0);
        cells.push(Arc::downgrade(&cell));
        cell
    };
}

static WATCHDOG: LazyLock<Watchdog> = LazyLock::new(|| {
    let handle =
        std::thread::Builder::new().name("watchdog".into()).spawn(watch).unwrap_or_else(|error| {
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

fn watch() {
    let watchdog = &*WATCHDOG;
    let mut idle = 0;
    loop {
        if watchdog.active.load(Ordering::SeqCst) > 0 {
            idle = 0;
            look(watchdog);
        } else {
            idle += 1;
        }
        if idle < IDLE_TICKS {
            std::thread::sleep(TICK);
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

fn look(watchdog: &Watchdog) {
    let now = Instant::now();
    for cell in watchdog.cells.lock().iter().filter_map(Weak::upgrade) {
        let mut running = cell.running.lock();
        let Some(running) = running.as_mut() else { continue };
        let interrupt = &running.interrupt;
        let late = interrupt.state.lock().is_late(now);
        let spent = now.duration_since(running.since) >= SLICE;
        if late || spent || interrupt.cancelled.load(Ordering::Relaxed) {
            interrupt.write(interrupt.callback);
            running.since = now;
        }
    }
}
