//! Who makes room in a journal that is full, and what stays.

use super::*;

/// A journal of 8 MB that alice and bob write to.
struct SharedJournal {
    place: Place,
    journal: Arc<Journal>,
}

impl SharedJournal {
    fn new() -> SharedJournal {
        let place = Place::new();
        let settings = JournalSettings { size: 8 << 20, power: false, ..place.settings() };
        let journal = Journal::open(settings).unwrap();
        SharedJournal { place, journal }
    }

    fn begin_run(&self, who: &str, plan: bool, follows: Option<RecordId>) -> RecordId {
        let caller = Caller::new("rest").with_name(who);
        let began = RunBegan { caller, plan, follows, ..run_began("x") };
        let run = began.run;
        self.journal.record_entry(JournalEntry::RunBegan(began));
        run
    }

    /// A call of a run, with its end: as many bytes as arguments as in the answer.
    fn add_call(&self, who: &str, run: RecordId, place: &str, bytes: usize) {
        let caller = Caller::new("rest").with_name(who);
        let args = Value::from("x".repeat(bytes));
        let began = CallBegan { caller, ..call_began(Some(run), Some(place), args.clone()) };
        let answer = Ok(ToolAnswer::Value(args));
        let ended = CallEnded { caller: who.into(), ..call_ended(began.call, 0, answer) };
        self.journal.record_entry(JournalEntry::CallBegan(began));
        self.journal.record_entry(JournalEntry::CallEnded(ended));
    }

    fn end_run(&self, run: RecordId) {
        let answer = Some(Ok(ToolAnswer::Value(Value::Null)));
        let took = Duration::ZERO;
        let ended = RunEnded { run, took, outcome: CallOutcome::Ok, message: None, answer };
        self.journal.record_entry(JournalEntry::RunEnded(ended));
    }

    /// A run with one call of about this size.
    fn add_ended_run(&self, who: &str, bytes: usize) -> RecordId {
        let run = self.begin_run(who, false, None);
        self.add_call(who, run, "0", bytes / 2);
        self.end_run(run);
        run
    }

    /// Whatever goes, it goes between batches.
    async fn settle(&self) {
        for _ in 0..100 {
            self.journal.flush().await.unwrap();
        }
    }

    fn runs_of(&self, who: &str) -> Vec<RecordId> {
        let runs = self.place.reader().list_runs(10_000, None).unwrap();
        let own = runs.iter().filter(|run| run.caller.name.as_deref() == Some(who));
        own.map(|run| run.id).rev().collect()
    }

    /// Whether the exact arguments and answers of its call are there.
    async fn is_replayable(&self, run: RecordId) -> bool {
        self.journal.load_run(run).await.is_ok_and(|record| record.calls.len() == 1)
    }

