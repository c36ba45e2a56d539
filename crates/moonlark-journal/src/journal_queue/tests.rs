//! Who waits for room, and whose entries are written next.

use std::time::SystemTime;

use moonlark_core::tool::CallEffects;
use moonlark_core::{Problem, ProblemCode, Value};
use moonlark_gateway::journal::{CallBegan, CallEnded, RedactionScopes, RunBegan, RunEnded};
use moonlark_gateway::{CallOutcome, Caller};

use super::*;

const MB: usize = 1024 * 1024;

fn item() -> JournalQueueItem {
    JournalQueueItem::new(Some(JournalEntry::RunWentOn(RecordId::new())), None)
}

fn caller(name: &str) -> Caller {
    Caller::new("rest").with_name(name)
}

/// A call of `name` with arguments of about `bytes`.
fn call_began(name: &str, run: Option<RecordId>, bytes: usize) -> CallBegan {
    CallBegan {
        call: RecordId::new(),
        parent: None,
        run,
        place: None,
        at: SystemTime::now(),
        tool: "hello".into(),
        source: "hello".into(),
        effects: CallEffects::default(),
        caller: caller(name),
        args: Value::from("x".repeat(bytes)),
        secrets: RedactionScopes::default(),
    }
}

fn call_of(name: &str, bytes: usize) -> JournalQueueItem {
    JournalQueueItem::new(Some(JournalEntry::CallBegan(call_began(name, None, bytes))), None)
}

fn end_of(began: &CallBegan) -> CallEnded {
    CallEnded {
        call: began.call,
        caller: caller_key(&began.caller),
        took: Duration::ZERO,
        outcome: CallOutcome::Ok,
        message: None,
        answer: None,
        order: None,
    }
}

fn room_of(queue: &Arc<JournalQueue>, caller: &Caller) -> Option<BoxFuture<()>> {
    let call = UpcomingCall { caller, run: None, tool: "hello", exact_args: None };
    queue.prepare_call(call).unwrap()
}

/// Whose entries these are.
fn owners(items: &[JournalQueueItem]) -> Vec<String> {
    let owner = |item: &JournalQueueItem| match &item.entry {
        Some(JournalEntry::CallBegan(began)) => began.caller.name().to_owned(),
        Some(JournalEntry::CallEnded(ended)) => ended.caller.to_string(),
        _ => String::new(),
    };
    items.iter().map(owner).collect()
}

#[tokio::test]
async fn a_caller_waits_when_its_lane_is_full_and_goes_on_when_it_is_not() {
    let queue = Arc::new(JournalQueue::default());
    let bob = caller("bob");
    for _ in 0..MAX_CALLER_ENTRIES {
        assert!(room_of(&queue, &bob).is_none());
        queue.push_item(call_of("bob", 0));
    }
    let waiting = tokio::spawn(room_of(&queue, &bob).unwrap());
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    assert_eq!(queue.take_batch(Duration::ZERO).len(), MAX_BATCH_ENTRIES);
    waiting.await.unwrap();
}

#[test]
fn one_caller_with_much_to_write_leaves_room_to_the_others() {
    let queue = Arc::new(JournalQueue::default());
    let (alice, bob) = (caller("alice"), caller("bob"));
    while room_of(&queue, &bob).is_none() {
        queue.push_item(call_of("bob", MB));
    }
    assert!(queue.queued_bytes() < MAX_CALLER_BYTES + 2 * MB, "{}", queue.queued_bytes());
    assert!(room_of(&queue, &alice).is_none());
    assert!(queue.wait_for_room().is_none(), "runs begin");
    // The calls of bob that are in progress end, with answers as large as they like.
    (0..200).for_each(|_| queue.push_item(call_of("bob", MB)));
    assert!(room_of(&queue, &alice).is_none());
    assert!(queue.wait_for_room().is_none());
}

#[test]
fn when_all_is_full_those_wait_that_have_most() {
    let queue = Arc::new(JournalQueue::default());
    for name in ["a", "b", "c", "d", "e"] {
        (0..15).for_each(|_| queue.push_item(call_of(name, MB)));
    }
    queue.push_item(call_of("alice", 0));
    assert!(room_of(&queue, &caller("a")).is_some());
    assert!(room_of(&queue, &caller("alice")).is_none());
    assert!(room_of(&queue, &caller("new")).is_none());
}

