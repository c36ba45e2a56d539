//! A server that follows its sources.

use serde_json::json;

use super::{HANDBOOK_CONFIG, handbook, names};
use crate::harness::{PATIENCE, POLL_INTERVAL, Server};

/// Ask until the answer is as wanted: something has to happen meanwhile.
fn wait_for(server: &Server, query: &str, wanted: &[&str]) {
    let started = std::time::Instant::now();
    let args = json!({"query": query, "mode": "keyword"});
    let mut last = json!(null);
    while started.elapsed() < PATIENCE {
        let (status, answer) = server.post("search", &args);
        assert_eq!(status, 200, "{answer}");
        if names(&answer["result"]) == wanted {
            return;
        }
        last = answer;
        std::thread::sleep(POLL_INTERVAL);
    }
    panic!("{query} never found {wanted:?}, but {last}");
}

#[test]
fn a_folder_that_is_watched_is_never_out_of_date() {
    let config = HANDBOOK_CONFIG.replace("watch = false\n", "");
    let project = handbook(&[("moonlark.toml", &config)]);
    let server = project.serve();
    wait_for(&server, "thirty", &["holidays.md"]);
    project.write("handbook/office.md", "# Remote work\n\nTwo days a week at most.\n");
    wait_for(&server, "remote", &["office.md"]);
    project.write("handbook/office.md", "# Telework\n\nThree days a week at most.\n");
    wait_for(&server, "telework", &["office.md"]);
    wait_for(&server, "remote", &[]);
    project.remove("handbook/office.md");
    wait_for(&server, "telework", &[]);
    // Another source, while the server runs.
    project.write("wiki/oncall.md", "# On call\n\nThe pager goes round every Monday.\n");
    project.write(
        "moonlark.toml",
        &format!("{config}[connectors.filesystem.wiki]\nroot = \"wiki\"\n"),
    );
    wait_for(&server, "pager", &["oncall.md"]);
}

fn counter(word: &str) -> String {
    format!(
        "connector = {{}}\nfunction connector.scan()\n  state.scans = (state.scans or 0) + 1\n  return {{ {{ source_id = 'count', body = '{word} ' .. ('x'):rep(state.scans) }} }}\nend\n"
    )
}

#[test]
fn sources_are_read_at_the_start_where_that_is_asked_for() {
    let project = crate::harness::Project::new(&[
        ("moonlark.toml", "[knowledge]\nsync = \"start\"\n"),
        ("connectors/counter.lua", &counter("scan")),
    ]);
    let server = project.serve();
    wait_for(&server, "x", &["count"]);
    // One that comes later is read when it comes; the others are not read again.
    project.write("connectors/other.lua", &counter("pelican"));
    wait_for(&server, "pelican", &["count"]);
    wait_for(&server, "scan", &["count"]);
    wait_for(&server, "xx", &[]);
}

#[test]
fn sources_are_read_at_intervals_where_that_is_asked_for_and_as_their_scripts_are_now() {
    let project = crate::harness::Project::new(&[
        ("moonlark.toml", "[knowledge]\ninterval = 0.2\n"),
        ("connectors/counter.lua", &counter("scan")),
    ]);
    let server = project.serve();
    wait_for(&server, "xxx", &["count"]);
    project.write("connectors/counter.lua", &counter("number"));
    wait_for(&server, "number", &["count"]);
}
