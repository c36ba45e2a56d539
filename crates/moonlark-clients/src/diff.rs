//! What a change does to a text, as a unified diff of one hunk.
//!
//! Our changes are all in one place, so lines that are the same at either end
//! are found and whatever is between them has changed. That is no search for the
//! shortest diff; it is always a true one.

/// None when nothing changes. `old` is none for a file that is not there yet,
/// and `new` for one that goes away. `context` lines are shown around it.
pub fn unified_diff(
    old: Option<&str>,
    new: Option<&str>,
    label: &str,
    context: usize,
) -> Option<String> {
    if old == new {
        return None;
    }
    let lines = |text: Option<&str>| -> Vec<String> {
        text.unwrap_or_default().split_inclusive('\n').map(diff_line).collect()
    };
    let name =
        |text: Option<&str>| if text.is_some() { label.to_owned() } else { "/dev/null".into() };
    let (a, b) = (lines(old), lines(new));
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let most = a.len().min(b.len()) - same;
    let tail = a.iter().rev().zip(b.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let (start, above) = (same.saturating_sub(context), same.min(context));
    let below = tail.min(context);
    let (gone, come) = (&a[same..a.len() - tail], &b[same..b.len() - tail]);

    let mut text = format!("--- {}\n+++ {}", name(old), name(new));
    text.push_str(&format!(
        "\n@@ -{} +{} @@",
        hunk_range(start, above + gone.len() + below),
        hunk_range(start, above + come.len() + below)
    ));
    let before = a[start..same].iter().map(|line| (' ', line));
    let changed = gone.iter().map(|line| ('-', line)).chain(come.iter().map(|line| ('+', line)));
    let after = a[a.len() - tail..].iter().take(below).map(|line| (' ', line));
    for (sign, line) in before.chain(changed).chain(after) {
        text.push_str(&format!("\n{sign}{line}"));
    }
    Some(text)
}

fn diff_line(line: &str) -> String {
    match line.strip_suffix('\n') {
        Some(line) => line.strip_suffix('\r').unwrap_or(line).to_owned(),
        None => format!("{line}\n\\ No newline at end of file"),
    }
}

/// A hunk without lines stands behind the line before it.
fn hunk_range(start: usize, count: usize) -> String {
    match count {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        count => format!("{},{count}", start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(old: Option<&str>, new: Option<&str>, expected: &str) {
        assert_eq!(unified_diff(old, new, "f", 3).unwrap(), expected);
    }

    #[test]
    fn what_changed_is_shown_with_a_few_lines_around_it() {
        check(
            Some("1\n2\n3\n4\n5\n6\n7\n8\n"),
            Some("1\n2\n3\n4\nx\ny\n6\n7\n8\n"),
            "--- f\n+++ f\n@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+x\n+y\n 6\n 7\n 8",
        );
        check(None, Some("a\n"), "--- /dev/null\n+++ f\n@@ -0,0 +1 @@\n+a");
        check(Some("a\n"), None, "--- f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a");
        check(Some("a\na\n"), Some("a\na\na\n"), "--- f\n+++ f\n@@ -1,2 +1,3 @@\n a\n a\n+a");
        check(
            Some("a"),
            Some("a\r\n"),
            "--- f\n+++ f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a",
        );
        assert_eq!(unified_diff(Some("a"), Some("a"), "f", 3), None);
        assert_eq!(
            unified_diff(Some("a\n"), Some("a\nb\n"), "f", 0).unwrap(),
            "--- f\n+++ f\n@@ -1,0 +2 @@\n+b"
        );
    }
}
