use std::path::Path;
use std::time::Instant;

use serde_json::{Value as Json, json};

use crate::test_calls::{call, limited, problem, scope};

async fn run(function: &str, args: Json) -> Json {
    match call(scope(Path::new("."), &[]), function, args).await {
        Ok(value) => value.to_json_lossy(),
        Err(problem) => json!(problem.to_string()),
    }
}

async fn text(html: &str) -> String {
    run("html.text", json!({"html": html})).await.as_str().unwrap().to_owned()
}

/// The text of each match.
async fn select(html: &str, selector: &str) -> String {
    let found = run("html.select", json!({"html": html, "selector": selector})).await;
    match found.as_array() {
        Some(all) => {
            all.iter().map(|it| it["text"].as_str().unwrap()).collect::<Vec<_>>().join("|")
        }
        None => found.as_str().unwrap().to_owned(),
    }
}

#[tokio::test]
async fn text_reads_as_a_page_does() {
    for (html, expected) in [
        ("", ""),
        ("plain", "plain"),
        ("<p>a</p><p>b</p>", "a\nb"),
        ("<div><div><p> a </p></div></div>b", "a\nb"),
        ("a<b>b</b> <i> c</i>d", "ab cd"),
        ("a<br>b<br><br>c", "a\nb\n\nc"),
        ("<ul>\n<li>a\n<li>b\n</ul>", "a\nb"),
        ("<table><tr><td>a<td>b<tr><td>c</table>", "a\tb\nc"),
        ("<pre>  a\n   b</pre>c", "a\n   b\nc"),
        ("x<pre>  a\n   b</pre>c", "x\n  a\n   b\nc"),
        ("<head><title>t</title><style>s</style></head>a<script>b</script>c<!-- d -->", "ac"),
        ("<noscript>no</noscript><template>t</template>yes", "yes"),
        ("&lt;b&gt; &amp;amp; &nbsp;", "<b> &amp; \u{a0}"),
        ("<p>unclosed <b>bold <p>next", "unclosed bold\nnext"),
        ("\u{feff}a\r\nb", "a b"),
        ("<textarea> a </textarea>", "a"),
    ] {
        assert_eq!(text(html).await, expected, "{html}");
    }
}

#[tokio::test]
async fn selectors_find_what_they_say() {
    let page =
        "<main id=m><p class='a b'>1</p><p data-x='Y z'>2</p><div><p>3</p></div><p>4</p></main>";
    for (selector, expected) in [
        ("p", "1|2|3|4"),
        ("#m > p", "1|2|4"),
        (".a.b", "1"),
        ("[data-x~=z], .a", "1|2"),
        ("p + p", "2"),
        ("p ~ p", "2|4"),
        ("main > p:nth-child(2)", "2"),
        ("p:not(.a):first-of-type", "3"),
        ("div:has(p)", "3"),
        ("main :is(div p, .b)", "1|3"),
        ("P.A", ""),
        ("p:last-child", "3|4"),
        ("html, body > *", "1\n2\n3\n4|1\n2\n3\n4"),
        ("x", ""),
    ] {
        assert_eq!(select(page, selector).await, expected, "{selector}");
    }
    let script = "<script type='application/json'> {\"a\": 1} </script>";
    assert_eq!(select(script, "script").await, "{\"a\": 1}");
    for bad in
        ["", "[", "p:", "p >", "::before", "p:hover", "a,", ":nth-child(x)", "a:has(:has(b))"]
    {
        let found = select(page, bad).await;
        assert!(
            found.starts_with("error[bad_request]: html.select: the selector is not valid: "),
            "{bad}: {found}"
        );
    }
    for large in [":not(".repeat(100), "a ".repeat(5000), ":is(".repeat(1_000_000)] {
        assert!(select(page, &large).await.contains("the selector is too large"));
    }
}

#[tokio::test]
async fn links_become_absolute() {
    let page = "<a href=' x '>a\n<b>b</b></a><a name=n>no</a><map><area href='//h/y'></map><a href='mailto:a@b'>m</a><a href='http://['>bad</a><a href>e</a>";
    let all = |base: Json| async move {
        let links = run("html.links", json!({"html": page, "base": base})).await;
        links
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["href"].as_str().unwrap())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(all(json!(null)).await, "x //h/y mailto:a@b http://[ ");
    assert_eq!(
        all(json!("https://example.com/d/p?q#f")).await,
        "https://example.com/d/x https://h/y mailto:a@b http://[ https://example.com/d/p?q"
    );
    let own = json!({"html": "<base href='/sub/'><a href=x>a</a>", "base": "https://example.com/"});
    assert_eq!(
        run("html.links", own).await,
        json!([{"href": "https://example.com/sub/x", "text": "a"}])
    );
}

