//! Attacks that make a script's request go where the script may not: by redirect, by
//! DNS, by the spelling of an address, by what is written into a request.
//!
//! The server under attack runs in a world of its own (`ssrf/world.c`): which names
//! exist and what they lead to is up to the test, and every connection that is tried
//! is on record. So a test sees not only that an attack got no answer, but that
//! nothing was connected to.

mod world;

use serde_json::json;

use crate::harness::Project;
use world::{FETCHERS, PUBLIC, World};

#[test]
fn a_public_host_is_reached_and_this_machine_is_not() {
    let world = World::new(&[], "", &[]);
    assert_eq!(world.get_both("http://open.example/"), Ok("open".to_owned()));
    assert_eq!(
        world.get_both("http://OPEN.example./"),
        Err("unavailable: http.request: cannot find the host open.example.".to_owned())
    );
    world.assert_refused(&format!("http://127.0.0.1:{}/", world.hidden.port));
    world.assert_refused(&format!("http://localhost:{}/", world.hidden.port));
}

#[test]
fn a_redirect_leads_nowhere_that_the_script_could_not_ask_for() {
    let world = World::new(&[], "", &[("inside.example", "127.0.0.1")]);
    let hidden = world.hidden.port;
    for status in [301, 302, 303, 307, 308] {
        for location in [
            format!("http://127.0.0.1:{hidden}/"),
            format!("//127.0.0.1:{hidden}/"),
            format!("http://localhost:{hidden}/"),
            format!("http://inside.example:{hidden}/"),
            format!("http://open.example@127.0.0.1:{hidden}/"),
            format!("http://[::ffff:127.0.0.1]:{hidden}/"),
            format!("/\\127.0.0.1:{hidden}/"),
            "http://169.254.169.254/latest/meta-data/".to_owned(),
        ] {
            world.open.redirects(status, &location);
            let text = world.get_both("http://open.example/to/").expect_err(&location);
            assert!(text.starts_with("denied: "), "{status} {location}: {text}");
        }
    }
    assert!(world.hidden.seen().is_empty());
    assert!(world.connected().iter().all(|line| *line == format!("{PUBLIC} 80")));
}

#[test]
fn a_redirect_to_another_scheme_is_refused() {
    let world = World::new(&[], "", &[]);
    for location in [
        "file:///etc/passwd",
        "gopher://open.example/_GET",
        "ftp://open.example/",
        "data:text/plain,hidden",
        "unix:///run/docker.sock",
        "javascript:alert(1)",
    ] {
        world.open.redirects(302, location);
        let text = world.get_both("http://open.example/to/").expect_err(location);
        let scheme = location.split(':').next().unwrap();
        assert_eq!(
            text,
            format!("tool_error: http.request takes http and https addresses, not {scheme}:")
        );
    }
}

#[test]
fn a_redirect_on_the_same_host_is_followed() {
    let world = World::new(&[], "", &[]);
    for (location, path) in [
        ("/here", "/here"),
        ("there", "/to/there"),
        ("../up?a=b#c", "/up?a=b"),
        ("?q", "/to/x?q"),
        ("//open.example/whole", "/whole"),
    ] {
        world.open.redirects(302, location);
        let url = "http://open.example/to/x";
        let _ = world.ask("fetch", json!({"url": url, "timeout": 20}));
        let seen = world.open.seen();
        let last = seen.iter().find(|it| it.starts_with(&format!("GET {path} ")));
        assert!(last.is_some(), "{location}: {seen:#?}");
    }
}

