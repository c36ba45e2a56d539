//! What can be seen of a server: metrics, traces, logs. Collected as an operator
//! would, and judged by the parsers of Prometheus and OpenTelemetry.
//!
//! `observability/install.sh` installs those into `target/observability`.

mod collector;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Instant;

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::apis::shop::{ORDER, Shop};
use crate::code_mode::upstream::{Offer, Reply, Upstream, text};
use crate::harness::{PATIENCE, Project, Server, eventually};
use crate::processes::{signal, wait_for_death};
use collector::{Collector, Manner, judged, tree};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const ROOT: &str = "b7ad6b7169203331";

const NOOP: &str = r#"
tool = { name = "noop", description = "Does nothing", annotations = { read_only = true } }
function tool.execute(params, context)
    return "done"
end
"#;

const BAD: &str = r#"
tool = { name = "bad", description = "Fails" }
function tool.execute(params, context)
    error("no")
end
"#;

const OUTER: &str = r#"
tool = { name = "outer", description = "Calls another" }
function tool.execute(params, context)
    log.info("in the middle of it")
    return context.call("noop", {})
end
"#;

/// A project with tools, an upstream whose calls meet, and an API.
fn project(upstream: &Upstream, shop: &Shop, more: &str) -> Project {
    let config = format!(
        r#"
        {more}
        [mcp_servers.far]
        url = "{}"
        [apis.shop]
        spec = "shop.yaml"
        expose = "direct"
        headers = {{ X-Key = "k" }}
        [tools.script.outer]
        path = "tools/outer.lua"
        allow = ["tool:*"]
        [limits]
        calls = 20000
        [execute]
        max_timeout = 300
        "#,
        upstream.url
    );
    Project::new(&[
        ("moonlark.toml", &config),
        ("shop.yaml", &shop.document()),
        ("parts/order.yaml", ORDER),
        ("tools/noop.lua", NOOP),
        ("tools/bad.lua", BAD),
        ("tools/outer.lua", OUTER),
    ])
}

fn upstream() -> Upstream {
    let meets = |_: &Value| Reply::Together(2, text("met"));
    Upstream::start(vec![Offer::new("meet", json!({}), meets), Offer::of("hi", text("hi"))])
}

fn connected(server: &Server) {
    eventually("all sources", || {
        let sources = server.get("/sources").json();
        let all = sources["upstreams"].as_array().unwrap().clone();
        if all.len() == 2 && all.iter().all(|it| it["state"] == "ready") {
            Ok(())
        } else {
            Err(sources.to_string())
        }
    });
}

/// The value of a sample of `/metrics`, by its labels.
fn sample(families: &Value, family: &str, name: &str, labels: Value) -> Option<f64> {
    let samples = families[family]["samples"].as_array()?;
    samples.iter().find(|it| it[0] == name && it[1] == labels)?[2].as_f64()
}

