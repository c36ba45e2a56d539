use std::sync::Arc;

use jiff::Timestamp;
use moonlark_core::{ProblemCode, Value};

use crate::knowledge_testing::{Listed, find, found, item, small, sync, sync_as, with};
use crate::{KnowledgeDatabase, SearchFilter, SearchMode, SearchQuery, SourceItem, TextEmbedder};

async fn base(folder: &tempfile::TempDir, items: &[(&str, &str)]) -> KnowledgeDatabase {
    let knowledge = small(&folder.path().join("k.db"));
    sync(&knowledge, Listed::of(items)).await.unwrap();
    knowledge
}

const PAGES: [(&str, &str); 5] = [
    (
        "deploy.md",
        "# Deployments\n\nTo roll back a deployment, run `deploy undo` with its number.\n\n## Schedule\n\nWe deploy every Tuesday.",
    ),
    (
        "billing.md",
        "# Billing\n\nInvoices are sent on the first day of the month. Refunds take a week.",
    ),
    ("hiring.md", "# Hiring\n\nEvery candidate talks to two engineers."),
    (
        "german.md",
        "# Rechnungen\n\nDie Überweisung der Rechnungen für Kündigungen erfolgt jährlich.",
    ),
    ("japanese.md", "# 検索\n\n日本語の文書を検索することができます。"),
];

#[tokio::test]
async fn before_the_first_sync_there_is_nothing_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("k.db");
    let knowledge = small(&file);
    assert_eq!(find(&knowledge, "anything").await, [] as [&str; 0]);
    assert_eq!(knowledge.list_sources().await.unwrap(), []);
    assert!(!file.exists());
}

#[tokio::test]
async fn every_mode_finds_the_page_that_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = base(&folder, &PAGES).await;
    for mode in SearchMode::ALL_MODES {
        let query = SearchQuery { mode, ..SearchQuery::new("how do I roll back a deployment") };
        assert_eq!(found(&knowledge, query).await[0], "deploy.md", "{mode:?}");
    }
    assert_eq!(find(&knowledge, "Rechnung").await[0], "german.md");
    assert_eq!(find(&knowledge, "uberweisung").await[0], "german.md");
    assert_eq!(find(&knowledge, "日本語").await[0], "japanese.md");
    assert_eq!(find(&knowledge, "検").await[0], "japanese.md");
}

#[tokio::test]
async fn a_hit_says_where_it_is_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = base(&folder, &PAGES).await;
    let query = SearchQuery { explain: true, limit: 1, ..SearchQuery::new("refund invoices") };
    let answer = knowledge.search(query).await.unwrap();
    let hit = &answer.hits[0];
    assert_eq!((hit.title.as_str(), hit.source.as_str(), hit.chunk), ("Billing", "docs", 0));
    assert!(
        hit.snippet.contains("**Invoices** are sent") && hit.snippet.contains("**Refunds**"),
        "{}",
        hit.snippet
    );
    assert!(hit.score > 0.0 && hit.score <= 1.0);
    let explain = hit.explain.as_ref().unwrap();
    assert_eq!(explain.terms, ["refund", "invoic"]);
    assert!(explain.keyword.unwrap() > 0.0 && explain.semantic.unwrap() > 0.0);
    let Value::Object(object) = answer.to_value() else { panic!() };
    assert!(object.contains_key("results") && !object.contains_key("notes"));
    let document = knowledge.get(&hit.id).await.unwrap();
    assert!(document.body.starts_with("# Billing"));
}