#[test]
fn callers_are_written_in_turns_and_each_in_its_order() {
    let queue = JournalQueue::default();
    (0..30).for_each(|_| queue.push_item(call_of("bob", MB)));
    let began = call_began("alice", None, 10);
    queue.push_item(JournalQueueItem::new(Some(JournalEntry::CallBegan(began.clone())), None));
    queue.push_item(JournalQueueItem::new(Some(JournalEntry::CallEnded(end_of(&began))), None));
    let flush = queue.push_caller_flush("alice".into());
    let first = queue.take_batch(Duration::ZERO);
    assert!(first.iter().map(|item| item.weight).sum::<usize>() < MAX_BATCH_BYTES + 2 * MB);
    let entries: Vec<&JournalEntry> = first.iter().filter_map(|item| item.entry.as_ref()).collect();
    let at = |wanted: &JournalEntry| entries.iter().position(|entry| *entry == wanted);
    let (begins, ends) =
        (at(&JournalEntry::CallBegan(began.clone())), at(&JournalEntry::CallEnded(end_of(&began))));
    assert!(begins.is_some() && begins < ends, "{begins:?} {ends:?}");
    assert_eq!(first.iter().filter(|item| item.waits.is_some()).count(), 1, "alice is flushed");
    assert_eq!(flush.0.len(), 1, "and waits for nobody else");
}

#[test]
fn a_batch_has_about_as_many_bytes_of_each_caller() {
    let queue = JournalQueue::default();
    (0..30).for_each(|_| queue.push_item(call_of("bob", MB)));
    (0..300).for_each(|_| queue.push_item(call_of("alice", MB / 10)));
    let taken = owners(&queue.take_batch(Duration::ZERO));
    let count = |name: &str| taken.iter().filter(|owner| *owner == name).count();
    assert!((1..=3).contains(&count("bob")), "{taken:?}");
    assert!((15..=35).contains(&count("alice")), "{taken:?}");
}

#[test]
fn entries_of_a_run_stay_with_its_caller_until_its_end_is_taken() {
    let queue = JournalQueue::default();
    let began = RunBegan { caller: caller("bob"), ..crate::tests::run_began("x") };
    let run = began.run;
    queue.push_item(JournalQueueItem::new(Some(JournalEntry::RunBegan(began)), None));
    let ended = RunEnded {
        run,
        took: Duration::ZERO,
        outcome: CallOutcome::Ok,
        message: None,
        answer: None,
    };
    queue.push_item(JournalQueueItem::new(Some(JournalEntry::RunEnded(ended)), None));
    let lanes = |queue: &JournalQueue| -> Vec<String> {
        queue.state.lock().turns.iter().map(|lane| lane.to_string()).collect()
    };
    assert_eq!(lanes(&queue), ["bob"]);
    assert_eq!(queue.take_batch(Duration::ZERO).len(), 2);
    assert_eq!(queue.state.lock().runs.lane_of(run), None);
    queue.add_run(run, None, 0);
    queue.push_item(JournalQueueItem::new(Some(JournalEntry::RunWentOn(run)), None));
    assert_eq!(lanes(&queue), [""], "one that was taken over");
    assert_eq!(queue.push_caller_flush("alice".into()).0.len(), 2, "its end may be awaited");
}

#[tokio::test]
async fn while_nothing_can_be_written_nobody_waits_and_the_oldest_of_the_largest_go() {
    let queue = Arc::new(JournalQueue::default());
    queue.push_item(call_of("alice", 0));
    (0..MAX_QUEUED_ENTRIES - 1).for_each(|_| queue.push_item(call_of("bob", 0)));
    let waiting = tokio::spawn(room_of(&queue, &caller("bob")).unwrap());
    queue.set_broken(true);
    waiting.await.unwrap();
    assert!(room_of(&queue, &caller("bob")).is_none());
    (0..10).for_each(|_| queue.push_item(call_of("bob", 0)));
    assert_eq!(queue.waiting_and_lost(), (MAX_QUEUED_ENTRIES - 1, 11));
    let taken = owners(&queue.take_batch(Duration::ZERO));
    assert!(taken.iter().any(|owner| owner == "alice"));
}