fn metrics(server: &Server) -> Value {
    let answer = server.get("/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    judged("prometheus", &answer.text())
}

#[test]
#[ignore = "needs tests/observability/install.sh: run ./test"]
fn what_is_counted_is_at_metrics_as_prometheus_reads_it() {
    let (far, shop) = (upstream(), Shop::open());
    let project = project(&far, &shop, "");
    let server = project.serve();
    connected(&server);
    for _ in 0..3 {
        server.post("noop", &json!({}));
    }
    server.post("bad", &json!({}));
    server.post("outer", &json!({}));
    server.post("far.hi", &json!({}));
    server.post("shop.listOrders", &json!({"state": "neither"}));
    server.post("execute", &json!({"script": "return sdk.tools.noop({})"}));
    let read = metrics(&server);
    let calls = |source: &str, kind: &str, outcome: &str| {
        let labels = json!({"source": source, "kind": kind, "outcome": outcome});
        sample(&read, "moonlark_calls", "moonlark_calls_total", labels)
    };
    assert_eq!(calls("tools/noop.lua", "script", "ok"), Some(5.0));
    assert_eq!(calls("tools/bad.lua", "script", "tool_error"), Some(1.0));
    assert_eq!(calls("tools/outer.lua", "script", "ok"), Some(1.0));
    assert_eq!(calls("far", "upstream", "ok"), Some(1.0));
    assert_eq!(calls("shop", "api", "bad_request"), Some(1.0));
    assert_eq!(calls("moonlark", "builtin", "ok"), Some(1.0));
    let took = |name: &str, labels: Value| {
        let family = "moonlark_call_duration_seconds";
        sample(&read, family, &format!("{family}_{name}"), labels)
    };
    let noop = json!({"source": "tools/noop.lua", "kind": "script"});
    assert_eq!(took("count", noop.clone()), Some(5.0));
    let all = json!({"source": "tools/noop.lua", "kind": "script", "le": "+Inf"});
    assert_eq!(took("bucket", all), Some(5.0));
    assert!(took("sum", noop).is_some_and(|sum| sum > 0.0));
    let one = |family: &str| sample(&read, family, family, json!({}));
    assert_eq!(one("moonlark_runs_in_progress"), Some(0.0));
    assert_eq!(one("moonlark_outside_calls_in_progress"), Some(0.0));
    assert_eq!(one("moonlark_outside_calls_limit"), Some(4000.0));
    assert_eq!(one("moonlark_approvals_waiting"), Some(0.0));
    assert_eq!(one("moonlark_journal_up"), Some(1.0));
    assert!(one("process_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6));
    assert!(one("process_open_fds").is_some_and(|files| files > 3.0));
    let runs = sample(&read, "moonlark_runs", "moonlark_runs_total", json!({"outcome": "ok"}));
    assert_eq!(runs, Some(1.0));
    let far = json!({"source": "far"});
    assert_eq!(sample(&read, "moonlark_source_up", "moonlark_source_up", far.clone()), Some(1.0));
    let connects = "moonlark_source_connects";
    assert_eq!(sample(&read, connects, &format!("{connects}_total"), far), Some(1.0));
    let written = "moonlark_journal_entries_total";
    eventually("the journal's entries", || {
        let count = sample(&metrics(&server), "moonlark_journal_entries", written, json!({}));
        // Nine calls from outside and below, a run; each begins and ends.
        if count >= Some(20.0) { Ok(()) } else { Err(format!("{count:?}")) }
    });
}

#[test]
#[ignore = "needs tests/observability/install.sh: run ./test"]
fn the_spans_of_a_run_are_the_tree_of_what_it_called_and_go_on_upstream() {
    let (far, shop, collector) = (upstream(), Shop::open(), Collector::start(Manner::Takes));
    let telemetry = format!("telemetry = {{ otlp = {:?}, service = \"suite\" }}", collector.url);
    let project = project(&far, &shop, &telemetry);
    let server = project.serve();
    connected(&server);
    let script = r#"
        local a, b = far.meet({}), far.meet({})
        await_all({a, b})
        sdk.tools.outer({})
        pcall(function() sdk.tools.bad({}) end)
        return sdk.shop.listOrders({ state = "open" })
    "#;
    let meta = json!({"traceparent": PARENT, "tracestate": "vendor=1"});
    let call = json!({"name": "execute", "arguments": {"script": script}, "_meta": meta});
    let answer = server.mcp("tools/call", call);
    assert_ne!(answer["result"]["isError"], true, "{answer}");
    let spans = collector.spans(11);
    assert!(spans.iter().all(|span| span.text("trace") == TRACE), "{spans:#?}");
    assert!(spans.iter().all(|span| span.text("service") == "suite"));
    assert_eq!(
        tree(&spans, ROOT),
        [
            "tools/call execute (server)",
            "  run (internal)",
            "    execute_tool bad (internal) failed",
            "    execute_tool far.meet (internal)",
            "      tools/call meet (client)",
            "    execute_tool far.meet (internal)",
            "      tools/call meet (client)",
            "    execute_tool outer (internal)",
            "      execute_tool noop (internal)",
            "    execute_tool shop.listOrders (internal)",
            "      GET /orders (client)",
        ]
    );
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.text("id")).collect();
    assert_eq!(ids.len(), 11, "every span has an id of its own");
    // What the servers saw is below the very spans that were told.
    let clients = |name: &str| -> BTreeSet<String> {
        let named = spans.iter().filter(|span| span.text("name") == name);
        named.map(|span| format!("00-{TRACE}-{}-01", span.text("id"))).collect()
    };
    let seen = far.seen().carried;
    assert_eq!(seen.len(), 2);
    for key in ["header", "meta"] {
        let parents = seen.iter().map(|it| it[key]["traceparent"].as_str().unwrap().to_owned());
        assert_eq!(parents.collect::<BTreeSet<_>>(), clients("tools/call meet"), "{key}");
        assert!(seen.iter().all(|it| it[key]["tracestate"] == "vendor=1"), "{seen:?}");
    }
    let arrived = shop.last();
    let parent = arrived.headers["traceparent"].to_str().unwrap().to_owned();
    assert_eq!(BTreeSet::from([parent]), clients("GET /orders"));
    let of = |name: &str| spans.iter().find(|span| span.text("name") == name).unwrap();
    let asked = of("tools/call meet");
    assert_eq!(asked.attribute("mcp.method.name"), "tools/call");
    assert_eq!(asked.attribute("gen_ai.tool.name"), "meet");
    assert_eq!(asked.attribute("network.transport"), "tcp");
    assert_eq!(asked.attribute("server.address"), "127.0.0.1");
    let got = of("GET /orders");
    assert_eq!(got.attribute("http.request.method"), "GET");
    assert_eq!(got.attribute("http.response.status_code"), 200);
    assert_eq!(got.attribute("server.port"), shop.port);
    assert_eq!(of("execute_tool bad").attribute("error.type"), "tool_error");
    let run = of("run").attribute("moonlark.run.id").as_str().unwrap();
    assert_eq!(server.get(&format!("/runs/{run}")).status, 200, "the journal knows it");
    assert!(!collector.arrived("/v1/traces").iter().any(|it| it.body.contains("open")));
}

#[test]
fn a_trace_that_comes_in_is_handed_on_also_where_nobody_collects_it() {
    let (far, shop) = (upstream(), Shop::open());
    let project = project(&far, &shop, "");
    let server = project.serve();
    connected(&server);
    let headers = |parent: &'static str| {
        [("Content-Type", "application/json"), ("traceparent", parent), ("tracestate", "v=1")]
    };
    let last = || far.seen().carried.pop().unwrap();
    server.request("POST", "/tools/far.hi", &headers(PARENT), b"{}");
    let carried = json!({"traceparent": PARENT, "tracestate": "v=1"});
    assert_eq!(last(), json!({"header": carried, "meta": carried}));
    server.request("POST", "/tools/shop.listOrders", &headers(PARENT), b"{}");
    assert_eq!(shop.last().headers["traceparent"], PARENT);
    // By the headers of MCP over HTTP, in both of its ways: `_meta` comes first.
    let params = |meta: Value| json!({"name": "far__hi", "arguments": {}, "_meta": meta});
    for more in [json!({}), json!({"progressToken": 1})] {
        let extra = [("traceparent", PARENT), ("tracestate", "v=1")];
        crate::harness::mcp(&server.address, &extra, "tools/call", params(more.clone()));
        assert_eq!(last(), json!({"header": carried, "meta": carried}), "{more}");
    }
    // What is malformed is not a trace, and is not handed on as one.
    for bad in ["nonsense", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
        server.request("POST", "/tools/far.hi", &headers(bad), b"{}");
        assert_eq!(last(), json!({"header": {}, "meta": {}}), "{bad}");
        server.mcp("tools/call", params(json!({"traceparent": bad, "tracestate": "v=1"})));
        assert_eq!(last(), json!({"header": {}, "meta": {}}), "{bad}");
    }
    server.post("far.hi", &json!({}));
    assert_eq!(last(), json!({"header": {}, "meta": {}}));
}

#[test]
#[ignore = "needs tests/observability/install.sh: run ./test"]
fn the_environment_of_opentelemetry_is_enough_and_what_is_left_is_sent_at_the_end() {
    let collector = Collector::start(Manner::Takes);
    let project = Project::new(&[("tools/noop.lua", NOOP)]);
    let env = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hidden"),
        ("OTEL_SERVICE_NAME", "by-environment"),
    ];
    let server = project.serve_with(&[], &env);
    for _ in 0..3 {
        server.post("noop", &json!({}));
    }
    signal(server.pid(), libc::SIGTERM);
    wait_for_death(server.pid());
    let spans = collector.spans(3);
    assert_eq!(spans.len(), 3);
    assert!(spans.iter().all(|span| span.text("service") == "by-environment"));
    let traces: BTreeSet<&str> = spans.iter().map(|span| span.text("trace")).collect();
    assert_eq!(traces.len(), 3, "each call from outside is a trace of its own");
    let sent = collector.arrived("/v1/metrics");
    let read = judged("metrics", &sent.last().unwrap().body);
    let noop = json!({"source": "tools/noop.lua", "kind": "script"});
    assert_eq!(read["moonlark.call_duration"]["points"], json!([[noop, 3]]));
    assert_eq!(read["moonlark.call_duration"]["unit"], "s");
    let ended = json!({"source": "tools/noop.lua", "kind": "script", "outcome": "ok"});
    assert_eq!(read["moonlark.calls"]["points"], json!([[ended, 3.0]]));
    assert_eq!(read["moonlark.calls"]["kind"], "sum");
    for arrived in sent.iter().chain(&collector.arrived("/v1/traces")) {
        assert_eq!(arrived.headers["authorization"], "Bearer hidden");
        assert_eq!(arrived.headers["content-type"], "application/json");
        assert!(!arrived.body.contains("hidden"));
    }
}

