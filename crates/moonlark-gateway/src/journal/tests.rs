//! What goes on record of calls, and when.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;

use super::ValueCosts;
use super::{
    CallEnded, JournalEntry, JournalRecorder, RecordId, RunBegan, RunRecord, UpcomingCall,
};
use crate::gateway::CallRecords;
use crate::tool_body::ToolBody;
use crate::{Call, Caller, Gateway, Run};
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::{Problem, ProblemCode, Result};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{BoxFuture, CallEffects, Source, SourceKind};
use moonlark_core::{Catalog, Tool, Value};

/// Keeps entries in memory, and whether each was waited for.
#[derive(Default)]
struct Notes {
    kept: Mutex<Vec<(JournalEntry, bool)>>,
    broken: bool,
    /// What is taken is kept, and whether it will survive is never said.
    stalled: bool,
    /// The same, and it will not: the disk has failed since.
    unsynced: bool,
    /// Bytes of arguments, and of an answer, that a call may put on record.
    limit: Option<usize>,
}

impl Notes {
    fn check_bytes(&self, bytes: usize) -> Result<()> {
        match self.limit {
            Some(limit) if bytes > limit => Err(Problem::limit_exceeded("too much on record")),
            _ => Ok(()),
        }
    }
}

impl JournalRecorder for Notes {
    fn record_entry(&self, entry: JournalEntry) {
        self.kept.lock().push((entry, false));
    }

    fn wait_for_room(&self) -> Option<BoxFuture<()>> {
        None
    }

    fn prepare_call(&self, call: UpcomingCall<'_>) -> Result<Option<BoxFuture<()>>> {
        self.check_bytes(
            call.exact_args.map_or(0, |args| ValueCosts::RECORDED_COSTS.value_bytes(args)),
        )
        .map(|()| None)
    }

    fn prepare_answer(
        &self,
        _: Option<RecordId>,
        _: &str,
        answer: &Result<ToolAnswer>,
    ) -> Result<()> {
        self.check_bytes(ValueCosts::RECORDED_COSTS.result_bytes(answer))
    }

    fn record_durably(&self, entry: JournalEntry) -> BoxFuture<Result<()>> {
        if self.broken {
            let problem = Problem::unavailable("the disk is full");
            return Box::pin(std::future::ready(Err(problem)));
        }
        self.kept.lock().push((entry, true));
        if self.stalled {
            return Box::pin(std::future::pending());
        }
        let failed = Err(Problem::unavailable("the disk has failed"));
        Box::pin(std::future::ready(if self.unsynced { failed } else { Ok(()) }))
    }

    fn take_over_run(&self, _: RecordId) -> BoxFuture<Result<RunRecord>> {
        Box::pin(std::future::ready(Err(Problem::internal("no"))))
    }

    fn load_run(&self, run: RecordId) -> BoxFuture<Result<RunRecord>> {
        self.take_over_run(run)
    }
}

struct World {
    gateway: Gateway,
    notes: Arc<Notes>,
    made: Arc<Mutex<Vec<Value>>>,
}

impl World {
    fn new(broken: bool) -> World {
        World::with_notes(Notes { broken, ..Notes::default() })
    }

    fn with_notes(notes: Notes) -> World {
        let made = Arc::<Mutex<Vec<Value>>>::default();
        let tool = |name: &str, effects: CallEffects| {
            let schema = json!({"type": "object", "properties": {"id": {"type": "integer"}}});
            let schema = Schema::compile(schema.as_object().unwrap().clone()).unwrap();
            let made = made.clone();
            let body = ToolBody::from_async_fn(move |_, args| {
                made.lock().push(args.clone());
                async move {
                    if args.get("id") == Some(&Value::Int(0)) {
                        std::future::pending::<()>().await;
                    }
                    if args.get("id") == Some(&Value::Int(-1)) {
                        return Err(Problem::tool_error("no"));
                    }
                    Ok(args)
                }
            });
            let source = Source { kind: SourceKind::Script, name: "x.lua".into() };
            let mut tool = Tool::new(name, Arc::new(source), schema, body);
            tool.effects = effects;
            Arc::new(tool)
        };
        let again = CallEffects { idempotent: true, ..CallEffects::default() };
        let tools = vec![
            tool("write", CallEffects::default()),
            tool("read", CallEffects::READ_ONLY),
            tool("put", again),
        ];
        let notes = Arc::new(notes);
        let catalog = Catalog::new(Arc::default(), tools, &[], vec![]);
        let gateway = Gateway::builder(catalog)
            .records(CallRecords { recorder: Some(notes.clone()), ..CallRecords::default() })
            .build();
        World { gateway, notes, made }
    }

    fn root(&self) -> Call {
        self.gateway.open_call(Caller::new("test")).unwrap()
    }

    /// As a run's script that calls something at `place`.
    fn script(&self, place: &str) -> Call {
        let run = Run::new(&RunBegan::for_script("", [0; 32]), &Default::default());
        self.root().for_run(run).at_call_site(place.into())
    }

    /// Began or ended, the tool or the outcome, and whether it was waited for.
    fn entries(&self) -> Vec<(String, bool)> {
        let word = |entry: &JournalEntry| match entry {
            JournalEntry::CallBegan(began) => began.tool.clone(),
            JournalEntry::CallEnded(ended) => ended.outcome.to_string(),
            other => format!("{other:?}"),
        };
        self.notes.kept.lock().iter().map(|(entry, waited)| (word(entry), *waited)).collect()
    }

    fn ended(&self) -> CallEnded {
        let kept = self.notes.kept.lock();
        let ended = kept.iter().find_map(|(entry, _)| match entry {
            JournalEntry::CallEnded(ended) => Some(ended.clone()),
            _ => None,
        });
        ended.unwrap()
    }
}

