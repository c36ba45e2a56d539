//! Which grants allow what, and how a denial reads.

use super::*;

fn reach(grants: &[&str], url: &str) -> String {
    let grants = GrantSet::for_authored_script(
        "tools.script.t",
        PathBuf::from("."),
        grants.iter().map(|grant| grant.parse().unwrap()).collect(),
    );
    match grants.check_url("http.get", &url.parse().unwrap()) {
        Ok(proof) if proof.reach().named => "Named".to_owned(),
        Ok(proof) if proof.reach().public => "Public".to_owned(),
        Ok(_) => "Ranges".to_owned(),
        Err(problem) => problem.to_string(),
    }
}

#[test]
fn public_hosts_are_open_and_local_ones_only_by_name() {
    assert_eq!(reach(&[], "https://api.example.com/x"), "Public");
    assert_eq!(reach(&["net:api.example.com"], "https://api.example.com/x"), "Named");
    assert_eq!(
        reach(&[], "http://localhost:8080/"),
        "error[denied]: http.get may not reach localhost:8080\nhint: add \"net:localhost:8080\" to allow for tools.script.t in moonlark.toml"
    );
    assert_eq!(reach(&["net:localhost:8080"], "http://localhost:8080/"), "Named");
    assert!(reach(&["net:localhost:8080"], "http://localhost:8081/").contains("denied"));
    assert!(reach(&["net:*"], "http://127.0.0.1/").contains("denied"));
    assert_eq!(reach(&["net:127.0.0.1"], "http://2130706433:99/"), "Named");
    assert_eq!(reach(&["net:[::1]:80"], "http://[::1]/"), "Named");
}

#[test]
fn a_range_opens_its_addresses_and_names_that_lead_there() {
    let tens = &["net:10.0.0.0/8:443"];
    assert_eq!(reach(tens, "https://10.1.2.3/"), "Public");
    assert!(reach(tens, "http://10.1.2.3/").contains("denied"));
    assert!(reach(tens, "https://11.1.2.3:444/").contains("Public"));
    assert!(reach(tens, "https://192.168.0.1/").contains("denied"));
    // A name of this network may lead into the range; a public one anywhere public too.
    assert_eq!(reach(tens, "https://ci.internal/"), "Ranges");
    assert!(reach(tens, "http://ci.internal/").contains("denied"));
    assert_eq!(reach(tens, "https://example.com/"), "Public");
    assert_eq!(reach(&["net:[fd00::]/8"], "http://[fd12::1]:8080/"), "Public");
    assert!(reach(&["net:[fd00::]/8"], "http://[fe80::1]/").contains("denied"));

    let agents =
        GrantSet::for_agent_script("execute", None, vec!["net:10.0.0.0/8".parse().unwrap()]);
    let agents = |url: &str| agents.check_url("http.get", &url.parse().unwrap());
    assert!(agents("http://10.0.0.1/").is_ok());
    assert!(agents("http://93.184.215.14/").is_err());
    let named = agents("http://example.com/").unwrap();
    assert!(!named.reach().allows_unresolved_name());
    assert_eq!(named.reach().check_address("93.184.215.14".parse().unwrap()), ReachVerdict::No);
    assert_eq!(named.reach().check_address("10.0.0.9".parse().unwrap()), ReachVerdict::Yes);
}

#[test]
fn what_the_operator_closes_no_grant_opens() {
    let network = NetworkPolicy {
        public: true,
        deny: ["*.ads.example", "db.example:22", "192.168.0.0/16", "10.0.0.9:80"]
            .iter()
            .map(|net| net.parse().unwrap())
            .collect(),
    };
    let grants = ["net:x.ads.example", "net:db.example", "net:192.168.1.1", "net:10.0.0.9"];
    let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    let grants = GrantSet::for_authored_script("tools.script.t", PathBuf::from("."), grants)
        .with_network_policy(&network);
    let check = |url: &str| match grants.check_url("http.get", &url.parse().unwrap()) {
        Ok(_) => "ok".to_owned(),
        Err(problem) => problem.to_string(),
    };
    assert_eq!(
        check("http://x.ads.example/"),
        "error[denied]: http.get may not reach x.ads.example, which network.deny closes for all scripts\nhint: if scripts are to reach it, take it out of deny in [network] in moonlark.toml"
    );
    for url in ["http://db.example:22/", "http://192.168.1.1/", "http://10.0.0.9/"] {
        assert!(check(url).contains("network.deny"), "{url}");
    }
    for url in ["http://db.example/", "http://10.0.0.9:81/", "http://example.com/"] {
        assert_eq!(check(url), "ok", "{url}");
    }
    // A granted name that leads where it is closed is stopped after DNS.
    let proof = grants.check_url("http.get", &"http://db.example/".parse().unwrap()).unwrap();
    assert_eq!(proof.reach().check_address("10.0.0.9".parse().unwrap()), ReachVerdict::Never);
    assert!(grants.check_server("postgres.query", "192.168.1.1", 5432).is_err());
}

