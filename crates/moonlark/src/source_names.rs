//! Names of sources that are one identifier in scripts.

use std::collections::BTreeMap;

use moonlark_core::Problem;
use moonlark_core::sdk::to_identifier;

/// The sources that get a number behind their names, each with what is to be said.
pub(crate) fn source_name_collisions<'a>(
    names: impl Iterator<Item = &'a str>,
) -> Vec<(&'a str, Problem)> {
    let mut by_identifier: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in names {
        by_identifier.entry(to_identifier(name)).or_default().push(name);
    }
    by_identifier.retain(|_, names| names.len() > 1);
    let of_one = by_identifier.into_iter().flat_map(|(shared, names)| {
        let first = names.iter().copied().find(|name| *name == shared).unwrap_or(names[0]);
        let others = names.clone().into_iter().filter(move |name| *name != first);
        others.map(move |name| {
            let problem = Problem::bad_config(format!(
                "the sources {} are all sdk.{shared} in scripts: that is {first}, and {name} gets a number behind it",
                names.join(", ")
            ))
            .with_hint("rename one of them; until then, sdk[\"NAME\"] finds each under its own name");
            (name, problem)
        })
    });
    of_one.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_is_an_identifier_keeps_it_and_the_others_are_said() {
        let found =
            source_name_collisions(["data-server", "data_server", "my.api", "files"].into_iter());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "data-server");
        assert_eq!(
            found[0].1.message,
            "the sources data-server, data_server are all sdk.data_server in scripts: that is data_server, and data-server gets a number behind it"
        );
    }
}
