//! Fields that a script reads and no answer had: said, and not taken for an answer.

use super::failures::logged;
use super::world::World;

#[tokio::test]
async fn a_field_that_no_answer_had_is_said() {
    for (script, expected) in [
        (
            "return sdk.declared.read({}).text",
            "script:1: the result of sdk.declared.read has no field text; it has content, more",
        ),
        (
            "local r = declared.read({}):await()\nreturn { r.contents }",
            "script:2: the result of sdk.declared.read has no field contents; it has content, more",
        ),
        (
            "return sdk.declared.read({}).more.sise",
            "script:1: the result of sdk.declared.read has no field sise in more; it has size",
        ),
        (
            "for _, r in map_parallel({ 1 }, function() return sdk.declared.read({}) end) do print(r.txt) end return 1",
            "nil\nscript:1: the result of sdk.declared.read has no field txt; it has content, more",
        ),
        (
            "return sdk.content.json({}).n",
            "script:1: the result of sdk.content.json is a text, which has no field n; json.decode gives n",
        ),
        // Declared as optional, and not there this time.
        ("return sdk.declared.read({}).note", ""),
        // It is there, though nobody declared it.
        ("return sdk.declared.read({}).more.size", ""),
        // Nobody declares it, and it was not there.
        (
            "return content.json({}):await().other",
            "script:1: the result of sdk.content.json has no field other; it has n",
        ),
        // The last page has no next one.
        ("return content.json({}):await().next_cursor", ""),
        ("local r = sdk.declared.read({}) r.seen = true return r.seen", ""),
    ] {
        assert_eq!(logged(script).await.1, expected, "{script}");
    }
}

#[tokio::test]
async fn a_field_before_or_is_said_like_any_other() {
    let of = |field: &str| format!("script:1: the result of sdk.shop.orders has no field {field}");
    let top = "; it has next, orders, summary";
    let row = " in orders[]; it has id, total";
    for (script, expected) in [
        ("return r.amount or 0", format!("{}{top}", of("amount"))),
        ("return r.order or r.items or r.data", format!("{}{top}", of("order, items or data"))),
        ("for _, o in ipairs(r.results or {}) do end return 1", format!("{}{top}", of("results"))),
        (
            "local n = 0 for _, o in r.orders do n += o.amount or 0 end return n",
            format!("{}{row}", of("amount")),
        ),
        (
            "local out = {} for _, o in r.orders do out.amount = o.amount or 0 end return out",
            format!("{}{row}", of("amount")),
        ),
        (
            "return r.summary and r.summary.sum or 0",
            format!("{} in summary; it has count", of("sum")),
        ),
        // One of them is there.
        ("return #(r.items or r.orders or {})", String::new()),
        ("return #(r.data and r.data.orders or r.orders)", String::new()),
        ("return r.data or r", String::new()),
        ("return r.error or 'none'", String::new()),
        ("return { r.cursor or r.next }", String::new()),
    ] {
        let script = format!("local r = sdk.shop.orders({{}}) {script}");
        assert_eq!(logged(&script).await.1, expected, "{script}");
    }
}

#[tokio::test]
async fn a_field_in_a_condition_is_said_where_it_cannot_be() {
    let of = |tool: &str, field: &str| {
        format!("script:1: the result of sdk.{tool} has no field {field}")
    };
    let orders =
        |field: &str| format!("{}; it has next, orders, summary", of("shop.orders", field));
    let declared = |field: &str| format!("{}; it has content, more", of("declared.read", field));
    for (script, expected) in [
        // What a tool declares, it has.
        (
            "local r = sdk.declared.read({}) if not r.lines_list then return 0 end return 1",
            declared("lines_list"),
        ),
        (
            "local r = sdk.declared.read({}) if r.text then return r.text end return 1",
            declared("text"),
        ),
        (
            "local r = sdk.declared.read({}) return if r.text and r.content then 1 else 2",
            declared("text"),
        ),
        (
            "local r = sdk.declared.read({}) if not r or not r.text then return 0 end return 1",
            declared("text"),
        ),
        ("local r = sdk.declared.read({}) if r.error then return 0 end return 1", String::new()),
        (
            "local r = sdk.declared.read({}) if r.note then return r.note end return 1",
            String::new(),
        ),
        (
            "local r = sdk.declared.read({}) if r.text or r.content then return 0 end return 1",
            String::new(),
        ),
        (
            "local r = sdk.declared.read({}) if not r.text and not r.content then return 0 end return 1",
            String::new(),
        ),
        (
            "local r = sdk.declared.read({}) if r.text then return 0 elseif r.content then return 1 end return 2",
            String::new(),
        ),
        // Nobody says what is in there.
        (
            "local r = sdk.declared.read({}) if r.more.extra then return 0 end return 1",
            String::new(),
        ),
        // What is not declared may be there another time, unless it is misspelt.
        ("local r = sdk.shop.orders({}) if r.note then return r.note end return 1", String::new()),
        (
            "local r = sdk.shop.orders({}) if r.order then return r.order end return 1",
            orders("order"),
        ),
        (
            "local r = sdk.shop.orders({}) if r.order then return 1 end return #r.orders",
            String::new(),
        ),
    ] {
        assert_eq!(logged(script).await.1, expected, "{script}");
    }
}

