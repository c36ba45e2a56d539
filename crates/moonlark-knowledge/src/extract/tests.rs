//! Documents of every format, sound and damaged.

use std::io::Write as _;

use moonlark_core::Value;

use super::*;

fn item(name: &str, content: ItemContent) -> SourceItem {
    SourceItem { source_id: name.to_owned(), content, ..SourceItem::default() }
}

fn of_bytes(name: &str, bytes: &[u8]) -> Result<ExtractionOutcome> {
    extract_document(
        &item(name, ItemContent::Bytes(bytes.to_vec().into())),
        &ExtractLimits::default(),
    )
}

fn read(name: &str, bytes: &[u8]) -> ExtractedDocument {
    match of_bytes(name, bytes) {
        Ok(ExtractionOutcome::Text(extracted)) => {
            nothing_is_lost(&extracted);
            *extracted
        }
        other => panic!("{name}: {other:?}"),
    }
}

fn skipped(name: &str, bytes: &[u8]) -> String {
    match of_bytes(name, bytes) {
        Ok(ExtractionOutcome::Skipped(reason)) => reason,
        other => panic!("{name}: {other:?}"),
    }
}

/// Blocks are in order, and only white space is between them.
fn nothing_is_lost(extracted: &ExtractedDocument) {
    let mut end = 0;
    for block in &extracted.blocks {
        assert!(block.range.start >= end && block.range.end > block.range.start, "{block:?}");
        let between = &extracted.text[end..block.range.start];
        assert!(between.trim().is_empty(), "lost: {between:?}");
        end = block.range.end;
    }
    assert!(extracted.text[end..].trim().is_empty(), "lost: {:?}", &extracted.text[end..]);
}

/// One line per block: what it is, and its text with `⏎` for ends of lines.
fn outline(extracted: &ExtractedDocument) -> String {
    let mut out = String::new();
    for block in &extracted.blocks {
        let kind = match &block.kind {
            TextBlockKind::Heading { level, title } => format!("h{level}({title})"),
            TextBlockKind::Paragraph => "p".to_owned(),
            TextBlockKind::List => "li".to_owned(),
            TextBlockKind::Code => "code".to_owned(),
            TextBlockKind::Table => "table".to_owned(),
            TextBlockKind::Part { title } => format!("part({title})"),
        };
        let text = extracted.text[block.range.clone()].replace('\n', "⏎");
        out.push_str(&format!("{kind}: {text}\n"));
    }
    out
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/");
    std::fs::read(format!("{folder}{name}")).unwrap()
}

#[test]
fn markdown_keeps_its_text_and_gives_its_structure() {
    let text = "\
# The *big* `title` {#top}

First paragraph
goes on.

Under line
==========
- one
  more of one
- two

  a paragraph of two

1. first
   - nested
2. second

## [A link](https://example.com) #

```rust
# no heading

fn main() {}
```
| a | b |
|---|---|
| 1 | 2 |

a | b
--|--
1 | 2

    # indented code
Text after
--
last";
    let extracted = read("a.md", text.as_bytes());
    assert_eq!(extracted.text, text);
    assert_eq!(extracted.title.as_deref(), Some("The big title"));
    assert_eq!(
        outline(&extracted),
        "\
h1(The big title): # The *big* `title` {#top}
p: First paragraph⏎goes on.
h1(Under line): Under line⏎==========
li: - one⏎  more of one
li: - two⏎⏎  a paragraph of two
li: 1. first⏎   - nested
li: 2. second
h2(A link): ## [A link](https://example.com) #
code: ```rust⏎# no heading⏎⏎fn main() {}⏎```
table: | a | b |⏎|---|---|⏎| 1 | 2 |
table: a | b⏎--|--⏎1 | 2
code: # indented code
h2(Text after): Text after⏎--
p: last
"
    );
}

