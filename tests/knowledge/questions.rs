//! Questions in users' words about this project's own guide: what is wanted must
//! be among the first three answers, most of the time.

use super::{names, run, run_json};
use crate::harness::{Project, repo};

/// The least share of questions that are answered by one of the first three
/// documents, and by the first.
const AMONG_THREE: f64 = 0.85;
const FIRST: f64 = 0.6;

/// What somebody asks, and the pages that answer it.
const QUESTIONS: [(&str, &[&str]); 36] = [
    ("how do I let a script talk to a service on localhost", &["safety.md"]),
    ("keep api keys out of the log", &["safety.md"]),
    ("how much memory may one script use", &["safety.md"]),
    ("can a script read files outside of its folder", &["safety.md"]),
    ("where does it look for the config file", &["operating.md"]),
    ("do I have to restart after editing a script", &["operating.md"]),
    ("something is broken, which command tells me what", &["operating.md"]),
    ("put it behind nginx so that others can reach it", &["operating.md", "safety.md"]),
    ("move my servers over from Cursor", &["clients.md"]),
    ("take the registration out of Claude again", &["clients.md"]),
    ("the server behind it crashed, will it come back by itself", &["upstreams.md"]),
    ("could a call be sent twice when the connection breaks", &["upstreams.md"]),
    ("sign in to a server with the browser", &["upstreams.md"]),
    ("a server changed the description of its tool behind my back", &["upstreams.md"]),
    ("start a server only when somebody needs it", &["upstreams.md"]),
    ("use a swagger file", &["apis.md"]),
    ("fetch all pages of a list endpoint", &["apis.md", "code-mode.md"]),
    ("hide some endpoints of an API from the agent", &["apis.md"]),
    ("many calls in parallel from one script", &["code-mode.md"]),
    ("the answer is too big for the model", &["code-mode.md"]),
    ("what happens if an agent's script has a typo", &["code-mode.md"]),
    ("how many tokens does it cost to list everything", &["code-mode.md"]),
    ("write my first tool", &["getting-started.md", "tools.md"]),
    ("a parameter that may be left out and has a default", &["tools.md"]),
    ("share code between two tools", &["tools.md"]),
    ("ask the user for confirmation in the middle of a tool", &["tools.md", "approvals.md"]),
    ("what is different from normal Lua", &["tools.md"]),
    ("autocompletion in my editor", &["tools.md"]),
    ("can a starlark script run commands", &["starlark.md"]),
    ("I know Python, what does not work here", &["starlark.md"]),
    ("replace web requests with fake answers in a test", &["testing.md"]),
    ("junit report for CI", &["testing.md"]),
    ("see progress over HTTP while a tool runs", &["surfaces.md"]),
    ("which HTTP status does a timeout have", &["surfaces.md"]),
    ("make the text of our wiki searchable", &["knowledge.md"]),
    ("read only what changed since the last time, with a cursor", &["knowledge.md"]),
];

/// What the tour shows, with the page and section that must come first.
const SHOWN: [(&str, &str, &str); 2] = [
    ("what may an agent's script do", "code-mode.md", "Code mode > What an agent's script may do"),
    (
        "How can I test a tool without calling the real service?",
        "testing.md",
        "Testing scripts > Mocks",
    ),
];

#[test]
fn what_the_tour_asks_is_answered_by_the_right_section() {
    let tour = std::fs::read_to_string(repo().join("crates/moonlark/src/cli/demo.rs")).unwrap();
    let project = guide();
    for (question, page, section) in SHOWN {
        assert!(tour.contains(question), "the tour does not ask {question:?}");
        let answer = run_json(&project, &["search", question, "--limit", "1"]);
        let hit = &answer["result"]["results"][0];
        assert_eq!((&hit["source_id"], &hit["heading"]), (&page.into(), &section.into()), "{hit}");
    }
}

/// A project whose knowledge base is the guide.
fn guide() -> Project {
    let guide = repo().join("docs/guide");
    let config = format!("[connectors.filesystem.guide]\nroot = {:?}\n", guide.to_str().unwrap());
    let project = Project::new(&[("moonlark.toml", &config)]);
    run(&project, &["sync", "--quiet"]);
    project
}

#[test]
fn the_guide_answers_questions_in_users_words() {
    let project = guide();
    let (mut first, mut among_three, mut missed) = (0, 0, Vec::new());
    for (question, wanted) in QUESTIONS {
        let answer = run_json(&project, &["search", question, "--limit", "3"]);
        let pages = names(&answer["result"]);
        let rank = pages.iter().position(|page| wanted.contains(&page.as_str()));
        first += usize::from(rank == Some(0));
        among_three += usize::from(rank.is_some());
        if rank != Some(0) {
            missed.push(format!("{rank:?} {question}: {pages:?}, wanted {wanted:?}"));
        }
    }
    let share = |count: usize| count as f64 / QUESTIONS.len() as f64;
    let figures = format!(
        "hit@1 {:.2}, hit@3 {:.2}\n{}",
        share(first),
        share(among_three),
        missed.join("\n")
    );
    println!("{figures}");
    assert!(share(among_three) >= AMONG_THREE && share(first) >= FIRST, "{figures}");
}
