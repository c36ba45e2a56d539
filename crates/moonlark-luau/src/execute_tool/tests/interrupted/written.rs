//! Scripts as agents might write them: calls in turn and at once, maps inside
//! maps, failures that are caught, counters that coroutines share.

use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(super) struct Script(Vec<Line>);

#[derive(Debug, Clone)]
enum Line {
    /// `sdk.shop.put({ … })`, of one of the tools.
    Call(&'static str),
    /// The same, and its failure is caught.
    Caught,
    /// Several at once, awaited together.
    Together(Vec<&'static str>),
    /// Several at once, and the first of them counts.
    AnyOf(usize),
    /// One that is begun here and awaited at the end.
    Later,
    /// Each of several items in a coroutine of its own.
    Map(usize, Option<usize>, Vec<Line>),
    Coroutine(Vec<Line>),
    /// All coroutines count together.
    Count,
    Wait,
    Chance,
    Clock,
}

pub(super) fn script() -> impl Strategy<Value = Script> {
    vec(line(), 1..7).prop_map(Script)
}

fn tool() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        3 => Just("put"),
        2 => Just("read"),
        1 => Just("look"),
        1 => Just("set"),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    let leaf = prop_oneof![
        5 => tool().prop_map(Line::Call),
        1 => Just(Line::Caught),
        2 => vec(tool(), 1..4).prop_map(Line::Together),
        1 => (1..4usize).prop_map(Line::AnyOf),
        1 => Just(Line::Later),
        2 => Just(Line::Count),
        1 => Just(Line::Wait),
        1 => Just(Line::Chance),
        1 => Just(Line::Clock),
    ];
    leaf.prop_recursive(2, 10, 3, |inner| {
        let limit = proptest::option::of(1..3usize);
        prop_oneof![
            3 => (1..4usize, limit, vec(inner.clone(), 1..3))
                .prop_map(|(items, limit, lines)| Line::Map(items, limit, lines)),
            1 => vec(inner, 1..3).prop_map(Line::Coroutine),
        ]
    })
}

impl Script {
    /// Whether its result is the same in whichever order calls end.
    pub(super) fn is_ordered(&self) -> bool {
        self.0.iter().all(Line::is_ordered)
    }

    /// Whether it waits for every call it makes.
    pub(super) fn waits_for_all(&self) -> bool {
        self.0.iter().all(Line::waits_for_all)
    }

    pub(super) fn text(&self) -> String {
        let mut writing = Writing { text: String::new(), number: 0 };
        writing.line(0, "local out, count, later = {}, 0, {}");
        writing.line(0, "local at = ''");
        for line in &self.0 {
            writing.write(0, line);
        }
        writing.line(0, "for key, promise in later do out[key] = promise:await().got end");
        writing.line(0, "return { out = out, count = count }");
        writing.text
    }
}

impl Line {
    fn is_ordered(&self) -> bool {
        match self {
            Line::AnyOf(_) | Line::Count | Line::Clock => false,
            Line::Map(_, _, lines) | Line::Coroutine(lines) => {
                lines.iter().all(|it| it.is_ordered() && !matches!(it, Line::Chance))
            }
            _ => true,
        }
    }
}

impl Line {
    fn waits_for_all(&self) -> bool {
        match self {
            Line::AnyOf(_) => false,
            Line::Map(_, _, lines) | Line::Coroutine(lines) => {
                lines.iter().all(Line::waits_for_all)
            }
            _ => true,
        }
    }
}

struct Writing {
    text: String,
    /// Lines have numbers, so that every call has arguments of its own.
    number: usize,
}

impl Writing {
    fn line(&mut self, depth: usize, line: &str) {
        self.text.push_str(&"  ".repeat(depth));
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn write(&mut self, depth: usize, line: &Line) {
        self.number += 1;
        let n = self.number;
        let id = format!("`{{at}}{n}`");
        match line {
            Line::Call(tool) => {
                self.line(depth, &format!("out[{id}] = sdk.shop.{tool}({{ id = {id} }}).got"));
            }
            Line::Caught => {
                let call = format!("pcall(sdk.shop.fail, {{ id = {id} }})");
                self.line(depth, &format!("out[{id}] = select('#', {call})"));
            }
            Line::Together(tools) => {
                let started = tools.iter().enumerate();
                let started: Vec<String> = started
                    .map(|(at, tool)| format!("shop.{tool}({{ id = `{{at}}{n}.{at}` }})"))
                    .collect();
                self.line(depth, &format!("out[{id}] = #await_all({{ {} }})", started.join(", ")));
            }
            Line::AnyOf(many) => {
                let started = (0..*many).map(|at| format!("shop.put({{ id = `{{at}}{n}.{at}` }})"));
                let started: Vec<String> = started.collect();
                self.line(
                    depth,
                    &format!("out[{id}] = select(2, await_any({{ {} }}))", started.join(", ")),
                );
            }
            Line::Later => {
                self.line(depth, &format!("later[{id}] = shop.put({{ id = {id} }})"));
            }
            Line::Map(items, limit, lines) => {
                let list: Vec<String> = (1..=*items).map(|item| item.to_string()).collect();
                self.line(
                    depth,
                    &format!("map_parallel({{ {} }}, function(item)", list.join(", ")),
                );
                self.line(depth + 1, &format!("local at = `{{at}}{n}.{{item}}/`"));
                for line in lines {
                    self.write(depth + 1, line);
                }
                let limit = limit.map_or(String::new(), |limit| format!(", {{ limit = {limit} }}"));
                self.line(depth, &format!("end{limit})"));
            }
            Line::Coroutine(lines) => {
                self.line(depth, "coroutine.wrap(function()");
                for line in lines {
                    self.write(depth + 1, line);
                }
                self.line(depth, "end)()");
            }
            Line::Count => {
                self.line(depth, &format!("count += 1 out[{id}] = count"));
                self.line(depth, &format!("sdk.shop.put({{ id = {id}, count = count }})"));
            }
            Line::Wait => self.line(depth, "sleep(0)"),
            Line::Chance => self.line(depth, &format!("out[{id}] = math.random(1, 1e9)")),
            Line::Clock => {
                self.line(depth, &format!("sdk.shop.put({{ id = {id}, now = os.clock() }})"));
                self.line(depth, &format!("out[{id}] = tostring({{}})"));
            }
        }
    }
}