#[test]
fn without_the_public_internet_only_grants_count() {
    let network = NetworkPolicy { public: false, ..NetworkPolicy::default() };
    let grants = vec!["net:*.example.com".parse().unwrap()];
    let grants = GrantSet::for_authored_script("tools.script.t", PathBuf::from("."), grants)
        .with_network_policy(&network);
    let check = |url: &str| grants.check_url("http.get", &url.parse().unwrap()).is_ok();
    assert!(check("http://api.example.com/"));
    assert!(!check("http://example.org/"));
    assert!(!check("http://93.184.215.14/"));
}

#[test]
fn every_spelling_of_a_local_address_is_denied() {
    for url in [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://017700000001/",
        "http://0.0.0.0/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::]/",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest",
        "http://100.64.0.1/",
        "http://[fd00::1]/",
        "http://[fe80::1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://user@127.0.0.1/",
        "http://LOCALHOST./",
        "http://a.localhost/",
        "http://metadata.google.internal/",
    ] {
        assert!(reach(&[], url).starts_with("error[denied]"), "{url}: {}", reach(&[], url));
    }
    assert!(reach(&[], "file:///etc/passwd").starts_with("error[bad_request]"));
}

#[test]
fn patterns_match_whole_names() {
    for (pattern, name, expected) in [
        ("jira_*", "jira_create", true),
        ("jira_*", "xjira_create", false),
        ("*", "", true),
        ("a*c", "abc", true),
        ("a*c", "acb", false),
        ("echo", "echo", true),
        ("echo", "echo2", false),
        ("*a*a", "aa", true),
        ("*.github.com", "github.com", false),
    ] {
        assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
    }
}

fn exec(declared: &[&str], grants: &[&str], command: &str) -> String {
    let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
    let grants = GrantSet::for_authored_script("tools.script.t", PathBuf::from("."), grants)
        .with_declared_commands(declared.iter().map(|command| (*command).to_owned()).collect());
    match grants.check_exec("exec.run", command) {
        Ok(proof) => proof.command().to_owned(),
        Err(problem) => problem.to_string(),
    }
}

#[test]
fn a_command_runs_when_author_and_operator_say_so() {
    assert_eq!(exec(&["git"], &["exec:git"], "git"), "git");
    assert_eq!(exec(&["/opt/a b/x"], &["exec:/opt/a b/x"], "/opt/a b/x"), "/opt/a b/x");
    assert_eq!(
        exec(&[], &["exec:git"], "git"),
        "error[denied]: exec.run may not run git, which the script does not declare\nhint: add \"git\" to allowed_exec in the script"
    );
    assert_eq!(
        exec(&["git"], &["exec:gi", "exec:/usr/bin/git"], "git"),
        "error[denied]: exec.run may not run git\nhint: add \"exec:git\" to allow for tools.script.t in moonlark.toml"
    );
    // A pattern is a name like any other.
    assert!(exec(&["*", "git"], &["exec:*"], "git").starts_with("error[denied]"));
}

#[test]
fn what_only_looks_like_a_command_is_never_one() {
    for command in [
        "",
        ".",
        "..",
        "./git",
        "../bin/git",
        "bin/git",
        "git/",
        " git",
        "git ",
        "git\t",
        "git\n",
        "g it",
        "git\u{a0}",
        "git\0",
        "git\0x",
        "/",
        "//bin/git",
        "/bin//git",
        "/bin/git/",
        "/bin/../bin/git",
        "/bin/./git",
        "/bin/git\n",
        "/bin/git ",
        "/bin/git\0",
    ] {
        let text = exec(&[command], &[], command);
        assert!(text.contains("neither a bare name nor an absolute path"), "{command:?}: {text}");
        let grant = format!("exec:{command}").parse::<Grant>();
        assert!(grant.is_err(), "{command:?}");
    }
    // The one does not stand for the other.
    assert!(exec(&["git"], &["exec:git"], "/usr/bin/git").contains("does not declare"));
}

