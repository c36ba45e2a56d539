use super::*;

fn index(entries: &[(&str, &str)]) -> Index {
    let mut builder = Builder::default();
    for (name, body) in entries {
        builder.add(&Entry { names: vec![name], body: vec![body], ..Entry::default() });
    }
    builder.finish()
}

fn found(index: &Index, question: &str) -> Vec<u32> {
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

fn by_meaning(entries: &[(&str, &str)]) -> Index {
    let mut builder = Builder::with_meaning();
    for (name, body) in entries {
        builder.add(&Entry { names: vec![name], body: vec![body], ..Entry::default() });
    }
    builder.finish()
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
    let ask = |index: &Index| index.search("open documents", 50, |_| true);
    assert_eq!(ask(&one), ask(&other));
    assert!(!ask(&one).is_empty());
}