fn id(id: i64) -> Value {
    Value::from_fields([("id", Value::Int(id))])
}

#[tokio::test]
async fn a_call_goes_on_record_before_its_body_runs_and_its_end_after() {
    let world = World::new(false);
    world.gateway.call(&world.root(), "write", id(1)).await.unwrap();
    assert_eq!(world.entries(), [("write".into(), false), ("ok".into(), false)]);
    assert_eq!(world.ended().answer, None, "the answer of a call from outside is not kept");
}

#[tokio::test]
async fn only_what_a_script_changes_is_waited_for() {
    for (tool, waited) in [("write", true), ("read", false), ("put", false)] {
        let world = World::new(false);
        world.gateway.call(&world.script("0"), tool, id(1)).await.unwrap();
        assert_eq!(world.entries(), [(tool.into(), waited), ("ok".into(), false)], "{tool}");
        let ended = world.ended();
        assert!(ended.order.is_some(), "{tool}");
        assert!(matches!(ended.answer, Some(Ok(_))), "{tool}");
    }
}

#[tokio::test]
async fn what_cannot_be_put_on_record_first_is_not_called() {
    let world = World::new(true);
    let problem = world.gateway.call(&world.script("0"), "write", id(1)).await.unwrap_err();
    assert_eq!(problem.code, ProblemCode::Unavailable);
    assert!(world.made.lock().is_empty());
    world.gateway.call(&world.script("0"), "read", id(1)).await.unwrap();
    world.gateway.call(&world.root(), "write", id(2)).await.unwrap();
    assert_eq!(*world.made.lock(), [id(1), id(2)]);
}

#[tokio::test]
async fn a_call_that_is_on_record_and_not_made_does_not_look_as_if_it_may_have_happened() {
    let world = World::with_notes(Notes { unsynced: true, ..Notes::default() });
    let problem = world.gateway.call(&world.script("0"), "write", id(1)).await.unwrap_err();
    assert_eq!(world.entries(), [("write".into(), true), ("unavailable".into(), false)]);
    assert_eq!(world.ended().answer, Some(Err(problem)), "it is the same when it is resumed");
    assert!(world.ended().order.is_some());

    let world = World::with_notes(Notes { stalled: true, ..Notes::default() });
    let script = world.script("0");
    assert!(
        futures::FutureExt::now_or_never(world.gateway.call(&script, "write", id(1))).is_none()
    );
    assert_eq!(world.entries(), [("write".into(), true), ("withdrawn".into(), false)]);
    assert_eq!((world.ended().answer, world.made.lock().len()), (None, 0));
}

#[tokio::test]
async fn a_call_that_fails_or_is_given_up_ends_on_record_too() {
    let world = World::new(false);
    world.gateway.call(&world.root(), "write", id(-1)).await.unwrap_err();
    assert_eq!(world.ended().message.as_deref(), Some("no"));
    let root = world.root();
    let call = world.gateway.call(&root, "write", id(0));
    assert!(futures::FutureExt::now_or_never(call).is_none());
    let outcomes: Vec<String> = world.entries().into_iter().map(|(word, _)| word).collect();
    assert_eq!(outcomes, ["write", "tool_error", "write", "cancelled"]);
}

#[tokio::test]
async fn a_call_that_is_refused_is_on_record_with_why() {
    let world = World::new(false);
    let wrong = Value::from_fields([("id", "x".into())]);
    world.gateway.call(&world.root(), "write", wrong).await.unwrap_err();
    assert_eq!(world.entries(), [("write".into(), false), ("bad_request".into(), false)]);
    assert!(world.ended().message.unwrap().contains("id"));
    assert!(world.made.lock().is_empty());
}

#[tokio::test]
async fn a_call_that_is_too_much_for_the_record_is_not_made_and_stops_the_run() {
    let world = World::with_notes(Notes { limit: Some(4), ..Notes::default() });
    let script = world.script("0");
    for tool in ["write", "read", "put"] {
        let problem = world.gateway.call(&script, tool, id(1)).await.unwrap_err();
        assert_eq!((problem.code, &*problem.message), (ProblemCode::Limit, "too much on record"));
    }
    assert!(world.made.lock().is_empty());
    assert_eq!(world.entries(), []);
    assert_eq!(script.run().unwrap().stop_problem().unwrap().message, "too much on record");
    world.gateway.call(&world.root(), "write", id(1)).await.unwrap();
    assert_eq!(*world.made.lock(), [id(1)], "what is not kept exactly is no matter");
}

#[tokio::test]
async fn an_answer_that_is_too_much_for_the_record_is_a_problem_there_and_for_the_script() {
    let world = World::with_notes(Notes { limit: Some(40), ..Notes::default() });
    let source = Source { kind: SourceKind::Script, name: "y.lua".into() };
    let schema = Schema::compile(json!({"type": "object"}).as_object().unwrap().clone()).unwrap();
    let body = ToolBody::from_fn(|_, _| Ok(Value::from("x".repeat(100))));
    let tool = Arc::new(Tool::new("long", Arc::new(source), schema, body));
    world.gateway.publish(Catalog::new(Arc::default(), vec![tool], &[], vec![]));
    let none = || Value::from_fields([]);
    let problem = world.gateway.call(&world.script("0"), "long", none()).await.unwrap_err();
    assert_eq!(problem.message, "too much on record");
    assert_eq!(world.entries(), [("long".into(), true), ("limit".into(), false)]);
    assert_eq!(world.ended().answer, Some(Err(problem)), "it is the same when it is resumed");
    world.gateway.call(&world.root(), "long", none()).await.unwrap();
}