/// More calls than spans may wait, while the collector does as it likes.
#[test]
#[ignore = "needs tests/observability/install.sh: run ./test"]
fn a_collector_that_is_gone_silent_or_failing_holds_up_no_call_and_takes_no_memory() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = Collector::start(Manner::Silent);
    let failing = Collector::start(Manner::Answers(StatusCode::SERVICE_UNAVAILABLE));
    let refusing = Collector::start(Manner::Answers(StatusCode::FORBIDDEN));
    let gone = format!("http://{gone}");
    for (what, url) in [
        ("gone", &gone),
        ("silent", &silent.url),
        ("failing", &failing.url),
        ("refusing", &refusing.url),
    ] {
        let config = format!(
            "[telemetry]\notlp = {url:?}\ninterval = \"100ms\"\n[limits]\ncalls = 20000\n\
             [execute]\nmax_timeout = 300"
        );
        let project = Project::new(&[("moonlark.toml", &config), ("tools/noop.lua", NOOP)]);
        let server = project.serve();
        let script = "for i = 1, 5000 do sdk.tools.noop({}) end return 'all'";
        let call = json!({"script": script, "timeout": 200});
        assert_eq!(server.post("execute", &call).1["result"], "all", "{what}");
        let read = metrics(&server);
        let spans = |outcome: &str| {
            let (family, labels) = ("moonlark_telemetry_spans", json!({"outcome": outcome}));
            sample(&read, family, &format!("{family}_total"), labels).unwrap()
        };
        let waiting = "moonlark_telemetry_spans_waiting";
        let waiting = sample(&read, waiting, waiting, json!({})).unwrap();
        assert!(waiting <= 4096.0, "{what}: {waiting}");
        assert_eq!(spans("sent"), 0.0, "{what}");
        assert!(spans("lost") > 0.0, "{what}");
        server.log.wait_for("takes no traces");
        let ending = Instant::now();
        signal(server.pid(), libc::SIGTERM);
        wait_for_death(server.pid());
        assert!(ending.elapsed() < PATIENCE / 2, "{what}: it ends all the same");
    }
}