#[test]
fn markdown_in_markdown_is_no_structure() {
    let text = "\
Two lines
of a heading
===

````md
```
# no heading
```
````

- item

  ```
  # no heading
  ```
- next

<div>

# A heading

<!--
# no heading
-->

> # quoted
goes on

[link]: https://example.com
* * *
~~~
never closed
# no heading";
    let extracted = read("a.md", text.as_bytes());
    assert_eq!(extracted.title.as_deref(), Some("Two lines of a heading"));
    assert_eq!(
        outline(&extracted),
        "\
h1(Two lines of a heading): Two lines⏎of a heading⏎===
code: ````md⏎```⏎# no heading⏎```⏎````
li: - item⏎⏎  ```⏎  # no heading⏎  ```
li: - next
p: <div>
h1(A heading): # A heading
p: <!--⏎# no heading⏎-->
p: > # quoted
p: goes on
p: [link]: https://example.com⏎* * *
code: ~~~⏎never closed⏎# no heading
"
    );
}

#[test]
fn hostile_markdown_is_read_in_time() {
    let indented: String = (0..500).map(|depth| format!("{}- a\n", "  ".repeat(depth))).collect();
    for (name, text) in [
        ("quotes", format!("{}a\n{}", "> ".repeat(100_000), "\n".repeat(500_000))),
        ("lists", format!("{}a\n{}", "- ".repeat(100_000), "\n".repeat(500_000))),
        ("steps", format!("{indented}{}", "\n".repeat(500_000))),
        ("brackets", "[".repeat(500_000)),
        ("links", "[a](".repeat(200_000)),
        ("emphasis", "*a _b ".repeat(100_000)),
        ("code", (0..1_000).map(|count| format!("{} a ", "`".repeat(count))).collect()),
        ("definitions", "[a]: b\n".repeat(100_000)),
        ("references", format!("[a]: b\n\n{}", "[a]".repeat(200_000))),
        ("table", format!("|a\n|-\n{}", "|".repeat(300_000))),
        (
            "rows",
            format!("{}\n{}\n{}", "|a".repeat(1_000), "|-".repeat(1_000), "|\n".repeat(10_000)),
        ),
        ("html", "<a ".repeat(200_000)),
        ("comments", "<!-- a\n\n".repeat(100_000)),
        ("cdata", "a <![CDATA[ ".repeat(50_000)),
        ("headings", "a\n=\n".repeat(100_000)),
    ] {
        let began = std::time::Instant::now();
        read("a.md", text.as_bytes());
        let took = began.elapsed();
        assert!(took < Duration::from_secs(10), "{name} took {took:?}");
    }
}