#[test]
fn a_database_is_open_inside_the_directory_or_by_name() {
    let open = |grants: &[&str], path: &str| {
        let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        let grants =
            GrantSet::for_authored_script("tools.script.t", PathBuf::from("/p/tools"), grants);
        // One link in the directory leads out of it; another database is missing.
        let links = |path: &Path| match path.to_str().unwrap() {
            "/p/tools/link.db" => Some(PathBuf::from("/p/data/app.db")),
            missing if missing.contains("missing") => None,
            _ => Some(normalize_path(path)),
        };
        match grants.check_database("sqlite.query", path, links) {
            Ok(proof) => proof.path().display().to_string(),
            Err(problem) => problem.to_string(),
        }
    };
    assert_eq!(open(&[], "a.db"), "/p/tools/a.db");
    assert_eq!(open(&[], "x/../missing.db"), "/p/tools/missing.db");
    for path in ["../data/app.db", "/p/data/app.db", "link.db"] {
        assert!(open(&[], path).starts_with("error[denied]"), "{path}");
        for grant in ["sqlite:../data/app.db", "sqlite:/p/data/app.db", "sqlite:link.db"] {
            assert_eq!(open(&[grant], path), "/p/data/app.db", "{grant} {path}");
        }
    }
    assert_eq!(
        open(&["sqlite:../data"], "../data/missing.db"),
        "error[denied]: sqlite.query may not open ../data/missing.db, which is outside the script's directory\nhint: add \"sqlite:../data/missing.db\" to allow for tools.script.t in moonlark.toml"
    );
    assert!(open(&[], "../tools-of-others/a.db").starts_with("error[denied]"));
}

#[test]
fn a_database_server_is_reached_only_by_name() {
    let reach = |grant: &str, host: &str, port| {
        let grants = vec![grant.parse().unwrap()];
        let grants = GrantSet::for_authored_script("tools.script.t", PathBuf::from("."), grants);
        match grants.check_server("postgres.query", host, port) {
            Ok(proof) => format!("{} {}", proof.host(), proof.port()),
            Err(problem) => problem.to_string(),
        }
    };
    assert_eq!(reach("net:DB.example.com", "db.Example.com.", 5432), "db.example.com 5432");
    assert_eq!(reach("net:/run/PG/", "/run/PG", 5433), "/run/PG 5433");
    assert_eq!(reach("net:[::1]:5432", "::1", 5432), "::1 5432");
    assert_eq!(
        reach("net:*", "db.example.com", 5432),
        "error[denied]: postgres.query may not reach db.example.com:5432\nhint: add \"net:db.example.com:5432\" to allow for tools.script.t in moonlark.toml"
    );
    assert_eq!(
        reach("net:/run/pg", "/run/PG", 5432),
        "error[denied]: postgres.query may not reach /run/PG\nhint: add \"net:/run/PG\" to allow for tools.script.t in moonlark.toml"
    );
    assert!(reach("net:localhost:5433", "localhost", 5432).starts_with("error[denied]"));
    assert_eq!(reach("net:10.0.0.0/8", "10.0.0.1", 5432), "10.0.0.1 5432");
    assert_eq!(reach("net:10.0.0.0/8:5432", "db", 5432), "db 5432");
    assert!(reach("net:10.0.0.0/8:5433", "db", 5432).starts_with("error[denied]"));
    assert!(reach("net:10.0.0.0/8", "11.0.0.1", 5432).starts_with("error[denied]"));
    assert!(reach("net:10.0.0.0/8", "/run/pg", 5432).starts_with("error[denied]"));
}

#[test]
fn a_malformed_grant_says_what_grants_look_like() {
    let text = "web:x".parse::<Grant>().unwrap_err().to_string();
    assert!(text.starts_with("error[bad_config]: \"web:x\" is not a grant: the kind is none of"));
}