#[test]
fn what_proves_who_we_are_stays_with_the_server_it_was_for() {
    let world = World::new(&["net:127.0.0.1:HIDDEN"], "", &[]);
    for (index, tool) in FETCHERS.into_iter().enumerate() {
        world.open.redirects(307, &format!("http://127.0.0.1:{}/", world.hidden.port));
        let ask = json!({
            "url": "http://me:canary@open.example/to/",
            "headers": {
                "Cookie": "session=canary", "X-Api-Key": "canary", "Private-Token": "canary",
                "Proxy-Authorization": "canary", "X-Own": "kept",
            },
        });
        assert_eq!(world.ask(tool, ask), Ok("hidden".to_owned()));
        let seen = world.hidden.seen()[index].to_ascii_lowercase();
        assert!(seen.contains("x-own: kept"), "{seen}");
        assert!(!seen.contains("canary") && !seen.contains("authorization"), "{seen}");
    }
}

#[test]
fn a_name_that_leads_elsewhere_a_moment_later_gains_nothing() {
    let rebound = format!("{PUBLIC} 127.0.0.1");
    let world = World::new(&[], "", &[("lua.example", &rebound), ("star.example", &rebound)]);
    world.project.write(
        "world/routes",
        &format!(
            "{PUBLIC} 80 {}\n{PUBLIC} {} {}\n",
            world.open.port, world.hidden.port, world.open.port
        ),
    );
    for (tool, name) in FETCHERS.into_iter().zip(["lua.example", "star.example"]) {
        // Asked once: what was checked is what was connected to.
        let url = format!("http://{name}:{}/", world.hidden.port);
        assert_eq!(world.get(tool, &url), Ok("open".to_owned()));
        assert_eq!(world.asked(name), 1);
        // On another port there is no connection to use again: asked anew, and checked anew.
        let text = world.get(tool, &format!("http://{name}:1{}/", 234)).unwrap_err();
        assert!(text.starts_with("denied: "), "{text}");
    }
    assert!(world.hidden.seen().is_empty());
    assert!(!world.connected().iter().any(|line| line.starts_with("127.")));
}

#[test]
fn trying_again_is_checked_again() {
    // 9.9.9.9 cannot be reached, so that the client comes back for another address.
    let world = World::new(
        &[],
        "",
        &[("flip.example", "9.9.9.9 127.0.0.1"), ("flop.example", "9.9.9.9 127.0.0.1")],
    );
    for (tool, name) in FETCHERS.into_iter().zip(["flip.example", "flop.example"]) {
        let url = format!("http://{name}:{}/", world.hidden.port);
        let text = world.ask(tool, json!({"url": url, "retries": 3})).unwrap_err();
        assert!(text.starts_with("denied: "), "{text}");
        assert_eq!(world.asked(name), 2);
    }
    assert!(world.hidden.seen().is_empty());
}

#[test]
fn of_several_addresses_only_those_are_tried_that_may_be_reached() {
    let world = World::new(
        &[],
        "",
        &[
            ("mixed.example", &format!("127.0.0.1,10.0.0.1,{PUBLIC},::1")),
            ("dead.example", "9.9.9.9,127.0.0.1,::ffff:127.0.0.1,::1"),
            ("inside.example", "10.0.0.1,127.0.0.1"),
            ("mapped.example", "::ffff:127.0.0.1"),
        ],
    );
    assert_eq!(world.get_both("http://mixed.example/"), Ok("open".to_owned()));
    let dead = world.get_both(&format!("http://dead.example:{}/", world.hidden.port));
    assert!(dead.unwrap_err().starts_with("unavailable: "));
    for name in ["inside.example", "mapped.example"] {
        let text = world.get_both(&format!("http://{name}:{}/", world.hidden.port)).unwrap_err();
        assert!(text.starts_with("denied: "), "{text}");
    }
    assert!(world.hidden.seen().is_empty());
    let mut tried = world.connected();
    tried.sort();
    tried.dedup();
    assert_eq!(tried, [format!("9.9.9.9 {}", world.hidden.port), format!("{PUBLIC} 80")]);
}

