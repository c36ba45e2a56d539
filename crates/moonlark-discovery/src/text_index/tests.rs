use super::*;

fn index(entries: &[(&str, &str)]) -> TextIndex {
    let mut builder = TextIndexBuilder::default();
    for (name, body) in entries {
        builder.add_entry(&IndexEntry {
            names: vec![name],
            body: vec![body],
            ..IndexEntry::default()
        });
    }
    builder.build_index()
}

fn found(index: &TextIndex, question: &str) -> Vec<u32> {
    index.search(question, 10, |_| true).iter().map(|hit| hit.entry).collect()
}

#[test]
fn the_best_come_first_and_those_that_do_not_fit_not_at_all() {
    let index = index(&[
        ("read_file", "Read the contents of a file."),
        ("list_issues", "List the issues of a repository."),
        ("create_issue", "Create an issue in a repository."),
        ("getWeather", "The weather forecast for a city."),
    ]);
    for (question, expected) in [
        ("read file", &[0][..]),
        ("how do I create an issue?", &[2, 1]),
        ("listing the repository's issues", &[1, 2]),
        ("create_issue", &[2, 1]),
        ("createIssue", &[2, 1]),
        ("forecasts", &[3]),
        ("get weather", &[3]),
        ("repositry", &[1, 2]),
        ("weath", &[3]),
        ("payments", &[]),
        ("", &[]),
        ("the of and", &[]),
    ] {
        assert_eq!(found(&index, question), expected, "{question}");
    }
}

#[test]
fn a_name_finds_its_own_before_all_that_talk_of_it() {
    let index = index(&[
        ("help", "About status, status of orders, status pages, and what a status is."),
        ("get_status_page", "The page of a status."),
        ("status", "Where it stands."),
    ]);
    assert_eq!(found(&index, "status")[0], 2);
}

#[test]
fn german_and_scripts_without_spaces_are_found() {
    let index = index(&[
        ("invoices", "Legt Rechnungen für Kunden in München an."),
        ("bing", "使用必应搜索网页并返回结果"),
        ("kensaku", "ウェブを検索する"),
        ("geomsaek", "웹에서 검색합니다"),
        ("launch", "Ship it 🚀"),
    ]);
    for (question, expected) in [
        ("Wie schreibe ich eine Rechnung?", 0),
        ("Rechnung", 0),
        ("muenchen", 0),
        ("MÜNCHEN", 0),
        ("搜索网页", 1),
        ("必应", 1),
        ("页", 1),
        ("検索", 2),
        ("검색", 3),
        ("🚀", 4),
    ] {
        assert_eq!(found(&index, question).first(), Some(&expected), "{question}");
    }
}

#[test]
fn words_that_stand_together_count_more() {
    let index = index(&[
        ("a", "Merge a branch, then pull, then make your request."),
        ("b", "Then make your merge, a branch of a pull request."),
    ]);
    assert_eq!(found(&index, "pull request"), [1, 0]);
}

#[test]
fn only_what_is_accepted_is_found() {
    let index = index(&[("read", "Read."), ("read_all", "Read all.")]);
    let hits = index.search("read", 10, |entry| entry == 1);
    assert_eq!(hits.iter().map(|hit| hit.entry).collect::<Vec<_>>(), [1]);
    assert_eq!(index.search("read", 0, |_| true), []);
}

#[test]
fn an_index_of_nothing_finds_nothing() {
    assert_eq!(found(&index(&[]), "anything"), [] as [u32; 0]);
    assert_eq!(found(&index(&[("", "")]), "anything"), [] as [u32; 0]);
}

#[test]
fn a_question_without_end_is_read_as_far_as_it_makes_sense() {
    let index = index(&[("read", "Read a file.")]);
    let question = "read file wrod ".repeat(10_000);
    assert_eq!(found(&index, &question), [0]);
}

fn by_meaning(entries: &[(&str, &str)]) -> TextIndex {
    let mut builder = TextIndexBuilder::with_vectors();
    for (name, body) in entries {
        builder.add_entry(&IndexEntry {
            names: vec![name],
            body: vec![body],
            ..IndexEntry::default()
        });
    }
    builder.build_index()
}

#[test]
fn what_is_meant_is_found_without_its_words() {
    let index = by_meaning(&[
        ("deleteFile", "Delete a file from disk."),
        ("getWeather", "The weather forecast for a city."),
        ("send_mail", "Send an e-mail to somebody."),
    ]);
    for (question, expected) in [
        ("remove documents", 0),
        ("will it rain tomorrow", 1),
        ("write a message to a colleague", 2),
    ] {
        assert_eq!(found(&index, question).first(), Some(&expected), "{question}");
    }
}

#[test]
fn what_nothing_has_and_nothing_means_is_not_found() {
    let index = by_meaning(&[
        ("read_file", "Read the contents of a file."),
        ("list_issues", "List the issues of a repository."),
    ]);
    for question in ["xylophone", "", "the of and", "🦀", "%%%", "必应"] {
        assert_eq!(found(&index, question), [] as [u32; 0], "{question}");
    }
}

#[test]
fn a_name_finds_its_own_whatever_else_is_meant() {
    let index = by_meaning(&[
        ("status_page", "Status, health and uptime of all services, their status and state."),
        ("status", "Where an order stands."),
    ]);
    assert_eq!(found(&index, "status")[0], 1);
}

#[test]
fn the_same_question_has_the_same_answer() {
    let entries: Vec<(String, String)> = (0..200)
        .map(|number| (format!("tool_{number}"), format!("Reads file number {}.", number % 7)))
        .collect();
    let entries: Vec<(&str, &str)> =
        entries.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
    let (one, other) = (by_meaning(&entries), by_meaning(&entries));
    let ask = |index: &TextIndex| index.search("open documents", 50, |_| true);
    assert_eq!(ask(&one), ask(&other));
    assert!(!ask(&one).is_empty());
}

