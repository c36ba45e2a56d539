//! Scripts of every kind, interrupted at every entry of the journal.
//!
//! What a crash leaves is a journal that ends somewhere, and tools that have
//! done what is answered in it, and perhaps what is only begun. From there the
//! run must come to its end, with every change made exactly once.

mod written;

use std::cell::Cell;
use std::collections::BTreeMap;

use moonlark_core::ProblemCode;
use moonlark_core::tool::CallEffects;
use moonlark_gateway::journal::JournalEntry;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tokio::runtime::Runtime;

use super::shop::{Done, Shop};
use crate::LuauEngine;
use crate::luau_testing::modules;
use written::Script;

/// Scripts that are tried; each is cut in some forty places.
const SCRIPTS: u32 = 32;

#[test]
fn a_run_that_is_cut_anywhere_is_resumed_with_every_change_made_once() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let lab = Lab { runtime: runtime.unwrap(), engine: LuauEngine::new(&modules()).unwrap() };
    // The same ones every time, unless proptest's own variables say otherwise.
    let asked = |name: &str| std::env::var_os(name).is_some();
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if !asked("PROPTEST_CASES") {
        config.cases = SCRIPTS;
    }
    if !asked("PROPTEST_RNG_SEED") {
        config.rng_seed = RngSeed::Fixed(8);
    }
    let cuts = Cell::new(0);
    let cases = (written::script(), proptest::num::u64::ANY);
    let ran = TestRunner::new(config).run(&cases, |(script, pace)| {
        cuts.set(cuts.get() + lab.try_every_cut(&script, pace));
        Ok(())
    });
    if let Err(error) = ran {
        panic!("{error}");
    }
    println!("{} cuts", cuts.get());
    assert!(cuts.get() > 500, "only {} cuts", cuts.get());
}

struct Lab {
    runtime: Runtime,
    engine: LuauEngine,
}

impl Lab {
    /// How many cuts there were.
    fn try_every_cut(&self, script: &Script, pace: u64) -> usize {
        let text = script.text();
        let first = Shop::new(&self.engine, &[], pace);
        let whole = self.runtime.block_on(first.run(&text));
        let whole = whole.unwrap_or_else(|problem| panic!("{problem}\n{text}"));
        let entries = first.journal.entries();
        let at = |is: fn(&JournalEntry) -> bool| entries.iter().position(is).expect(&text);
        let began = at(|it| matches!(it, JournalEntry::RunBegan(_)));
        let end = at(|it| matches!(it, JournalEntry::RunEnded(_)));
        for cut in began + 1..=end {
            let about = || format!("cut {cut} of {} with pace {pace}:\n{text}", entries.len());
            let before = &entries[..cut];
            let then = Then::of(before);

            // What may have happened is asked about, and nothing else is done.
            if then.doubtful > 0 {
                let shop = Shop::new(&self.engine, before, pace ^ 7);
                let problem = self.runtime.block_on(shop.resume(None)).unwrap_err();
                assert_eq!(problem.code, ProblemCode::MayHaveHappened, "{problem} {}", about());
                then.check_answered(&shop.done(), &about);
            }

            // It has not happened.
            let shop = Shop::new(&self.engine, before, pace ^ 1);
            let ended = self.runtime.block_on(shop.resume(Some("retry")));
            let ended = ended.unwrap_or_else(|problem| panic!("{problem} {}", about()));
            then.check_answered(&shop.done(), &about);
            for (call, times) in then.with(&shop.done()) {
                assert_eq!(times, 1, "{call}: {}", about());
            }
            if script.is_ordered() {
                assert_eq!(ended, whole, "{}", about());
            }

            // And once more, from all that is on record now. Only calls that the script
            // does not wait for are not: they were cancelled at its end, if they had begun.
            let mut after = shop.journal.entries();
            after.retain(|entry| !matches!(entry, JournalEntry::RunEnded(_)));
            let shop = Shop::new(&self.engine, &after, pace ^ 2);
            let again = self.runtime.block_on(shop.resume(Some("assume-done")));
            let again = again.unwrap_or_else(|problem| panic!("{problem} {}", about()));
            assert_eq!(again, ended, "{}", about());
            Then::of(&after).check_answered(&shop.done(), &about);
            if script.waits_for_all() {
                assert!(shop.done().is_empty(), "{:?} {}", shop.done(), about());
            }
        }
        end - began
    }
}

/// What the tools had done when the journal was cut.
struct Then {
    /// Calls with an answer on record.
    answered: Done,
    /// Those of them that change something.
    changed: Done,
    /// Calls that may have happened.
    doubtful: usize,
}

impl Then {
    fn of(entries: &[JournalEntry]) -> Then {
        let mut open = BTreeMap::new();
        let (mut answered, mut changed) = (Done::new(), Done::new());
        for entry in entries {
            match entry {
                JournalEntry::CallBegan(began) if began.place.is_some() => {
                    open.insert(began.call, began.clone());
                }
                JournalEntry::CallEnded(ended) if ended.answer.is_some() => {
                    let Some(began) = open.remove(&ended.call) else { continue };
                    let name =
                        format!("{} {}", began.tool, began.args.encode_json("arguments").unwrap());
                    if is_change(began.effects) {
                        *changed.entry(name.clone()).or_default() += 1;
                    }
                    *answered.entry(name).or_default() += 1;
                }
                _ => {}
            }
        }
        let may_repeat = |effects: CallEffects| effects.read_only || effects.idempotent;
        let doubtful = open.values().filter(|began| !may_repeat(began.effects)).count();
        Then { answered, changed, doubtful }
    }

    /// Nothing that is answered was done again. All calls differ in their
    /// arguments.
    fn check_answered(&self, done: &Done, about: &dyn Fn() -> String) {
        for call in self.answered.keys() {
            assert!(!done.contains_key(call), "{call} was made again: {}", about());
        }
    }

    /// The changes that were made before and since.
    fn with(&self, done: &Done) -> Done {
        let mut all = self.changed.clone();
        for (call, times) in done {
            if !call.starts_with("shop.read") && !call.starts_with("shop.look") {
                *all.entry(call.clone()).or_default() += times;
            }
        }
        all
    }
}

fn is_change(effects: CallEffects) -> bool {
    !effects.read_only
}