    fn number(&self, sql: &str) -> i64 {
        let connection = Connection::open(self.place.file()).unwrap();
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn check_usage(&self) {
        let counted = self.number("SELECT coalesce(sum(bytes), 0) FROM journal_usage");
        let found = format!(
            "SELECT coalesce((SELECT sum({}) FROM journal_calls AS call \
             LEFT JOIN journal_exact AS exact ON exact.id = call.id), 0) \
             + coalesce((SELECT sum({}) FROM journal_runs AS run), 0)",
            crate::usage::CALL_BYTES,
            crate::usage::RUN_BYTES
        );
        assert_eq!(counted, self.number(&found));
    }
}

#[tokio::test]
async fn whoever_has_most_on_record_makes_room_and_others_keep_theirs() {
    let shared = SharedJournal::new();
    let ended = shared.add_ended_run("alice", 100_000);
    let running = shared.begin_run("alice", false, None);
    shared.add_call("alice", running, "0", 100_000);
    let plan = shared.begin_run("alice", true, None);
    shared.add_call("alice", plan, "0", 10_000);
    shared.end_run(plan);
    shared.settle().await;
    for _ in 0..60 {
        shared.add_ended_run("bob", 600_000);
        shared.journal.flush().await.unwrap();
    }
    shared.settle().await;
    assert_eq!(shared.runs_of("alice"), [ended, running, plan]);
    for run in [ended, running, plan] {
        assert!(shared.is_replayable(run).await);
    }
    let size = shared.number("PRAGMA page_count") * 4096;
    assert!(size <= 8 << 20, "{size}");
    shared.check_usage();
}

#[tokio::test]
async fn the_journal_is_looked_at_after_much_was_written_and_not_only_by_time() {
    let shared = SharedJournal::new();
    let mut largest = 0;
    for _ in 0..60 {
        shared.add_ended_run("bob", 600_000);
        shared.journal.flush().await.unwrap();
        largest = largest.max(shared.number("PRAGMA page_count") * 4096);
    }
    assert!(largest < 14 << 20, "{largest}");
}

#[tokio::test]
async fn exact_values_of_finished_runs_go_before_what_people_read() {
    let shared = SharedJournal::new();
    let mut runs = Vec::new();
    for _ in 0..40 {
        runs.push(shared.add_ended_run("bob", 600_000));
        shared.journal.flush().await.unwrap();
    }
    shared.settle().await;
    assert_eq!(shared.runs_of("bob"), runs, "all can be read");
    assert!(!shared.is_replayable(runs[0]).await, "the oldest cannot be replayed");
    assert!(shared.is_replayable(runs[39]).await);
    let shown = shared.place.reader().show_run(runs[0]).unwrap();
    assert_eq!(shown.calls.len(), 1);
    assert_eq!(shown.answer, Some(Ok(ToolAnswer::Value(Value::Null))));
    shared.check_usage();
}

#[tokio::test]
async fn when_no_exact_values_are_left_the_oldest_finished_runs_and_calls_go() {
    let shared = SharedJournal::new();
    let mut runs = Vec::new();
    for _ in 0..40 {
        let run = shared.begin_run("bob", false, None);
        let answer = Some(Ok(ToolAnswer::Value(Value::from("x".repeat(600_000)))));
        let took = Duration::ZERO;
        let ended = RunEnded { run, took, outcome: CallOutcome::Ok, message: None, answer };
        shared.journal.record_entry(JournalEntry::RunEnded(ended));
        shared.journal.flush().await.unwrap();
        runs.push(run);
    }
    shared.settle().await;
    let left = shared.runs_of("bob");
    assert!((5..20).contains(&left.len()), "{}", left.len());
    assert_eq!(left, runs[40 - left.len()..]);
    shared.check_usage();
}

#[tokio::test]
async fn a_plan_goes_only_after_it_was_carried_out() {
    let shared = SharedJournal::new();
    let open = shared.begin_run("bob", true, None);
    shared.add_call("bob", open, "0", 100_000);
    shared.end_run(open);
    let done = shared.begin_run("bob", true, None);
    shared.add_call("bob", done, "0", 100_000);
    shared.end_run(done);
    let follows = shared.begin_run("bob", false, Some(done));
    shared.end_run(follows);
    for _ in 0..30 {
        shared.add_ended_run("bob", 600_000);
        shared.journal.flush().await.unwrap();
    }
    shared.settle().await;
    assert!(shared.is_replayable(open).await);
    assert!(!shared.is_replayable(done).await);
}

#[tokio::test]
async fn runs_that_are_not_over_stay_and_whoever_fills_the_journal_with_them_is_stopped() {
    let shared = SharedJournal::new();
    let alice = shared.add_ended_run("alice", 100_000);
    let mut runs = Vec::new();
    for _ in 0..20 {
        let run = shared.begin_run("bob", false, None);
        shared.add_call("bob", run, "0", 300_000);
        shared.journal.flush().await.unwrap();
        runs.push(run);
    }
    shared.settle().await;
    assert_eq!(shared.runs_of("bob"), runs);
    assert_eq!(shared.runs_of("alice"), [alice]);
    let prepare = |who: &str, run| {
        let (caller, args) = (Caller::new("rest").with_name(who), Value::Null);
        let call =
            UpcomingCall { caller: &caller, run: Some(run), tool: "pay", exact_args: Some(&args) };
        shared.journal.prepare_call(call).map(drop)
    };
    let problem = prepare("bob", runs[0]).unwrap_err();
    assert_eq!(
        problem.message,
        "the journal is full of runs of 'bob' that have not ended: 'pay' was not called"
    );
    prepare("alice", alice).unwrap();
    // They end, and what they were told can go.
    runs.iter().for_each(|run| shared.end_run(*run));
    shared.journal.configure(JournalSettings { size: 64 << 20, ..shared.place.settings() });
    shared.add_ended_run("alice", 5_000_000);
    shared.settle().await;
    prepare("bob", runs[0]).unwrap();
}

#[tokio::test]
async fn what_was_interrupted_stays_unless_its_caller_has_more_than_its_share() {
    let place = Place::new();
    let two_hours_ago = SystemTime::now() - Duration::from_secs(7200);
    let began = |who: &str, at| RunBegan {
        at,
        caller: Caller::new("rest").with_name(who),
        ..run_began("x")
    };
    let alice = began("alice", two_hours_ago);
    let old = began("bob", two_hours_ago);
    let recent = began("bob", SystemTime::now());
    let journal = Journal::open(JournalSettings { keep: 10 * HOUR, ..place.settings() }).unwrap();
    for began in [&alice, &old, &recent] {
        journal.record_entry(JournalEntry::RunBegan(began.clone()));
        let bytes = if began.caller == alice.caller { 500_000 } else { 5_000_000 };
        let args = Value::from("x".repeat(bytes));
        let call = call_began(Some(began.run), Some("0"), args);
        let call = CallBegan { caller: began.caller.clone(), at: began.at, ..call };
        journal.record_entry(JournalEntry::CallBegan(call));
    }
    journal.close().await;
    drop(journal);
    let settings = JournalSettings { size: 8 << 20, keep: 10 * HOUR, ..place.settings() };
    let journal = Journal::open(settings).unwrap();
    for _ in 0..50 {
        journal.flush().await.unwrap();
    }
    let left: Vec<RecordId> =
        place.reader().list_runs(10, None).unwrap().iter().map(|run| run.id).rev().collect();
    assert_eq!(left, [alice.run, recent.run]);
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_journal_of_an_earlier_version_learns_how_much_is_whose() {
    let shared = SharedJournal::new();
    shared.add_ended_run("alice", 100_000);
    shared.add_ended_run("bob", 200_000);
    shared.journal.close().await;
    Connection::open(shared.place.file())
        .unwrap()
        .execute_batch("DROP TABLE journal_usage; PRAGMA user_version = 1")
        .unwrap();
    let again = shared.place.journal();
    again.flush().await.unwrap();
    shared.check_usage();
    let bob = shared.number("SELECT bytes FROM journal_usage WHERE caller = 'bob'");
    assert!((200_000..210_000).contains(&bob), "{bob}");
}

#[tokio::test]
async fn a_run_that_is_taken_over_goes_on_with_what_it_has_put_on_record() {
    let shared = SharedJournal::new();
    let run = shared.begin_run("bob", false, None);
    shared.add_call("bob", run, "0", 500_000);
    shared.journal.close().await;
    let SharedJournal { place, journal } = shared;
    drop(journal);
    let settings = JournalSettings { size: 8 << 20, ..place.settings() };
    let journal = Journal::open(settings).unwrap();
    journal.take_over_run(run).await.unwrap();
    let (caller, args) = (Caller::new("rest").with_name("bob"), Value::from("x".repeat(100_000)));
    let call =
        UpcomingCall { caller: &caller, run: Some(run), tool: "pay", exact_args: Some(&args) };
    let problem = journal.prepare_call(call).err().unwrap();
    assert_eq!(
        problem.message,
        "the journal keeps 1 MB of one run, and this run is at that limit: 'pay' was not called"
    );
}