#[test]
#[ignore = "needs tests/observability/install.sh: run ./test"]
fn a_collector_that_comes_back_is_sent_what_waited() {
    let collector = Collector::start(Manner::Answers(StatusCode::SERVICE_UNAVAILABLE));
    let config = format!("[telemetry]\notlp = {:?}\nmetrics = false", collector.url);
    let project = Project::new(&[("moonlark.toml", &config), ("tools/noop.lua", NOOP)]);
    let server = project.serve();
    server.post("noop", &json!({}));
    server.log.wait_for("takes no traces");
    collector.set(Manner::Takes);
    server.log.wait_for("takes traces again");
    let last = collector.arrived("/v1/traces").pop().unwrap();
    assert_eq!(judged("traces", &last.body)[0]["name"], "execute_tool noop");
}

#[test]
fn the_log_is_one_object_a_line_with_the_trace_it_belongs_to() {
    let config = "[log]\nformat = \"json\"\nlevel = \"debug\"\n\
                  [tools.script.outer]\npath = \"tools/outer.lua\"\nallow = [\"tool:*\"]";
    let files = [("moonlark.toml", config), ("tools/noop.lua", NOOP), ("tools/outer.lua", OUTER)];
    let project = Project::new(&files);
    let server = project.serve();
    let headers = [("Content-Type", "application/json"), ("traceparent", PARENT)];
    server.request("POST", "/tools/outer", &headers, b"{}");
    let line = |text: &str| -> Value { serde_json::from_str(&server.log.wait_for(text)).unwrap() };
    let mut said = line("in the middle of it");
    let time: jiff::Timestamp = said["time"].as_str().unwrap().parse().unwrap();
    assert!(time.duration_until(jiff::Timestamp::now()).abs() < jiff::SignedDuration::from_mins(5));
    said.as_object_mut().unwrap().remove("time");
    let expected = json!({
        "level": "info",
        "target": "script",
        "message": "outer: in the middle of it",
        "trace_id": TRACE,
    });
    assert_eq!(said, expected);
    let call = line("\"tool\":\"outer\"");
    assert_eq!(
        (&call["level"], &call["target"], &call["trace_id"]),
        (&json!("debug"), &json!("call"), &json!(TRACE))
    );
    let fields = json!({"tool": "outer", "surface": "rest", "depth": 1, "code": "ok"});
    assert_eq!(call["fields"], fields);
}

#[test]
fn the_form_of_the_log_on_the_command_line_comes_before_the_configuration() {
    let config = "[log]\nformat = \"json\"\nlevel = \"error\"";
    let project = Project::new(&[("moonlark.toml", config), ("tools/noop.lua", NOOP)]);
    // Both say something else: it could not be waited for otherwise.
    let server = project.serve_with(&["--log-format", "text", "--verbose"], &[]);
    server.post("noop", &json!({}));
    let line = server.log.wait_for("tool=\"noop\"");
    assert!(serde_json::from_str::<Value>(&line).is_err(), "{line}");
    project.write("moonlark.toml", "[log]\nlevel = \"no=such=thing\"");
    let refused = project.run(&["check"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("log.level: is no level"), "{said}");
}