#[test]
fn an_address_is_known_however_it_is_spelled() {
    let world = World::new(&[], "", &[]);
    let port = world.hidden.port;
    for host in [
        // Octal, decimal, hexadecimal, short.
        "0177.0.0.1",
        "017700000001",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "127.1",
        "127.0.1",
        "0x7f.0.0x0.01",
        "127.0.0.01",
        // This machine by other numbers.
        "0.0.0.0",
        "0",
        "127.255.255.254",
        "[::]",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        // IPv4 in IPv6: mapped, compatible, NAT64, 6to4, Teredo.
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[::7f00:1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b:1::127.0.0.1]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
        "[::ffff:0:127.0.0.1]",
        // Other letters for the same digits and dots.
        "①②⑦.⓪.⓪.①",
        "１２７.０.０.１",
        "127。0。0。1",
        "127．0．0．1",
        "localh\u{f6}st.localhost",
        "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
        "LOCALHOST",
        "localhost.",
        "%6cocalhost",
        "127.0.0.%31",
        "127.0.0.1.",
        // Private networks, shared ones, other people's metadata.
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.127.255.254",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[fc00::1]",
        "[fec0::1]",
        "192.0.0.192",
        "metadata.google.internal",
        "printer.local",
        "x.localhost",
        "198.18.0.1",
        // For nobody, and for everybody.
        "224.0.0.1",
        "239.255.255.250",
        "255.255.255.255",
        "240.0.0.1",
        "[ff02::1]",
        "[100::1]",
        "[2001:db8::1]",
        "[3fff::1]",
        "192.0.2.1",
    ] {
        world.assert_refused(&format!("http://{host}:{port}/"));
        world.assert_refused(&format!("https://{host}/"));
    }
}

#[test]
fn what_stands_before_or_after_a_host_is_not_the_host() {
    let world = World::new(&[], "", &[]);
    let port = world.hidden.port;
    for url in [
        format!("http://open.example@127.0.0.1:{port}/"),
        format!("http://open.example:80@127.0.0.1:{port}/"),
        format!("http://open.example%20@127.0.0.1:{port}/"),
        format!("http://a:b@c@127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{port}#@open.example/"),
        format!("http://127.0.0.1:{port}?@open.example/"),
        format!("http://127.0.0.1:{port}\\@open.example/"),
        format!("http:\\\\127.0.0.1:{port}\\"),
        format!("http:127.0.0.1:{port}/"),
        format!("http:////127.0.0.1:{port}/"),
        format!("ht\ttp://127.0.0.1:{port}/"),
        format!("http://127.0.\n0.1:{port}/"),
        format!("http://127.0.0.1\r\n:{port}/"),
        format!(" \u{1}http://127.0.0.1:{port}/ "),
        "http:///".to_owned(),
        "http://".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1/".to_owned(),
        "http+unix://%2Frun%2Fdocker.sock/".to_owned(),
        "http://[::1%25lo]/".to_owned(),
        "http://[127.0.0.1]/".to_owned(),
        "http://127.0.0.1:99999/".to_owned(),
        "http://open.example:80:80/".to_owned(),
    ] {
        world.assert_refused(&url);
    }
    // The other way round it is the public host, whatever it may look like.
    for url in [
        format!("http://127.0.0.1:{port}@open.example/"),
        format!("http://open.example\\@127.0.0.1:{port}/"),
        format!("http://open.example/@127.0.0.1:{port}/"),
        format!("http://open.example#@127.0.0.1:{port}/"),
    ] {
        assert_eq!(world.get_both(&url), Ok("open".to_owned()), "{url}");
    }
    assert!(world.hidden.seen().is_empty());
}

#[test]
fn port_0_is_an_error_like_any_other() {
    let world = World::new(&["net:127.0.0.1"], "", &[]);
    for url in ["http://127.0.0.1:0/", "http://open.example:0/"] {
        let text = world.get_both(url).unwrap_err();
        assert!(text.starts_with("unavailable: "), "{url}: {text}");
    }
}