#[test]
fn refused_calls_that_nobody_waits_with_are_bounded_too() {
    let queue = JournalQueue::default();
    let refuse = |caller: &str| {
        if queue.admit_refused_call(caller) {
            let began = call_began(caller, None, 0);
            let ended = end_of(&began);
            queue.push_item(JournalQueueItem::new(Some(JournalEntry::CallBegan(began)), None));
            queue.push_item(JournalQueueItem::new(Some(JournalEntry::CallEnded(ended)), None));
        }
    };
    (0..3 * MAX_CALLER_ENTRIES).for_each(|_| refuse("bob"));
    refuse("alice");
    let (waiting, lost) = queue.waiting_and_lost();
    assert_eq!((waiting, lost), (4 * MAX_CALLER_ENTRIES, 2 * MAX_CALLER_ENTRIES as u64 + 2));
}

#[test]
fn a_closed_queue_is_emptied_and_takes_no_more() {
    let queue = JournalQueue::default();
    queue.push_item(item());
    queue.close();
    queue.push_item(item());
    assert!(!queue.is_done());
    assert_eq!(queue.take_batch(Duration::from_secs(60)).len(), 1);
    assert!(queue.is_done());
    assert_eq!(queue.waiting_and_lost(), (0, 1));
}

/// A run of bob in a journal of 64 MB: 8 MB of one run, 2 MB of one call.
fn budgeted_run() -> (Arc<JournalQueue>, RecordId) {
    let queue = Arc::new(JournalQueue::default());
    queue.set_journal_size(64 * MB as u64);
    let run = RecordId::new();
    queue.add_run(run, Some("bob".into()), 0);
    (queue, run)
}

fn prepare(queue: &Arc<JournalQueue>, run: RecordId, bytes: usize) -> Result<(), Problem> {
    let args = Value::from("x".repeat(bytes));
    let bob = caller("bob");
    let call = UpcomingCall { caller: &bob, run: Some(run), tool: "pay", exact_args: Some(&args) };
    queue.prepare_call(call).map(drop)
}

#[test]
fn a_run_that_has_its_part_of_the_journal_makes_no_more_calls() {
    let (queue, run) = budgeted_run();
    for _ in 0..7 {
        prepare(&queue, run, MB).unwrap();
    }
    let problem = prepare(&queue, run, MB).unwrap_err();
    assert_eq!(problem.code, ProblemCode::Limit);
    assert_eq!(
        problem.message,
        "the journal keeps 8 MB of one run, and this run is at that limit: 'pay' was not called"
    );
    assert!(problem.hint.unwrap().contains("raise journal.size"));
    queue.set_journal_size(128 * MB as u64);
    prepare(&queue, run, MB).unwrap();
}

#[test]
fn a_call_whose_arguments_or_answer_are_too_large_is_refused_with_the_size() {
    let (queue, run) = budgeted_run();
    let problem = prepare(&queue, run, 3 * MB - 3).unwrap_err();
    let message = "the journal keeps 2 MB of one call, and the arguments of 'pay' are 3 MB: it \
                   was not called";
    assert_eq!(problem.message, message);
    let problem = queue.count_answer(run, "pay", 3 * MB).unwrap_err();
    let message = "the journal keeps 2 MB of one call, which the answer of 'pay' exceeds with 3 \
                   MB: it was called, and the answer is not kept";
    assert_eq!(problem.message, message);
    for _ in 0..8 {
        queue.count_answer(run, "pay", MB).unwrap();
    }
    let problem = queue.count_answer(run, "pay", MB).unwrap_err();
    let message = "the journal keeps 8 MB of one run, which the answer of 'pay' exceeds with 1 \
                   MB: it was called, and the answer is not kept";
    assert_eq!(problem.message, message);
}

#[test]
fn whoever_fills_the_journal_with_runs_that_cannot_go_makes_no_more_calls_in_them() {
    let (queue, run) = budgeted_run();
    queue.set_full_of(Some("alice".into()));
    prepare(&queue, run, 0).unwrap();
    queue.set_full_of(Some("bob".into()));
    let problem = prepare(&queue, run, 0).unwrap_err();
    assert_eq!(
        problem.message,
        "the journal is full of runs of 'bob' that have not ended: 'pay' was not called"
    );
    queue.set_full_of(None);
    prepare(&queue, run, 0).unwrap();
}