#[test]
fn front_matter_is_metadata_and_no_text() {
    let yaml =
        "---\ntitle: Über uns\nauthor: Ada\ntags: [a, b]\ndraft: false\n---\n# Other\ntext\n";
    let extracted = read("a.md", yaml.as_bytes());
    assert_eq!(extracted.text, "# Other\ntext\n");
    assert_eq!(extracted.title.as_deref(), Some("Über uns"));
    assert_eq!(extracted.author.as_deref(), Some("Ada"));
    assert_eq!(
        extracted.metadata.encode_json("").unwrap(),
        r#"{"title":"Über uns","author":"Ada","tags":["a","b"],"draft":false}"#
    );
    let toml = "+++\ndate = 2024-05-01\nweight = 3\n+++\ntext\n";
    let extracted = read("b.md", toml.as_bytes());
    assert_eq!(extracted.title.as_deref(), Some("b.md"));
    assert_eq!(extracted.metadata.encode_json("").unwrap(), r#"{"date":"2024-05-01","weight":3}"#);
}

#[test]
fn what_only_looks_like_front_matter_is_text() {
    for text in
        ["---\nnot: [closed\n---\nx", "---\njust a line\n---\nx", "---\nnever: ends\n", "---"]
    {
        let extracted = read("a.md", text.as_bytes());
        assert_eq!(extracted.text, text);
        assert_eq!(extracted.metadata, Value::Null);
    }
}

#[test]
fn a_page_is_what_a_reader_sees_of_it() {
    let page = "<!doctype html><html><head><title> Pumps &amp; valves </title>
<style>p { color: red }</style><script>if (a < b) alert('<p>no</p>')</script></head>
<body><nav><ul><li>Home</li></ul></nav>
<h1>Pumps</h1><p>The <b>big</b> pump&nbsp;is<br>red.<p>Unclosed &lt;too&gt;
<ul><li>one</li><li><p>two</p><ol><li>inner</li></ol></li></ul>
<pre>let x =\n    1;</pre>
<table><tr><th>Name</th><th>Bar</th></tr><tr><td>north</td><td><p>2</p></td></tr></table>
<img alt='a red lever'><h2>Empty</h2></body></html>";
    let extracted = read("a.html", page.as_bytes());
    assert_eq!(extracted.title.as_deref(), Some("Pumps & valves"));
    assert_eq!(
        outline(&extracted),
        "\
h1(Pumps): # Pumps
p: The big pump\u{a0}is⏎red.
p: Unclosed <too>
li: - one
li: - two
li:   1. inner
code: ```⏎let x =⏎    1;⏎```
table: Name | Bar⏎north | 2
p: a red lever
h2(Empty): ## Empty
"
    );
}

#[test]
fn of_a_page_with_a_main_part_only_that_is_read() {
    let long = "Everything about pumps, at length. ".repeat(10);
    let page = format!(
        "<header>Site</header><nav>Menu<main><h1>Pumps</h1><p>{long}</p></main><footer>Imprint"
    );
    let extracted = read("a.html", page.as_bytes());
    assert_eq!(extracted.text, format!("# Pumps\n\n{}", long.trim()));
}

#[test]
fn a_hostile_page_ends_in_time() {
    let deep = "<div><ul><table><b>".repeat(100_000);
    assert_eq!(skipped("a.html", deep.as_bytes()), "there is no text in it");
    let wide = format!("<p {}>x", "a1 b2 ".repeat(2_000));
    assert_eq!(read("a.html", wide.as_bytes()).text, "x");
    let many: String = (0..60_000).map(|number| format!("a{number} ")).collect();
    let limits = ExtractLimits { time: Duration::from_millis(50), ..Default::default() };
    let page = item("a.html", ItemContent::Text(format!("<p {many}>x")));
    // Either it was fast enough, or it was stopped.
    match extract_document(&page, &limits) {
        Ok(ExtractionOutcome::Text(extracted)) => assert_eq!(extracted.text, "x"),
        other => assert_eq!(other.unwrap_err().code, moonlark_core::ProblemCode::Timeout),
    }
}

#[test]
fn source_code_is_in_parts_with_their_names() {
    let text = "\
//! A module.

use std::io;

/// Does it.
#[inline]
pub fn one(a: u8) -> u8 {
    let b = a;

    b
}

impl Two {
    fn three() {}
}
";
    let extracted = read("src/a.rs", text.as_bytes());
    assert_eq!(extracted.content_type, "text/x-rust");
    assert_eq!(extracted.metadata, Value::from_fields([("language", "rust".into())]));
    assert_eq!(
        outline(&extracted),
        "\
code: //! A module.
code: use std::io;
part(pub fn one(a: u8) -> u8): /// Does it.⏎#[inline]⏎pub fn one(a: u8) -> u8 {⏎    let b = a;⏎⏎    b⏎}
part(impl Two): impl Two {⏎    fn three() {}⏎}
"
    );
    let python =
        "import os\n\n\n@cache\ndef load(\n    path,\n):\n    \"\"\"Doc.\"\"\"\n\n    return 1\n";
    assert_eq!(
        outline(&read("a.py", python.as_bytes())),
        "code: import os\npart(def load): @cache⏎def load(⏎    path,⏎):⏎    \"\"\"Doc.\"\"\"⏎⏎    return 1\n"
    );
    assert_eq!(
        outline(&read("a.toml", b"[a]\nx = 1\n\n[b]\ny = 2\n")),
        "part([a]): [a]⏎x = 1\npart([b]): [b]⏎y = 2\n"
    );
    assert_eq!(outline(&read("a.json", b"{\"a\": 1}")), "code: {\"a\": 1}\n");
    assert_eq!(read("a.yml", b"a: 1").content_type, "application/yaml");
}

#[test]
fn text_is_read_in_the_encodings_people_use() {
    let said = "Grüße, 5 € – “schön”";
    let utf16: Vec<u8> = said.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let utf16be: Vec<u8> = said.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let (western, _, _) = encoding_rs::WINDOWS_1252.encode(said);
    assert_eq!(read("a.txt", said.as_bytes()).text, said);
    assert_eq!(read("a.txt", &[b"\xef\xbb\xbf", said.as_bytes()].concat()).text, said);
    assert_eq!(read("a.txt", &[b"\xff\xfe", &utf16[..]].concat()).text, said);
    assert_eq!(read("a.txt", &[b"\xfe\xff", &utf16be[..]].concat()).text, said);
    assert_eq!(read("a.txt", &western).text, said);
    let page = [b"<meta charset='shift_jis'><p>".as_slice(), b"\x83|\x83\x93\x83v"].concat();
    assert_eq!(read("a.html", &page).text, "ポンプ");
    // One broken byte does not make German of Chinese.
    let broken = ["泵和阀门的手册".repeat(9).as_bytes(), b"\xff", b"x"].concat();
    assert!(read("a.txt", &broken).text.ends_with("手册\u{fffd}x"));
}

#[test]
fn what_is_no_text_is_skipped_with_a_reason() {
    assert_eq!(skipped("a.png", b"\x89PNG\r\n\x1a\n\0\0"), "it is an image");
    assert_eq!(skipped("a.txt", b"\x1f\x8b\x08"), "it is compressed");
    assert_eq!(skipped("a.bin", b"ab\0cd"), "it is not text");
    assert_eq!(skipped("a.txt", b"\x01\x02\x03\x04\x05"), "it is not text");
    assert_eq!(skipped("a.xlsx", b"PK\x03\x04rest"), "it is a spreadsheet");
    assert_eq!(
        skipped("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
        "it is in an old format of Microsoft Office"
    );
    assert_eq!(skipped("a.pdf", b"hello"), "it is named as a PDF and is none");
    assert_eq!(skipped("a.md", b" \n\t\n"), "there is no text in it");
    assert_eq!(skipped("a.txt", b""), "there is no text in it");
    let noise: Vec<u8> =
        (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert_eq!(skipped("noise", &noise), "it is not text");
}

#[test]
fn what_a_script_says_about_its_text_counts() {
    let mut page = item("TICKET-1", ItemContent::Text("<h1>Hi</h1>there".to_owned()));
    page.content_type = Some("text/html; charset=utf-8".to_owned());
    let Ok(ExtractionOutcome::Text(extracted)) = extract_document(&page, &ExtractLimits::default())
    else {
        panic!()
    };
    assert_eq!(extracted.text, "# Hi\n\nthere");
    assert_eq!(extracted.content_type, "text/html; charset=utf-8");
    // A type that cannot be that of text is not believed.
    page.content_type = Some("application/pdf".to_owned());
    let Ok(ExtractionOutcome::Text(extracted)) = extract_document(&page, &ExtractLimits::default())
    else {
        panic!()
    };
    assert_eq!(extracted.text, "<h1>Hi</h1>there");
    assert_eq!(extracted.title.as_deref(), Some("TICKET-1"));
}

#[test]
fn a_pdf_gives_headings_and_paragraphs() {
    let extracted = read("handbook.pdf", &fixture("handbook.pdf"));
    assert_eq!(extracted.title.as_deref(), Some("The pump handbook"));
    assert_eq!(extracted.author.as_deref(), Some("Ada"));
    assert_eq!(extracted.metadata, Value::from_fields([("pages", Value::Int(2))]));
    let long = "The pump is switched off before the valve is opened. Whoever forgets this floods \
        the basement, as happened in the spring of 2019, when the water stood a hand's breadth \
        high and the archive had to be dried for three weeks. Since then there has been a red tag \
        on the lever, and a second one on the door, so that nobody can say that they did not know.";
    assert_eq!(
        outline(&extracted),
        format!(
            "\
h1(Pump handbook): # Pump handbook
h1(Starting): # Starting
p: {long}
p: Grüße aus Köln: die Maßeinheit ist bar.
h2(Valves): ## Valves
p: There are three valves.
p: Valve Pressure
p: north 2 bar
p: south 4 bar
h1(Stopping): # Stopping
p: Close everything in the opposite order.
p: pump --stop pump --status
"
        )
    );
}

#[test]
fn a_pdf_with_fonts_of_its_own_gives_its_letters() {
    let extracted = read("languages.pdf", &fixture("languages.pdf"));
    assert_eq!(
        extracted.text,
        "# Насос и клапан\n\nСначала выключите насос. Η αντλία σταματά. Größe: 5 µm."
    );
}

#[test]
fn a_pdf_without_text_or_without_its_password_is_skipped() {
    assert_eq!(skipped("a.pdf", &fixture("scanned.pdf")), "there is no text in it, only pictures");
    assert_eq!(skipped("a.pdf", &fixture("locked.pdf")), "it is protected by a password");
}

#[test]
fn a_word_document_gives_headings_lists_and_tables() {
    let extracted = read("minutes.docx", &fixture("minutes.docx"));
    assert_eq!(extracted.title.as_deref(), Some("Minutes & decisions"));
    assert_eq!(extracted.author.as_deref(), Some("Grace"));
    assert_eq!(
        outline(&extracted),
        "\
h1(Minutes): # Minutes
h1(Decisions): # Decisions
p: We buy the larger pump <today>.
li: - Budget: 4.000 €
li: - Größe prüfen
h2(Table of pumps): ## Table of pumps
table: Pump | Power⏎north | 2 kW
h1(Open): # Open
p: Who paints the door?
"
    );
}

#[test]
fn a_small_file_that_unpacks_to_much_is_refused() {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    archive.start_file("word/document.xml", options).unwrap();
    archive.write_all(b"<w:document><w:p><w:t>").unwrap();
    for _ in 0..200 {
        archive.write_all(&[b'x'; 64 * 1024]).unwrap();
    }
    let bytes = archive.finish().unwrap().into_inner();
    assert!(bytes.len() < 100_000);
    let limits = ExtractLimits { text: 1024 * 1024, ..Default::default() };
    let bomb = item("a.docx", ItemContent::Bytes(bytes.into()));
    let problem = extract_document(&bomb, &limits).unwrap_err();
    assert_eq!(problem.message, "its text is longer than 1 MB");
}

#[test]
fn no_damage_to_a_document_makes_extraction_panic() {
    for name in ["handbook.pdf", "languages.pdf", "minutes.docx"] {
        let whole = fixture(name);
        let mut random = 0x9e37_79b9_u32;
        let mut next = |below: usize| {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            random as usize % below
        };
        for _ in 0..40 {
            let mut bytes = whole.clone();
            bytes.truncate(next(whole.len()) + 1);
            // Whatever comes of it is fine, if something does.
            let _ = of_bytes(name, &bytes);
            let mut bytes = whole.clone();
            for _ in 0..=next(20) {
                let at = next(bytes.len());
                bytes[at] ^= 1 << next(8);
            }
            let _ = of_bytes(name, &bytes);
        }
    }
}

#[test]
fn any_text_is_in_its_blocks() {
    let words = [
        "a", "# h", "## ", "- x", "* ", "1. y", "```", "~~~", "|", "---", "===", "> q", "    in",
        "\t", "", "", "---", "+++", "é字", "<b>", "\\", "](", "\u{a0}", "\r", "}", "end", "/*",
        "\"\"\"",
    ];
    let mut random = 7_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % below
    };
    for _ in 0..2000 {
        let lines: Vec<String> = (0..next(20))
            .map(|_| (0..next(3)).map(|_| words[next(words.len())]).collect::<Vec<_>>().join(" "))
            .collect();
        let text = lines.join("\n");
        for name in ["a.md", "a.txt", "a.rs", "a.csv"] {
            match of_bytes(name, text.as_bytes()).unwrap() {
                ExtractionOutcome::Text(extracted) => nothing_is_lost(&extracted),
                ExtractionOutcome::Skipped(_) => {}
            }
        }
    }
}
