//! Tools that count what they did, and a journal: for runs that are interrupted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use moonlark_core::content::ToolAnswer;
use moonlark_core::grant::{Grant, GrantSet};
use moonlark_core::limits::CallLimits;
use moonlark_core::problem::ProtocolError;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{BoxFuture, CallEffects, CallScope, Source, SourceKind, ToolExposure};
use moonlark_core::value::Object;
use moonlark_core::{Catalog, Problem, Result, Tool, Value};
use moonlark_gateway::call_client::{CallClient, ClientQuestion, RequestEnvelope};
use moonlark_gateway::gateway::{CallOptions, CallRecords};
use moonlark_gateway::journal::JournalEntry;
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Call, Caller, Gateway, LogLevel};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use super::notebook::Notebook;
use crate::luau_testing::modules;
use crate::{ExecuteSettings, LuauCheckMode, LuauEngine};

/// What the tools did, by tool and arguments, and how often.
pub(super) type Done = BTreeMap<String, usize>;

pub(super) struct Shop {
    pub(super) gateway: Gateway,
    pub(super) journal: Arc<Notebook>,
    done: Arc<Mutex<Done>>,
    customer: Arc<ShopCustomer>,
}

/// Whoever `shop.ask` asks: says yes, and counts.
#[derive(Default)]
struct ShopCustomer {
    questions: AtomicUsize,
    envelope: RequestEnvelope,
}

impl CallClient for ShopCustomer {
    fn can_answer(&self, _: &ClientQuestion) -> bool {
        true
    }

    fn missing_capability(&self, _: &ClientQuestion) -> Option<ProtocolError> {
        None
    }

    fn ask_question(&self, _: ClientQuestion) -> BoxFuture<Result<Value>> {
        self.questions.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(Value::from_fields([("action", "accept".into())]))))
    }

    fn envelope(&self) -> &RequestEnvelope {
        &self.envelope
    }

    fn owner_id(&self) -> u64 {
        1
    }
}

impl Shop {
    /// With what is on record, and tools that take their time as `pace` says.
    pub(super) fn new(engine: &LuauEngine, entries: &[JournalEntry], pace: u64) -> Shop {
        Self::with_grant(engine, entries, pace, "tool:*")
    }

    /// The same where scripts may only call these tools.
    pub(super) fn with_grant(
        engine: &LuauEngine,
        entries: &[JournalEntry],
        pace: u64,
        grant: &str,
    ) -> Shop {
        let limits = CallLimits { calls: 500, ..CallLimits::default() };
        let grants = vec![grant.parse::<Grant>().unwrap()];
        let scope = CallScope {
            grants: GrantSet::for_agent_script("execute", None, grants),
            limits: limits.clone(),
            ..CallScope::default()
        };
        let max_timeout = limits.timeout;
        let settings = ExecuteSettings {
            scope,
            check: LuauCheckMode::Off,
            max_timeout,
            result: 1 << 16,
            has_saved_scripts: true,
        };
        let done: Arc<Mutex<Done>> = Arc::default();
        let pace = Arc::new(AtomicU64::new(pace));
        let tool =
            |name: &str, effects: CallEffects| tool(name, effects, done.clone(), pace.clone());
        let change = CallEffects::default();
        let mut tools = vec![
            tool("shop.read", CallEffects::READ_ONLY),
            tool("shop.look", CallEffects { idempotent: false, ..CallEffects::READ_ONLY }),
            tool("shop.put", change),
            tool("shop.fail", change),
            tool("shop.set", CallEffects { idempotent: true, ..change }),
        ];
        tools.extend([tool("shop.picture", CallEffects::READ_ONLY), tool("shop.chat", change)]);
        tools.push(tool("shop.ask", change));
        tools.push(Arc::new(engine.execute_tool(settings).unwrap()));
        let catalog = Catalog::new(Arc::new(modules()), tools, &[], vec![]);
        let journal = Notebook::of(entries);
        let gateway = Gateway::builder(catalog)
            .records(CallRecords { recorder: Some(journal.clone()), ..CallRecords::default() })
            .build();
        Shop { gateway, journal, done, customer: Arc::default() }
    }

    /// How often somebody was asked something.
    pub(super) fn questions(&self) -> usize {
        self.customer.questions.load(Ordering::Relaxed)
    }

    /// A call of somebody who can be asked.
    pub(super) fn open_call(&self, caller: Caller) -> Result<Call> {
        let options = CallOptions::from(caller).with_client(Some(self.customer.clone()));
        self.gateway.open_call(options)
    }

    pub(super) fn done(&self) -> Done {
        self.done.lock().clone()
    }

    pub(super) async fn run(&self, script: &str) -> Result<Json> {
        self.execute(json!({"script": script})).await
    }

    /// Go on with the run that is on record.
    pub(super) async fn resume(&self, lost: Option<&str>) -> Result<Json> {
        let id = self.journal.run_id().unwrap().to_string();
        match lost {
            Some(lost) => self.execute(json!({"resume": id, "lost": lost})).await,
            None => self.execute(json!({"resume": id})).await,
        }
    }

    pub(super) async fn execute(&self, args: Json) -> Result<Json> {
        let call = self.gateway.open_call(Caller::new("cli"))?;
        let answer = self.gateway.invoke(&call, "execute", Value::from_json(args)?).await?;
        Ok(answer.into_plain_value().to_json_lossy())
    }
}

fn tool(
    name: &str,
    effects: CallEffects,
    done: Arc<Mutex<Done>>,
    pace: Arc<AtomicU64>,
) -> Arc<Tool> {
    let source = Arc::new(Source { kind: SourceKind::Upstream, name: "shop".to_owned() });
    let Json::Object(schema) = json!({"type": "object"}) else { unreachable!() };
    let own = name.to_owned();
    let body = ToolBody::from_answering_fn(move |call, args| {
        let (done, pace, own) = (done.clone(), pace.clone(), own.clone());
        async move {
            // Some before and some after, so that every order occurs.
            let turns = next(&pace) % 5;
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            let args = args.encode_json("arguments").unwrap();
            *done.lock().entry(format!("{own} {args}")).or_default() += 1;
            for _ in 0..next(&pace) % 3 {
                tokio::task::yield_now().await;
            }
            match own.as_str() {
                "shop.picture" => {
                    let image =
                        json!({"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"});
                    ToolAnswer::from_script_result(Value::from_json(json!({"content": [image]}))?)
                }
                "shop.chat" => {
                    call.log_message(LogLevel::Info, &format!("heard {args}"), None)?;
                    Ok(ToolAnswer::Value(Value::from_fields([("got", args.into())])))
                }
                "shop.ask" => {
                    let method = "elicitation/create".to_owned();
                    let question = ClientQuestion { method, params: Object::new(), name: None };
                    let said = call.ask_caller(question).await?;
                    Ok(ToolAnswer::Value(Value::from_fields([("got", said)])))
                }
                "shop.fail" => Err(Problem::tool_error(format!("no {args}"))),
                _ => Ok(ToolAnswer::Value(Value::from_fields([("got", args.into())]))),
            }
        }
    });
    let mut tool = Tool::new(name, source, Schema::compile(schema).unwrap(), body);
    tool.effects = effects;
    tool.expose = ToolExposure::Code;
    Arc::new(tool)
}

/// A little randomness that repeats.
fn next(pace: &AtomicU64) -> u64 {
    let step = |state: u64| state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    let old = pace.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| Some(step(it)));
    old.unwrap_or_default() >> 40
}
