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
