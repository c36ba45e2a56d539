//! "Did you mean": nearest-name search among the names that exist.

/// The candidate closest to `name`, when it is close enough to be a typo.
pub fn nearest_name<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A name as long as a request body is no typo, and comparing it would cost
    // its length times that of every candidate.
    if name.len() > 128 {
        return None;
    }
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= 128)
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        // More than half of a short name is another name.
        .filter(|(distance, candidate)| {
            let longer = name.len().max(candidate.len());
            *distance <= 1 + longer / 4 && *distance * 2 < longer.max(3)
        })
        // The same one every time, in whatever order they come.
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest_name;

    #[test]
    fn only_a_likely_typo_is_suggested() {
        let names = ["title", "body", "project"];
        assert_eq!(nearest_name("titel", names), Some("title"));
        assert_eq!(nearest_name("projct", names), Some("project"));
        assert_eq!(nearest_name("assignee", names), None);
        assert_eq!(nearest_name("nope", ["wipe", "report"]), None);
        assert_eq!(nearest_name("rpeort", ["wipe", "report"]), Some("report"));
        assert_eq!(nearest_name("ad", ["add"]), Some("add"));
        assert_eq!(nearest_name(&"x".repeat(100_000), names), None);
    }
}