#[test]
fn what_is_written_into_a_request_stays_where_it_was_put() {
    let world = World::new(&[], "", &[]);
    let smuggled = "x\r\nHost: hidden\r\n\r\nGET /smuggled HTTP/1.1\r\nX: y";
    for tool in FETCHERS {
        for (name, value) in [
            ("Host", "hidden"),
            ("host", "hidden"),
            ("Transfer-Encoding", "chunked"),
            ("Connection", "X-Forwarded-For"),
            ("Upgrade", "h2c"),
            ("TE", "trailers"),
            ("Trailer", "X"),
            ("Expect", "100-continue"),
            ("X-A", smuggled),
            ("X-A", "a\nb"),
            ("X-A", "a\rb"),
            ("X-A", "a\0b"),
            ("X-A: b\r\nX-B", "c"),
            ("X A", "b"),
            ("X-A:", "b"),
            ("", "b"),
            (":authority", "hidden"),
        ] {
            let ask = json!({"url": "http://open.example/", "headers": {name: value}});
            let text = world.ask(tool, ask).expect_err(name);
            assert!(text.starts_with("tool_error: "), "{name}: {text}");
        }
        for method in ["GET / HTTP/1.1\r\nX: y\r\n\r\nGET", "GET /", "", "CONNECT", "trace", "G\0T"]
        {
            let ask = json!({"url": "http://open.example/", "method": method});
            let text = world.ask(tool, ask).expect_err(method);
            assert!(text.starts_with("tool_error: "), "{method}: {text}");
        }
        assert!(world.open.seen().is_empty(), "{:#?}", world.open.seen());
    }
    // In an address it is escaped, or not there.
    for tool in FETCHERS {
        for ask in [
            json!({"url": format!("http://open.example/p{smuggled}")}),
            json!({"url": "http://open.example/", "query": {"a": smuggled, smuggled: "b"}}),
            json!({"url": "http://open.example/", "headers": {"Content-Length": "999"}, "method": "POST", "body": "GET /smuggled HTTP/1.1\r\n\r\n"}),
        ] {
            assert_eq!(world.ask(tool, ask), Ok("open".to_owned()));
        }
    }
    let seen = world.open.seen();
    assert_eq!(seen.len(), 6);
    for request in seen {
        let head = request.split("\r\n\r\n").next().unwrap();
        let hosts = head.lines().filter(|line| line.to_ascii_lowercase().starts_with("host:"));
        assert_eq!(hosts.collect::<Vec<_>>(), ["host: open.example"], "{request}");
        let lengths = head.to_ascii_lowercase().matches("content-length").count();
        assert!(lengths <= 1 && !head.contains("999") && !head.contains("\nGET"), "{request}");
    }
}

#[test]
fn a_range_opens_what_is_in_it_and_nothing_else() {
    let world = World::new(
        &["net:10.20.0.0/16:80", "net:[fd00:1::]/32"],
        "",
        &[
            ("ci.internal", "10.20.3.4"),
            ("away.internal", "10.21.0.1"),
            ("turned.internal", "10.21.0.1,10.20.3.4,127.0.0.1"),
            ("six.example", "fd00:1::7"),
        ],
    );
    let open = world.open.port;
    world.project.write(
        "world/routes",
        &format!("10.20.3.4 80 {open}\nfd00:1::7 80 {open}\n10.21.0.1 80 {}\n", world.hidden.port),
    );
    for url in [
        "http://10.20.3.4/",
        "http://[::ffff:10.20.3.4]/",
        "http://ci.internal/",
        "http://turned.internal/",
        "http://six.example/",
        "http://[fd00:1::7]/",
    ] {
        let got = world.get_both(url);
        // Only this one goes by IPv6 to an IPv4 address that has no route.
        let mapped = url.contains("ffff");
        assert!(mapped || got == Ok("open".to_owned()), "{url}: {got:?}");
    }
    for url in [
        "http://10.21.0.1/",
        "http://away.internal/",
        "http://10.20.3.4:81/",
        "http://ci.internal:81/",
        "http://[fd00:2::7]/",
        "http://127.0.0.1/",
        "http://localhost/",
    ] {
        world.assert_refused(url);
    }
}

