//! The account without VMs: what it grants, refuses and gets back.

use std::sync::atomic::AtomicUsize;

use super::*;

const MB: usize = 1 << 20;

fn account(megabytes: u64) -> Arc<ScriptMemory> {
    Arc::new(ScriptMemory::new(megabytes << 20))
}

fn nobody() -> Caller {
    Caller::new("rest")
}

fn caller(name: &str) -> Caller {
    nobody().with_name(name)
}

/// A script that waits, and holds `megabytes`.
fn waiting(account: &Arc<ScriptMemory>, caller: &Caller, megabytes: usize) -> VmMemory {
    let vm = VmMemory::new(account);
    vm.begin_run(0, 64 * MB, caller).unwrap();
    vm.end_poll(megabytes * MB);
    vm
}

fn figures(account: &ScriptMemory) -> (u32, u32) {
    let now = account.all.0.load(Ordering::Relaxed);
    ((now >> 32) as u32, now as u32)
}

#[test]
fn a_script_may_grow_to_its_own_limit_while_there_is_room() {
    let account = account(1024);
    let vm = VmMemory::new(&account);
    assert_eq!(vm.begin_run(MB, 64 * MB, &nobody()).unwrap(), 64 * MB);
    assert_eq!(figures(&account), (16, 63 * 16), "the rest is reserved");
    vm.end_poll(2 * MB + 1);
    assert_eq!(figures(&account), (33, 0), "only what it holds counts while it waits");
    assert_eq!(vm.begin_poll(), 64 * MB);
    let problem = vm.out_of_memory_problem();
    assert_eq!(
        problem.to_string(),
        "error[limit]: the script used more than 64 MB of memory\n\
         hint: work in smaller pieces, or raise limits.memory in moonlark.toml"
    );
    assert!(!vm.ran_short());
    vm.end_run(MB);
    assert_eq!(figures(&account), (16, 0), "an idle VM counts");
    drop(vm);
    assert_eq!(figures(&account), (0, 0));
}

#[test]
fn whoever_comes_when_the_memory_is_held_is_refused_until_it_is_back() {
    let account = account(64);
    let held = waiting(&account, &nobody(), 57);
    let vm = VmMemory::new(&account);
    let refused = vm.begin_run(0, 64 * MB, &nobody()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "error[rate_limited]: no script can begin while memory is short: all scripts together may \
         hold 64 MB\nhint: try again in 5 seconds, or raise limits.memory_total in moonlark.toml"
    );
    assert_eq!((refused.retry_after, refused.is_retryable()), (Some(5), true));
    assert!(vm.ran_short());
    assert!(account.is_short(), "and no idle VM is kept");
    drop(held);
    assert!(!account.is_short());
    vm.begin_run(0, 64 * MB, &nobody()).unwrap();
    assert!(!vm.ran_short());
    let families = account.metric_families();
    let values: Vec<String> =
        families.iter().map(|it| format!("{:?}", it.samples[0].value)).collect();
    assert_eq!(values, ["Number(0.0)", "Number(67108864.0)", "Number(1.0)"]);
}

#[test]
fn a_script_that_runs_gets_half_of_what_is_left_and_in_the_end_a_little() {
    let account = account(64);
    let first = waiting(&account, &nobody(), 1);
    // Without the last eighth: (63 - 8) / 2.
    assert_eq!(first.begin_poll(), MB + 55 * MB / 2);
    first.end_poll(28 * MB);
    let second = waiting(&account, &nobody(), 26);
    assert_eq!(first.begin_poll(), 29 * MB, "54 of 64 are held: one more at a time");
    first.end_poll(29 * MB);
    second.end_poll(35 * MB);
    assert_eq!(first.begin_poll(), 29 * MB, "nothing is left");
    assert_eq!(
        first.out_of_memory_problem().to_string(),
        "error[unavailable]: the script needed more memory than is left: all scripts together may \
         hold 64 MB\nhint: try again later, or raise limits.memory_total in moonlark.toml"
    );
    assert!(first.ran_short() && first.out_of_memory_problem().is_retryable());
}

#[test]
fn a_caller_leaves_a_quarter_to_others() {
    let account = account(64);
    let (bob, alice) = (caller("bob"), caller("alice"));
    let his = waiting(&account, &bob, 40);
    let more = VmMemory::new(&account);
    assert_eq!(more.begin_run(0, 64 * MB, &bob).unwrap(), MB, "40 of his 48 are held");
    assert_eq!(
        more.out_of_memory_problem().message,
        "the script needed more memory than is left: the scripts of one caller may hold 48 MB"
    );
    more.end_poll(3 * MB);
    let refused = VmMemory::new(&account).begin_run(0, 64 * MB, &bob).unwrap_err();
    assert_eq!(
        refused.message,
        "no script can begin while memory is short: the scripts of one caller may hold 48 MB"
    );
    let hers = VmMemory::new(&account);
    assert_eq!(hers.begin_run(0, 8 * MB, &alice).unwrap(), 13 * MB / 2);
    // His idle VM counts against no share.
    his.end_run(40 * MB);
    assert!(VmMemory::new(&account).begin_run(0, 64 * MB, &bob).is_ok());
    drop((his, more, hers));
    assert_eq!(figures(&account), (0, 0));
    assert!(account.callers.lock().values().all(|it| it.strong_count() == 0));
}

#[test]
fn loading_a_script_is_never_refused() {
    let account = account(64);
    let _held = waiting(&account, &nobody(), 64);
    let vm = VmMemory::new(&account);
    assert_eq!(vm.begin_run(MB, 64 * MB, &Caller::new("load")).unwrap(), 2 * MB);
}

/// Eight threads with scripts that each take all they get.
#[test]
fn scripts_that_grow_at_the_same_time_never_hold_more_than_the_total() {
    let account = account(100);
    let most = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (account, most) = (&account, &most);
            scope.spawn(move || {
                let caller = caller(if number % 2 == 0 { "bob" } else { "alice" });
                let mut held = Vec::new();
                for round in 0..2000_usize {
                    let vm = VmMemory::new(account);
                    if let Ok(limit) = vm.begin_run(0, 16 * MB, &caller) {
                        // One byte stands for nothing: a VM cannot be told zero.
                        vm.end_poll(limit & !1);
                        vm.end_poll(vm.begin_poll() & !1);
                        held.push(vm);
                    }
                    let (settled, reserved) = figures(account);
                    most.fetch_max((settled + reserved) as usize, Ordering::Relaxed);
                    if round % 7 == number {
                        held.truncate(held.len() / 2);
                    }
                }
            });
        }
    });
    let most = most.into_inner();
    assert!(most <= 1600, "{most}");
    assert!(most > 1000, "{most}");
    assert_eq!(figures(&account), (0, 0));
}

#[test]
fn the_default_is_half_of_the_machine_and_a_few_scripts_at_least() {
    let (gb, mb) = (1_u64 << 30, 1_u64 << 20);
    assert_eq!(default_total_bytes(16 * gb, 64 * mb), 8 * gb);
    assert_eq!(default_total_bytes(400 * mb, 64 * mb), 256 * mb);
    assert_eq!(default_total_bytes(256 * mb, 64 * mb), 192 * mb, "the machine needs some too");
    assert_eq!(default_total_bytes(16 * gb, 0), 8 * gb);
}