#[tokio::test]
async fn a_long_document_does_not_fill_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let long: String = (0..400)
        .map(|n| format!("## Part {n}\n\n{}\n\n", "All about rhubarb. ".repeat(40)))
        .collect();
    let knowledge =
        base(&folder, &[("long.md", &long), ("a.md", "rhubarb pie"), ("b.md", "rhubarb cake")])
            .await;
    for mode in SearchMode::ALL_MODES {
        let query = SearchQuery { mode, limit: 3, ..SearchQuery::new("rhubarb") };
        let answer = knowledge.search(query).await.unwrap();
        let mut names: Vec<_> = answer.hits.iter().map(|hit| hit.source_id.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["a.md", "b.md", "long.md"], "{mode:?}");
        let long = answer.hits.iter().find(|hit| hit.source_id == "long.md").unwrap();
        assert!(!long.also.is_empty() && long.also.len() <= 5 && !long.also.contains(&long.chunk));
    }
}

#[tokio::test]
async fn filters_apply_before_the_best_are_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let many = (0..300).map(|n| SourceItem {
        updated_at: Some(at(n)),
        ..item(&format!("m{n}"), "rhubarb rhubarb rhubarb")
    });
    sync(&knowledge, Listed::new(many)).await.unwrap();
    let tagged = SourceItem {
        updated_at: Some(at(1_000)),
        metadata: Value::from_fields([
            ("team", Value::Str("kitchen".to_owned())),
            ("tags", Value::Array(vec![Value::Str("pie".to_owned()), Value::Int(7)])),
            ("draft", Value::Bool(false)),
        ]),
        ..item("tagged", "a little about rhubarb among other things that are not it")
    };
    sync_as(&knowledge, "wiki", Arc::new(Listed::new([tagged]))).await.unwrap();
    let metadata = |json: &str| match Value::parse_json(json.as_bytes()).unwrap() {
        Value::Object(object) => object,
        _ => panic!(),
    };
    let check = async |filter: SearchFilter, expected: &[&str]| {
        for mode in SearchMode::ALL_MODES {
            let query = SearchQuery {
                mode,
                limit: 3,
                filter: filter.clone(),
                ..SearchQuery::new("rhubarb")
            };
            assert_eq!(found(&knowledge, query).await, expected, "{mode:?} {filter:?}");
        }
    };
    let only = SearchFilter::default;
    check(SearchFilter { sources: vec!["wiki".to_owned()], ..only() }, &["tagged"]).await;
    check(SearchFilter { since: Some(at(1_000)), ..only() }, &["tagged"]).await;
    check(SearchFilter { since: Some(at(17)), until: Some(at(17)), ..only() }, &["m17"]).await;
    check(SearchFilter { until: Some(at(-1)), ..only() }, &[]).await;
    check(SearchFilter { metadata: metadata(r#"{"team": "kitchen"}"#), ..only() }, &["tagged"])
        .await;
    check(
        SearchFilter {
            metadata: metadata(r#"{"team": ["bar", "kitchen"], "draft": false}"#),
            ..only()
        },
        &["tagged"],
    )
    .await;
    check(SearchFilter { metadata: metadata(r#"{"tags": 7.0}"#), ..only() }, &["tagged"]).await;
    check(SearchFilter { metadata: metadata(r#"{"team": "bar"}"#), ..only() }, &[]).await;
    check(
        SearchFilter { metadata: metadata(r#"{"team": "kitchen", "draft": true}"#), ..only() },
        &[],
    )
    .await;
    let kind = SearchQuery {
        filter: SearchFilter { sources: vec!["script".to_owned()], ..only() },
        ..SearchQuery::new("rhubarb")
    };
    assert_eq!(knowledge.search(kind).await.unwrap().hits.len(), 12);
    let nobody = SearchQuery {
        filter: SearchFilter { sources: vec!["wikis".to_owned()], ..only() },
        ..SearchQuery::new("rhubarb")
    };
    let answer = knowledge.search(nobody).await.unwrap();
    assert_eq!(answer.hits, []);
    assert_eq!(answer.notes, ["no document is from a source named wikis; did you mean wiki?"]);
    let nobody = SearchQuery {
        filter: SearchFilter { sources: vec!["payroll".to_owned()], ..only() },
        ..SearchQuery::new("rhubarb")
    };
    let answer = knowledge.search(nobody).await.unwrap();
    assert_eq!(answer.notes, ["no document is from a source named payroll; there are: docs, wiki"]);
    let misspelt = SearchQuery {
        filter: SearchFilter { metadata: metadata(r#"{"taem": "kitchen"}"#), ..only() },
        ..SearchQuery::new("rhubarb")
    };
    let answer = knowledge.search(misspelt).await.unwrap();
    assert_eq!(answer.notes, ["no document has the metadata field taem; did you mean team?"]);
}

#[tokio::test]
async fn a_document_is_found_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let licence = "Permission is granted to copy this copyright notice, copyright and licence.";
    let knowledge = base(
        &folder,
        &[
            ("libgdk-pixbuf2.0-common/copyright", licence),
            ("libgnutls30/copyright", licence),
            ("zlib1g/copyright.txt", licence),
        ],
    )
    .await;
    for mode in [SearchMode::Keyword, SearchMode::Hybrid] {
        let ask = async |text: &str| {
            let query = SearchQuery { mode, ..SearchQuery::new(text) };
            found(&knowledge, query).await.into_iter().next().unwrap_or_default()
        };
        assert_eq!(ask("libgnutls30 copyright").await, "libgnutls30/copyright", "{mode:?}");
        assert_eq!(ask("zlib1g").await, "zlib1g/copyright.txt", "{mode:?}");
    }
    let query = SearchQuery { explain: true, limit: 1, ..SearchQuery::new("zlib1g") };
    let hit = knowledge.search(query).await.unwrap().hits.remove(0);
    assert_eq!(hit.explain.unwrap().terms, ["zlib1g"]);
}

#[tokio::test]
async fn the_section_whose_heading_is_nearly_the_question_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let filler = format!(
        "An agent sends one script. {} Only the result goes back to it.",
        "It calls tools side by side and takes what it needs of their answers. ".repeat(12)
    );
    let page = format!(
        "# Code mode\n\n{filler}\n\n## How it is offered\n\n{filler}\n\n## What a script may do\n\n\
         {}\n\n## Limits\n\n{filler}",
        "It has the host modules, within limits that the operator sets. ".repeat(20)
    );
    let other = "# Approvals\n\nA person may decide on a call, and may say why.".to_owned();
    let knowledge = base(&folder, &[("code-mode.md", &page), ("approvals.md", &other)]).await;
    for mode in [SearchMode::Keyword, SearchMode::Hybrid] {
        let query =
            SearchQuery { mode, limit: 1, ..SearchQuery::new("what may an agent's script do") };
        let hit = knowledge.search(query).await.unwrap().hits.remove(0);
        let place = (hit.source_id.as_str(), hit.heading.as_deref());
        assert_eq!(place, ("code-mode.md", Some("Code mode > What a script may do")), "{mode:?}");
    }
}

#[tokio::test]
async fn a_word_that_no_document_has_finds_longer_ones() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = base(
        &folder,
        &[
            ("urlaub.md", "# Urlaub\n\nFerientage werden im Kalender eingetragen."),
            ("kaffee.md", "# Kaffee\n\nDie Maschine steht in der Teeküche."),
            ("holidays.md", "# Holidays\n\nEverybody has thirty days."),
        ],
    )
    .await;
    for mode in [SearchMode::Keyword, SearchMode::Hybrid] {
        for word in ["Ferien", "Urlaub"] {
            let query = SearchQuery { mode, limit: 1, ..SearchQuery::new(word) };
            assert_eq!(found(&knowledge, query).await, ["urlaub.md"], "{mode:?} {word}");
        }
    }
    let query = SearchQuery { mode: SearchMode::Keyword, ..SearchQuery::new("xylophone Tee") };
    assert_eq!(found(&knowledge, query).await, [] as [&str; 0]);
}

#[tokio::test]
async fn nothing_in_a_query_is_syntax() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = base(&folder, &PAGES).await;
    let words: String = (0..10_000).map(|number| format!("deploy{number} undo ")).collect();
    let queries = [
        "this AND",
        "AND OR NOT",
        "\"",
        "\"deploy",
        "deploy\"",
        "'; DROP TABLE kb_documents; --",
        "*",
        "deploy*",
        "NEAR(deploy undo, 3)",
        "deploy NEAR/2 undo",
        "title:deploy",
        "-deploy",
        "^deploy",
        "(",
        ")((",
        "{}",
        "%_",
        "🚀",
        "👩‍👩‍👧‍👦 deploy",
        "検索 deploy",
        "\0",
        "deploy\0undo",
        "\u{202e}deploy",
        "a\u{0301}",
        "…",
        "\u{feff}",
        &words,
        &"x".repeat(1 << 20),
        &"検".repeat(50_000),
        &"\u{10ffff}".repeat(1_000),
    ];
    for text in queries {
        for mode in SearchMode::ALL_MODES {
            let query = SearchQuery { mode, ..SearchQuery::new(text) };
            let answer = knowledge.search(query).await;
            assert!(answer.is_ok(), "{}: {answer:?}", &text[..text.floor_char_boundary(40)]);
        }
    }
    assert_eq!(find(&knowledge, "deploy* \"undo").await[0], "deploy.md");
    for empty in ["", " ", "\n\t"] {
        let problem = knowledge.search(SearchQuery::new(empty)).await.unwrap_err();
        assert_eq!(
            (problem.code, problem.message.as_str()),
            (ProblemCode::BadRequest, "the query is empty")
        );
    }
    for limit in [0, 201, usize::MAX] {
        let problem =
            knowledge.search(SearchQuery { limit, ..SearchQuery::new("x") }).await.unwrap_err();
        assert_eq!(problem.code, ProblemCode::BadRequest);
    }
}

#[tokio::test]
async fn equals_are_in_the_same_order_however_they_were_synced() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..40).map(|n| format!("{n}")).collect();
    let mut orders = Vec::new();
    for (number, reversed) in [false, true].into_iter().enumerate() {
        let knowledge = small(&folder.path().join(format!("{number}.db")));
        let mut items: Vec<SourceItem> = names
            .iter()
            .map(|name| SourceItem {
                title: Some("Same".to_owned()),
                ..item(name, "the very same text")
            })
            .collect();
        if reversed {
            items.reverse();
        }
        sync(&knowledge, Listed::new(items)).await.unwrap();
        orders.push(find(&knowledge, "same text").await);
    }
    assert_eq!(orders[0].len(), 12);
    assert_eq!(orders[0], orders[1]);
}

#[tokio::test]
async fn without_an_embedder_words_are_enough() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = with(&folder.path().join("k.db"), TextEmbedder::Off);
    sync(&knowledge, Listed::of(&PAGES)).await.unwrap();
    assert_eq!(find(&knowledge, "refunds").await, ["billing.md"]);
    let semantic = SearchQuery { mode: SearchMode::Semantic, ..SearchQuery::new("refunds") };
    let problem = knowledge.search(semantic).await.unwrap_err();
    assert_eq!(problem.message, "there is no embedder, so nothing can be found by meaning");
}

#[tokio::test]
async fn a_search_sees_one_commit_while_a_sync_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    let version =
        |word: &'static str| (0..60).map(move |n| item(&n.to_string(), &format!("rhubarb {word}")));
    sync(&knowledge, Listed::new(version("old"))).await.unwrap();
    let other = knowledge.clone();
    let syncing = tokio::spawn(async move {
        for round in 0..4 {
            let word = if round % 2 == 0 { "new" } else { "old" };
            sync(&other, Listed::new(version(word))).await.unwrap();
        }
    });
    let mut searches = 0;
    while !syncing.is_finished() || searches < 3 {
        let query =
            SearchQuery { limit: 200, mode: SearchMode::Keyword, ..SearchQuery::new("rhubarb") };
        assert_eq!(knowledge.search(query).await.unwrap().hits.len(), 60);
        searches += 1;
    }
    syncing.await.unwrap();
}

/// Documents in nine languages, each with words in other forms than its questions.
const LANGUAGES: &str = include_str!("../../../../bench/language_questions.json");

#[tokio::test]
async fn a_question_finds_other_forms_of_its_words_in_its_own_language() {
    let languages: serde_json::Value = serde_json::from_str(LANGUAGES).unwrap();
    let languages = languages.as_object().unwrap();
    let mut items = Vec::new();
    for (code, of) in languages {
        for (name, text) in of["documents"].as_object().unwrap() {
            items.push(item(&format!("{code}/{name}"), text.as_str().unwrap()));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let knowledge = small(&folder.path().join("k.db"));
    sync(&knowledge, Listed::new(items)).await.unwrap();
    let mut stats: Vec<(&str, u64)> = knowledge.list_sources().await.unwrap()[0]
        .languages
        .iter()
        .map(|(language, count)| (language.code(), *count))
        .collect();
    stats.sort_unstable();
    let expected = ["de", "es", "fr", "it", "ja", "pt", "ru", "zh"].map(|code| (code, 5));
    assert_eq!(stats, expected);
    let mut missed = Vec::new();
    for (code, of) in languages {
        for pair in of["questions"].as_array().unwrap() {
            let (question, name) = (pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
            let found = find(&knowledge, question).await;
            if found.first() != Some(&format!("{code}/{name}")) {
                missed.push(format!("{question}: {:?}", found.first()));
            }
        }
    }
    assert_eq!(missed, [] as [&str; 0]);
}

#[tokio::test]
async fn a_language_marks_the_words_of_its_own_forms() {
    let folder = tempfile::tempdir().unwrap();
    let text = "Les factures sont envoyées après la livraison. Elles doivent être payées dans les deux semaines.";
    let knowledge = base(&folder, &[("factures.md", text), ("invoices.md", PAGES[1].1)]).await;
    let query = SearchQuery { explain: true, ..SearchQuery::new("envoi d'une facture payée") };
    let hit = knowledge.search(query).await.unwrap().hits.remove(0);
    assert_eq!(hit.source_id, "factures.md");
    assert!(hit.snippet.contains("Les **factures** sont"), "{}", hit.snippet);
    assert!(hit.snippet.contains("**payées**"), "{}", hit.snippet);
    let document = knowledge.get(&hit.id).await.unwrap();
    assert_eq!(document.language.as_deref(), Some("fr"));
    assert_eq!(document.to_value().get("language"), Some(&Value::Str("fr".to_owned())));
    let english = knowledge.search(SearchQuery::new("refunds")).await.unwrap().hits.remove(0);
    assert_eq!(knowledge.get(&english.id).await.unwrap().language, None);
}

#[tokio::test]
async fn a_file_is_found_by_its_name_with_its_ending() {
    let folder = tempfile::tempdir().unwrap();
    let text = "# Settings\n\nWhat the service reads when it starts.";
    let knowledge = base(
        &folder,
        &[
            ("deploy/config.yaml", text),
            ("deploy/config.toml", text),
            ("deploy/README.md", "# Deploy\n\nThe config is read from config.yaml or a toml file."),
            ("notes/release-2024.txt", "Nothing changed for users."),
        ],
    )
    .await;
    for (question, expected) in [
        ("config.toml", "deploy/config.toml"),
        ("config.yaml", "deploy/config.yaml"),
        ("deploy/config.toml", "deploy/config.toml"),
        ("release-2024.txt", "notes/release-2024.txt"),
        ("release 2024", "notes/release-2024.txt"),
    ] {
        assert_eq!(find(&knowledge, question).await[0], expected, "{question}");
    }
}