#[test]
fn what_the_operator_closes_no_grant_and_no_name_opens() {
    let config = "[network]\ndeny = [\"*.ads.example\", \"127.0.0.0/8\", \"93.184.215.14:81\"]\n";
    let world = World::new(
        &["net:127.0.0.1", "net:inside.example", "net:x.ads.example"],
        config,
        &[("inside.example", "127.0.0.1"), ("x.ads.example", PUBLIC)],
    );
    assert_eq!(world.get_both("http://open.example/"), Ok("open".to_owned()));
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "inside.example", "x.ads.example"] {
        world.assert_refused(&format!("http://{host}:{}/", world.hidden.port));
    }
    world.assert_refused("http://open.example:81/");
    let text = world.get_both("http://inside.example/").unwrap_err();
    assert_eq!(
        text,
        "denied: http.request may not reach inside.example, which network.deny closes for all scripts"
    );
}

#[test]
fn without_the_public_internet_only_what_is_granted_is_reached() {
    let config = "[network]\npublic = false\n";
    let world = World::new(
        &["net:*.open.example"],
        config,
        &[("api.open.example", PUBLIC), ("evil.open.example", "127.0.0.1")],
    );
    assert_eq!(world.get_both("http://api.open.example/"), Ok("open".to_owned()));
    for url in ["http://open.example/", "http://93.184.215.14/", "http://evil.open.example/"] {
        world.assert_refused(url);
    }
}

#[test]
fn a_connection_that_one_script_may_have_is_not_another_ones() {
    let config = r#"
[tools.script.insider]
path = "tools/insider.lua"
allow = ["net:inside.example"]
"#;
    let world = World::new(&[], config, &[("inside.example", "127.0.0.1")]);
    let insider = "tool = { name = 'insider', description = '', parameters = { { name = 'ask', type = 'object' } } }\nfunction tool.execute(params) return http.request(params.ask).body end\n";
    world.project.write("tools/insider.lua", insider);
    world.server.wait_until("insider", |status, _| status != 404);
    let url = format!("http://inside.example:{}/", world.hidden.port);
    assert_eq!(world.get("insider", &url), Ok("hidden".to_owned()));
    let text = world.get_both(&url).unwrap_err();
    assert!(text.starts_with("denied: "), "{text}");
    assert_eq!(world.hidden.seen().len(), 1);
}

#[test]
fn behind_a_proxy_names_are_the_proxys_and_addresses_are_ours() {
    let env = vec![
        // The site that is open to all is the proxy here.
        ("http_proxy", "http://127.0.0.1:OPEN".to_owned()),
        ("NO_PROXY", "direct.example".to_owned()),
    ];
    let config = "[execute]\nallow = [\"net:10.0.0.0/8\"]\n";
    let names = [("direct.example", "127.0.0.1"), ("ranged.example", "10.0.0.1")];
    let world = World::with(&[], config, &names, env);
    // The proxy gets the whole address, and nobody here asked where it leads.
    assert_eq!(world.get_both("http://anything.example/x"), Ok("open".to_owned()));
    let seen = world.open.seen();
    assert!(seen[0].starts_with("GET http://anything.example/x HTTP/1.1\r\n"), "{}", seen[0]);
    assert_eq!(world.asked("anything.example"), 0);
    // Addresses and names of this machine need no DNS to be refused, the proxy's too.
    for url in [
        "http://127.0.0.1/".to_owned(),
        "http://localhost/".to_owned(),
        "http://169.254.169.254/".to_owned(),
        format!("http://127.0.0.1:{}/", world.open.port),
        // Past the proxy, it is checked where the name leads.
        format!("http://direct.example:{}/", world.hidden.port),
    ] {
        let count = world.open.seen().len();
        let text = world.get_both(&url).unwrap_err();
        assert!(text.starts_with("denied: "), "{url}: {text}");
        assert_eq!(world.open.seen().len(), count, "{url}");
    }
    // What is granted by address only is not granted where nobody sees the address.
    let script = "return http.get('http://ranged.example/').body";
    let (_, answer) = world.server.post("execute", &json!({ "script": script }));
    assert!(answer.to_string().contains("may not reach ranged.example"), "{answer}");
    assert!(world.hidden.seen().is_empty());
}