/// Entries as APIs give them: a name, a summary, a description.
fn by_summary(entries: &[(&str, &str, &str)]) -> TextIndex {
    let mut builder = TextIndexBuilder::with_vectors();
    for (name, summary, body) in entries {
        builder.add_entry(&IndexEntry {
            names: vec![name],
            summaries: vec![summary],
            body: vec![body],
            ..IndexEntry::default()
        });
    }
    builder.build_index()
}

#[test]
fn a_question_that_is_a_summary_finds_its_entry_first() {
    let long = "Any user with pull access to a repository can. If issues are disabled in the \
                repository, the API returns 410. Triggers notifications, which may result in \
                secondary rate limits. "
        .repeat(10);
    let index = by_summary(&[
        (
            "reactions/create-for-issue",
            "Create reaction for an issue",
            "Create a reaction to an issue.",
        ),
        (
            "orgs/create-issue-type",
            "Create issue type for an organization",
            "Create a new issue type.",
        ),
        ("issues/create-comment", "Create an issue comment", "Create a comment on an issue."),
        ("issues/create", "Create an issue", &long),
        ("issues/update", "Update an issue", &long),
    ]);
    for (question, expected) in [
        ("Create an issue", 3),
        ("create an issue.", 3),
        ("issue create", 3),
        ("how do I create issues?", 3),
        ("Create an issue comment", 2),
        ("updating the issue", 4),
    ] {
        assert_eq!(found(&index, question)[0], expected, "{question}");
    }
}

#[test]
fn of_two_summaries_with_the_same_words_the_one_that_was_asked_for_comes_first() {
    let index = by_summary(&[
        ("users/list", "Get users", "All of them, page by page, users and more users."),
        ("users/get", "Get a user", "One."),
    ]);
    assert_eq!(found(&index, "Get a user")[0], 1);
    assert_eq!(found(&index, "Get users")[0], 0);
}

#[test]
fn a_name_comes_before_a_summary_of_the_same_words() {
    let index = by_summary(&[
        ("orders/state", "Status", "Where it stands."),
        ("status", "Whether the service is up", "It says so."),
    ]);
    assert_eq!(found(&index, "status"), [1, 0]);
}

#[test]
fn what_is_just_what_was_asked_is_known_as_that_and_does_not_outweigh_the_others() {
    let index = by_summary(&[
        ("issues/create-comment", "Create an issue comment", "On an issue."),
        ("issues/create", "Create an issue", "In a repository."),
        ("issue", "One of them", "By its number."),
    ]);
    let hits = index.search("Create an issue", 10, |_| true);
    assert_eq!(hits.iter().map(|hit| (hit.entry, hit.exact)).collect::<Vec<_>>()[0], (1, true));
    assert!(hits.iter().all(|hit| hit.score <= 1.0), "{hits:?}");
    assert!(hits[1..].iter().all(|hit| !hit.exact), "{hits:?}");
    // Who names something means that alone.
    let hits = index.search("issue", 10, |_| true);
    assert!(hits[0].entry == 2 && hits[0].exact && hits[0].score > 1.0, "{hits:?}");
}

/// Entries as APIs without summaries give them: a name and a path.
fn by_path(entries: &[(&str, &str)]) -> TextIndex {
    let mut builder = TextIndexBuilder::default();
    for (name, path) in entries {
        builder.add_entry(&IndexEntry {
            names: vec![name],
            path: Some(path),
            ..IndexEntry::default()
        });
    }
    builder.build_index()
}

#[test]
fn an_operation_is_found_by_its_path_and_an_everyday_verb() {
    let index = by_path(&[
        ("GetTopic", "/forums/{forum}/topics/{topic}"),
        ("UpdateTopic", "/forums/{forum}/topics/{topic}"),
        ("DeleteTopic", "/forums/{forum}/topics/{topic}"),
        ("DeleteReply", "/forums/{forum}/topics/{topic}/replies/{reply}"),
    ]);
    for (question, expected) in [
        ("show a topic of a forum", 0),
        ("change a topic of a forum", 1),
        ("throw away a topic of a forum", 2),
        ("remove a reply to a topic", 3),
    ] {
        assert_eq!(found(&index, question).first(), Some(&expected), "{question}");
    }
}

#[test]
fn another_word_for_the_action_alone_finds_nothing() {
    let index = index(&[("read_file", "Read a file."), ("get_weather", "The forecast.")]);
    assert_eq!(found(&index, "read files"), [0]);
}

#[test]
fn a_literal_is_an_argument_and_not_what_is_asked_for() {
    let index = index(&[
        ("post_message", "Post a message in a channel."),
        ("deploy", "Deploy what is finished, and say when the deploy is finished."),
    ]);
    assert_eq!(found(&index, "post \"the deploy is finished\"")[0], 0);
    assert_eq!(found(&index, "deploy what is finished")[0], 1);
}

#[test]
fn a_question_of_several_clauses_finds_what_each_of_them_asks() {
    let index = by_meaning(&[
        ("list_customers", "List customers by name or by address."),
        ("create_customer", "Create a customer with a name and an address."),
        ("update_customer", "Change the name or the address of a customer."),
        ("refund_order", "Give the money for an order back."),
    ]);
    let best = found(&index, "find the customer by name or address, and then refund the order");
    assert!(best[..3].contains(&3), "{best:?}");
    assert_eq!(found(&index, "refund the order, please")[0], 3);
}
