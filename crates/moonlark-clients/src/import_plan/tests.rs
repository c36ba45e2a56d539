use super::*;

fn server(command: &str, env: &[(&str, &str)]) -> ImportedServer {
    ImportedServer {
        command: Some(command.to_owned()),
        env: env.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..ImportedServer::default()
    }
}

fn plan(text: &str, found: &[(&str, ImportedServer)]) -> Result<ImportPlan> {
    let entry = |(name, server): &(&str, ImportedServer)| {
        ("f".to_owned(), ImportedEntry { name: (*name).to_owned(), server: Ok(server.clone()) })
    };
    let servers = found.iter().map(entry).collect();
    let imported = ImportInput { servers, ..ImportInput::default() };
    plan_import(text, "moonlark.toml", imported, false, &|_| None)
}

fn fates(plan: &ImportPlan) -> Vec<String> {
    let fate = |planned: &PlannedEntry| match &planned.fate {
        ImportFate::Added { name, .. } => format!("{} → {name}", planned.from),
        ImportFate::There { name } => format!("{} = {name}", planned.from),
        ImportFate::LeftOut { why } => format!("{}: {why}", planned.from),
    };
    plan.servers.iter().map(fate).collect()
}

#[test]
fn what_is_there_stays_and_tables_go_behind_it() {
    let new = [("x", server("a", &[]))];
    for (text, expected) in [
        ("", "[mcp_servers.x]\ncommand = \"a\"\n"),
        (
            "# mine\n[server] # port\nport=1",
            "# mine\n[server] # port\nport=1\n\n[mcp_servers.x]\ncommand = \"a\"\n",
        ),
        ("port = 1\r\n", "port = 1\r\n\r\n[mcp_servers.x]\r\ncommand = \"a\"\r\n"),
        (
            "[mcp_servers.y]\ncommand = \"b\"\n[tools]\n",
            "[mcp_servers.y]\ncommand = \"b\"\n[tools]\n\n[mcp_servers.x]\ncommand = \"a\"\n",
        ),
        (
            "mcp_servers.y.command = \"b\"\n",
            "mcp_servers.y.command = \"b\"\n\n[mcp_servers.x]\ncommand = \"a\"\n",
        ),
    ] {
        assert_eq!(plan(text, &new).unwrap().text, expected);
    }
}

#[test]
fn the_same_server_goes_in_once_and_another_of_its_name_gets_a_number() {
    let text =
        "[mcp_servers.a]\ncommand = \"a\"\ntimeout = 3\n[mcp_servers.b]\ncommand = \"other\"\n";
    let found = [
        ("a", server("a", &[])),
        ("b", server("b", &[])),
        ("b", server("b", &[])),
        ("b", server("c", &[])),
        ("B c", server("b", &[])),
        ("B/c", server("c", &[])),
    ];
    let plan = plan(text, &found).unwrap();
    assert_eq!(
        fates(&plan),
        ["a = a", "b → b-2", "b = b-2", "b → b-3", "B c → B-c", "B/c → B-c-2"]
    );
}

#[test]
fn importing_again_adds_nothing() {
    let found = [("gh", server("npx", &[("GITHUB_TOKEN", "abc"), ("MODE", "x")]))];
    let first = plan("", &found).unwrap();
    let second = plan(&first.text, &found).unwrap();
    assert_eq!(second.text, first.text);
    assert_eq!(fates(&second), ["gh = gh"]);
}

#[test]
fn secrets_become_variables_that_are_named_once() {
    let found = [
        ("a", server("x", &[("MY_API_KEY", "one")])),
        ("b", server("x", &[("MY_API_KEY", "two"), ("OTHER", "${MY_API_KEY}")])),
    ];
    let plan = plan("", &found).unwrap();
    assert!(!plan.text.contains("one") && !plan.text.contains("two"), "{}", plan.text);
    let variables: Vec<(&str, String)> = plan
        .variables
        .iter()
        .map(|variable| (variable.name.as_str(), variable.servers.join(" ")))
        .collect();
    assert_eq!(
        variables,
        [
            ("A_MY_API_KEY", "mcp_servers.a".to_owned()),
            ("B_MY_API_KEY", "mcp_servers.b".to_owned()),
            ("MY_API_KEY", "mcp_servers.b".to_owned()),
        ]
    );
}

#[test]
fn kept_secrets_are_written_and_still_not_shown() {
    let entry =
        ImportedEntry { name: "a".to_owned(), server: Ok(server("x", &[("API_KEY", "hunter2")])) };
    let servers = vec![("f".to_owned(), entry)];
    let imported = ImportInput { servers, ..ImportInput::default() };
    let plan = plan_import("", "f", imported, true, &|_| None).unwrap();
    assert!(plan.text.contains("hunter2"));
    assert!(!plan.shown.contains("hunter2"));
    assert!(plan.variables.is_empty());
}

#[test]
fn a_file_that_cannot_take_tables_is_left_alone() {
    let new = [("x", server("a", &[]))];
    for (text, said) in [
        ("a = [1\nb = 2\n", "moonlark.toml:2:1"),
        ("mcp_servers = { y = { command = \"b\" } }\n", "mcp_servers is written as one value"),
        ("mcp_servers = 1\n", "mcp_servers is written as one value"),
    ] {
        let Err(problem) = plan(text, &new) else { panic!("{text}") };
        assert!(problem.to_string().contains(said), "{problem}");
    }
}