#[test]
fn a_redirect_through_a_proxy_is_checked_as_any_other() {
    let env = vec![("http_proxy", "http://127.0.0.1:OPEN".to_owned())];
    let world = World::with(&[], "", &[], env);
    for location in ["http://127.0.0.1/", "http://localhost/", "http://10.0.0.1/"] {
        world.open.redirects(302, location);
        let text = world.get_both("http://anything.example/to/").unwrap_err();
        assert!(text.starts_with("denied: "), "{location}: {text}");
    }
}

#[test]
fn agents_scripts_reach_nothing_that_is_not_granted() {
    let world = World::new(&[], "[execute]\nallow = [\"net:open.example\"]\n", &[]);
    let run = |url: &str| {
        let script = format!("return http.get('{url}').body");
        world.server.post("execute", &json!({ "script": script })).1.to_string()
    };
    assert!(run("http://open.example/").contains("open"));
    let denied = run(&format!("http://{PUBLIC}/"));
    assert!(denied.contains("may not reach"), "{denied}");
    let denied = run(&format!("http://127.0.0.1:{}/", world.hidden.port));
    assert!(denied.contains("may not reach"), "{denied}");
    assert!(world.hidden.seen().is_empty());
}

#[test]
fn database_servers_are_under_the_same_rules() {
    let query = "tool = { name = 'ask_db', description = '', parameters = { { name = 'conn', type = 'string' } } }\nfunction tool.execute(params) return postgres.query(params.conn, 'select 1') end\n";
    let config = r#"
[network]
deny = ["closed.example", "10.9.0.0/16"]
[tools.script.ask_db]
path = "tools/ask_db.lua"
allow = ["net:10.0.0.0/8:5432", "net:closed.example", "net:moved.example"]
"#;
    let names =
        [("near.example", "127.0.0.1"), ("far.example", "10.0.0.1"), ("moved.example", "10.9.0.1")];
    let world = World::new(&[], config, &names);
    world.project.write("tools/ask_db.lua", query);
    world.server.wait_until("ask_db", |status, _| status != 404);
    let ask = |host: &str| {
        let conn = format!("postgres://me:canary@{host}/x");
        let (_, answer) = world.server.post("ask_db", &json!({ "conn": conn }));
        let text = answer["error"]["message"].as_str().unwrap().to_owned();
        assert!(!text.contains("canary"), "{text}");
        text
    };
    for host in [
        "near.example",
        "127.0.0.1",
        "localhost",
        "open.example",
        "10.0.0.1:5433",
        "[::1]",
        "127.1",
        "2130706433",
        "0x7f.1",
        "closed.example",
        "moved.example",
    ] {
        let text = ask(host);
        assert!(
            text.contains("may not be reached")
                || text.contains("may not reach")
                || text.contains("is not one"),
            "{host}: {text}"
        );
    }
    assert_eq!(world.connected(), Vec::<String>::new());
    assert!(ask("far.example").contains("cannot connect to far.example:5432"));
    assert_eq!(world.connected(), ["10.0.0.1 5432"]);
}

#[test]
fn connectors_are_under_the_same_rules() {
    let hidden = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = hidden.local_addr().unwrap().port();
    let scan = format!(
        "connector = {{ name = 'leak', description = 'Leak' }}\nfunction connector.scan() return {{ {{ source_id = '1', title = 'x', body = http.get('http://127.0.0.1:{port}/').body }} }} end\n"
    );
    let project = Project::new(&[("connectors/leak.luau", &scan)]);
    let output = project.run(&["sync", "leak"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(&format!("may not reach 127.0.0.1:{port}")), "{said}");
    hidden.set_nonblocking(true).unwrap();
    assert_eq!(hidden.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