#[tokio::test]
async fn references_mean_what_browsers_say() {
    for (text, expected) in [
        ("", ""),
        ("a & b &", "a & b &"),
        ("&amp", "&"),
        ("&notin; &not in; &nope;", "∉ ¬ in; &nope;"),
        ("&#65;&#x41;&#0;&#x110000;", "AA\u{fffd}\u{fffd}"),
        ("\r\n&lt;\r&gt;\0", "\r\n<\r>\0"),
        ("<b>&amp;</b></title>", "<b>&</b></title>"),
        ("\u{feff}&amp;", "\u{feff}&"),
        ("&&amp;&ampamp;&;&#;&#x;&ä", "&&&amp;&;&#;&#x;&ä"),
        (
            &format!("&{}; &#{}65;", "a".repeat(100), "0".repeat(100)),
            &format!("&{}; A", "a".repeat(100)),
        ),
    ] {
        assert_eq!(run("html.unescape", json!({"text": text})).await, json!(expected), "{text:?}");
        let escaped = run("html.escape", json!({"text": text})).await;
        assert_eq!(run("html.unescape", json!({"text": escaped})).await, json!(text));
    }
}

/// Every function of these ends in good time, with a result or a Problem.
async fn endure(functions: &[&str], html: String) -> Vec<String> {
    let mut outcomes = Vec::new();
    for function in functions {
        let args = match *function {
            "html.select" => json!({"html": html, "selector": "div div > * ~ *, :has(p):not(a b)"}),
            "html.escape" | "html.unescape" => json!({"text": html}),
            _ => json!({"html": html}),
        };
        let start = Instant::now();
        outcomes.push(match call(scope(Path::new("."), &[]), function, args).await {
            Ok(_) => "ok".to_owned(),
            Err(problem) => problem.message,
        });
        let (page, taken) = (&html[..html.len().min(50)], start.elapsed());
        assert!(taken.as_secs() < 20, "{function} {page} {taken:?}");
    }
    outcomes
}

const ALL: [&str; 5] = ["html.text", "html.select", "html.links", "html.escape", "html.unescape"];

#[tokio::test]
async fn a_page_of_nothing_but_depth_is_refused() {
    for page in ["<div>".repeat(200_000), "<div>".repeat(200_000) + &"</div>".repeat(200_000)] {
        assert_eq!(
            endure(&ALL, page).await,
            [
                "html.text: the HTML is nested deeper than 512 elements",
                "html.select: the HTML is nested deeper than 512 elements",
                "html.links: the HTML is nested deeper than 512 elements",
                "ok",
                "ok",
            ]
        );
    }
    let most = format!("{}x", "<div>".repeat(500));
    assert_eq!(text(&most).await, "x");
    assert_eq!(select(&most, "div:has(div):not(:has(div div))").await, "x");
}

#[tokio::test]
async fn hostile_pages_end_in_good_time() {
    let numbered = |format: fn(usize) -> String, count| (0..count).map(format).collect::<String>();
    let bold = |count| numbered(|n| format!("<b id={n}>"), count);
    for page in [
        "<table><tr><td>".repeat(20_000),
        "<table><b>x".repeat(5_000),
        format!("<table>{}", "<div>".repeat(100_000)),
        "<svg><g>".repeat(20_000),
        "<template>".repeat(20_000),
        bold(100_000),
        format!("<p>{}{}", bold(400), "<p>x".repeat(100_000)),
        "<select><option>".repeat(5_000),
        "<!--".repeat(20_000),
        "<a b='".repeat(20_000),
        "</p></b></x>".repeat(5_000),
        "<a><p></a>".repeat(5_000),
        format!("<p class='{}'>", numbered(|n| format!("c{n} "), 50_000)),
    ] {
        endure(&["html.text", "html.select"], page).await;
    }
    let attributes = format!("<a {}>", numbered(|n| format!("a{n} "), 200_000));
    assert_eq!(
        endure(&["html.text"], attributes).await,
        ["html.text: the HTML takes longer than 2 seconds to read"]
    );
    endure(&["html.unescape"], "&CounterClockwiseContourIntegral;&x".repeat(20_000)).await;
}

#[tokio::test]
async fn a_selector_cannot_take_the_square_of_a_page() {
    let siblings = "<i></i>".repeat(20_000);
    for selector in ["b ~ i", "i:has(~ b)", ":has(b ~ i)"] {
        assert_eq!(
            select(&siblings, selector).await,
            "error[limit]: html.select: the selector takes too many steps on this page\nhint: avoid ~ and :has(), or select in a part of the page",
            "{selector}"
        );
    }
}

#[tokio::test]
async fn results_stay_within_the_limit() {
    let small = || limited(scope(Path::new("."), &[]), |limits| limits.value = 20_000);
    let nested = format!("{}x{}", "<div>".repeat(100), "</div>".repeat(100));
    let larger = limited(scope(Path::new("."), &[]), |limits| limits.value = 40_000);
    let found = problem(larger, "html.select", json!({"html": nested, "selector": "div"})).await;
    assert_eq!(
        found,
        "error[limit]: html.select: the result is larger than 40000 bytes\nhint: work on less at a time, or raise limits.value"
    );
    let base = format!("https://example.com/{}/", "x".repeat(5000));
    let links = json!({"html": "<a href=a>".repeat(10), "base": base});
    assert!(problem(small(), "html.links", links).await.contains("larger than 20000 bytes"));
    assert!(
        problem(small(), "html.escape", json!({"text": "'".repeat(6000)}))
            .await
            .contains("larger than")
    );
    assert!(
        problem(small(), "html.text", json!({"html": "<i>".repeat(500)}))
            .await
            .contains("once it is read")
    );
}
