//! Questions that nobody sanitises: an answer or a Problem, never a 500.

use serde_json::json;

use super::{handbook, run};

#[test]
fn no_question_breaks_anything() {
    let project = handbook(&[
        ("handbook/emoji.md", "# 🎉 Party\n\nThe 🎂 is in the kitchen.\n"),
        ("handbook/ja.md", "# 休暇\n\n有給休暇は年に三十日あります。\n"),
        ("handbook/zh.md", "# 部署\n\n每次合并到主分支都会自动构建。\n"),
    ]);
    run(&project, &["sync", "--quiet"]);
    let server = project.serve();
    let long = "deploy ".repeat(10_000);
    let one_word = "x".repeat(100_000);
    let questions = [
        "",
        " ",
        "\n\t",
        "\0",
        "this AND",
        "AND OR NOT",
        "NEAR(a b, 5)",
        "\"unclosed",
        "\"\"",
        "'; DROP TABLE kb_documents; --",
        "*",
        "rel*",
        "(((",
        "a:b title:deploys",
        "^deploys",
        "-release",
        "%_%",
        "\\",
        "?",
        "…",
        "🎂",
        "🎉🎉🎉",
        "休暇",
        "自动构建",
        "الإجازات",
        "e\u{301}",
        "\u{feff}release",
        "\u{202e}release",
        "a\u{0}b",
        &long,
        &one_word,
    ];
    for mode in ["keyword", "semantic", "hybrid"] {
        for question in questions {
            let shown: String = question.chars().take(40).collect();
            let (status, answer) = server.post("search", &json!({"query": question, "mode": mode}));
            let fine = status == 200 && answer["result"]["results"].is_array();
            let refused = status == 400 && answer["error"]["message"].is_string();
            assert!(fine || refused, "{mode} {shown:?}: {status} {answer}");
        }
    }
    for (question, document) in [
        ("🎂", "emoji.md"),
        ("休暇", "ja.md"),
        ("自动构建", "zh.md"),
        ("Spüle", "kaffee.md"),
        ("spule", "kaffee.md"),
    ] {
        let (_, answer) =
            server.post("search", &json!({"query": question, "mode": "keyword", "limit": 1}));
        assert_eq!(super::names(&answer["result"]), [document], "{question}");
    }
    for (args, message) in [
        (json!({"query": "x", "mode": "fuzzy"}), "parameter 'mode' must be one of"),
        (json!({"query": "x", "limit": 0}), "parameter 'limit' must be"),
        (json!({"query": "x", "limit": 1_000_000}), "parameter 'limit' must be"),
        (json!({"query": "x", "since": "yesterday"}), "since is not a time: \"yesterday\""),
        (json!({"query": 5}), "parameter 'query' must be string"),
        (json!({}), "missing required parameter: query"),
    ] {
        let (status, answer) = server.post("search", &args);
        let said = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && said.starts_with(message), "{args}: {status} {answer}");
    }
    let (_, answer) = server.post("search", &json!({"query": "release", "source": "nobody"}));
    assert!(answer["result"]["notes"][0].as_str().unwrap().contains("nobody"), "{answer}");
}