#[tokio::test]
async fn a_field_that_is_elsewhere_in_the_result_is_said() {
    let of = |field: &str| format!("script:1: the result of sdk.shop.orders has no field {field}");
    for (script, expected) in [
        ("return r.total", format!("{}; it has next, orders, summary", of("total"))),
        ("return r.orders[1].next", format!("{} in orders[]; it has id, total", of("next"))),
        ("for _, o in ipairs(r.orders) do print(o.count) end return 1", format!("nil\nnil\n{} in orders[]; it has id, total", of("count"))),
        ("for _, o in pairs(r.orders) do print(o.total) end return 1", "5\n7".to_owned()),
        ("for _, v in pairs(r) do if type(v) == 'table' then print(v.count) end end return 1", "nil\n2".to_owned()),
        ("return r.orders.id", "script:1: the result of sdk.shop.orders has a list in orders, which has no field id: its items have fields".to_owned()),
        ("return r.summary.count", String::new()),
        ("local first = r.orders[1] return first.total", String::new()),
        // Nothing is known of the items of an empty list.
        ("for _, e in sdk.shop.nothing({}) do print(e.id) end return 1", String::new()),
    ] {
        let script = format!("local r = sdk.shop.orders({{}}) {script}");
        let mut lines: Vec<_> = logged(&script).await.1.lines().map(str::to_owned).collect();
        lines.sort();
        let mut expected: Vec<_> = expected.lines().map(str::to_owned).collect();
        expected.sort();
        assert_eq!(lines, expected, "{script}");
    }
}

#[tokio::test]
async fn an_object_that_is_taken_for_a_list_is_said() {
    let said = |effect: &str| {
        format!(
            "script:1: the result of sdk.shop.orders is an object with 3 fields, not a list, so {effect}; it has next, orders, summary"
        )
    };
    for (script, expected) in [
        ("return #r", said("# gives 0")),
        ("for i = 1, #r do print(r[i]) end return 1", said("# gives 0")),
        ("for _, o in ipairs(r) do print(o) end return 1", said("ipairs finds nothing in it")),
        ("if #r == 0 then return 'none' end return 1", said("# gives 0")),
        (
            "return #r.summary",
            "script:1: the result of sdk.shop.orders has an object with 1 field in summary, not a list, so # gives 0; it has count".to_owned(),
        ),
        ("return #r.orders", String::new()),
        ("for _, o in ipairs(r.orders) do end return 1", String::new()),
        ("return #(r.orders[1].id)", String::new()),
        // It asks which of the two it is.
        ("if #r > 0 then return #r end return #r.orders", String::new()),
        ("return #sdk.shop.nothing({})", String::new()),
        ("local n = 0 for _ in pairs(r) do n += 1 end return n", String::new()),
        ("table.insert(r, 1) return #r", String::new()),
    ] {
        let script = format!("local r = sdk.shop.orders({{}}) {script}");
        assert_eq!(logged(&script).await.1, expected, "{script}");
    }
}

#[tokio::test]
async fn an_error_that_comes_of_a_missing_field_names_it() {
    let hint = "the result of sdk.shop.orders has no field amount in orders[]; it has id, total";
    for script in [
        "local l = r.orders table.sort(l, function(a, b) return a.amount < b.amount end) return l",
        "local n = 0 for _, o in r.orders do n += o.amount end return n",
        "return 'n: ' .. r.orders[1].amount",
        "return r.orders[1].amount.value",
        "return #r.orders[1].amount",
    ] {
        let (answer, logs) = logged(&format!("local r = sdk.shop.orders({{}}) {script}")).await;
        assert!(answer.ends_with(&format!("\nhint: {hint}")), "{script}: {answer}");
        assert_eq!(logs, "", "{script}");
    }
    // On another line, it is in the log.
    let script = "local r = sdk.shop.orders({})\nlocal n = r.orders[1].amount\nreturn n + 1";
    let (answer, logs) = logged(script).await;
    assert!(answer.contains("attempt to perform arithmetic"), "{answer}");
    assert_eq!(logs, format!("script:2: {hint}"));
}

#[tokio::test]
async fn answers_and_scripts_without_end_are_survived() {
    let world = World::new();
    // More names than are held, all of them nearly what the script reads.
    let read = |n: usize| format!("n = r.{}{n} or 0\n", "x".repeat(60));
    let reads: String = (0..3000).map(read).collect();
    for name in ["shop.wide", "shop.deep", "shop.long"] {
        let script = format!("local n, r = 0, sdk.{name}({{}})\n{reads}return #r");
        let ended = world.execute(&script).await;
        assert!(ended.is_ok(), "{name}: {ended:?}");
    }
}
