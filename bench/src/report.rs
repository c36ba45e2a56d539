//! The report: Markdown, ratios first.

use std::fmt::Write;

use anyhow::Result;

use super::rounds::Pair;
use super::{Effort, machine};

/// One part of the report.
pub(super) struct Section {
    pub(super) title: &'static str,
    /// What is compared with what.
    pub(super) about: &'static str,
    pub(super) rows: Vec<Row>,
}

#[derive(Default)]
pub(super) struct Row {
    what: String,
    ratio: String,
    goal: Option<(String, bool)>,
    ours: String,
    floor: String,
    cpu: String,
}

impl Row {
    pub(super) fn new(what: impl Into<String>) -> Row {
        Row { what: what.into(), ..Row::default() }
    }

    /// Moonlark's figure and that of the floor, as they are read.
    pub(super) fn figures(mut self, ours: impl Into<String>, floor: impl Into<String>) -> Row {
        (self.ours, self.floor) = (ours.into(), floor.into());
        self
    }

    /// Requests per second as a share of the floor's, and CPU beside it.
    pub(super) fn throughput(mut self, pair: &Pair) -> Row {
        self.ratio = percent(pair.speed);
        self.cpu =
            format!("{} : {} = {}", micros(pair.ours.cpu), micros(pair.floor.cpu), times(pair.cpu));
        self.figures(per_second(pair.ours.per_second), per_second(pair.floor.per_second))
    }

    /// CPU as a multiple of the floor's, throughput left aside.
    pub(super) fn cost(mut self, pair: &Pair) -> Row {
        self.ratio = times(pair.cpu);
        self.cpu =
            format!("{} : {} = {}", micros(pair.ours.cpu), micros(pair.floor.cpu), times(pair.cpu));
        self.figures(per_second(pair.ours.per_second), per_second(pair.floor.per_second))
    }

    pub(super) fn ratio(mut self, ratio: String) -> Row {
        self.ratio = ratio;
        self
    }

    pub(super) fn cpu(mut self, cpu: String) -> Row {
        self.cpu = cpu;
        self
    }

    pub(super) fn goal(mut self, goal: impl Into<String>, met: bool) -> Row {
        self.goal = Some((goal.into(), met));
        self
    }
}

/// `47 %`
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// `1.05 ×`
pub(super) fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.2} ×") } else { format!("{ratio:.0} ×") }
}

pub(super) fn micros(micros: f64) -> String {
    match micros {
        m if m >= 10_000.0 => format!("{:.1} ms", m / 1000.0),
        m if m >= 100.0 => format!("{m:.0} µs"),
        m => format!("{m:.1} µs"),
    }
}

pub(super) fn millis(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s => format!("{:.1} ms", s * 1000.0),
    }
}

pub(super) fn bytes(bytes: f64) -> String {
    match bytes {
        b if b >= 1024.0 * 1024.0 => format!("{:.1} MB", b / 1024.0 / 1024.0),
        b => format!("{:.0} KB", b / 1024.0),
    }
}

fn per_second(rate: f64) -> String {
    format!("{rate:.0}/s")
}

pub(super) fn render(name: &str, sections: &[Section], effort: Effort) -> Result<String> {
    let mut page = String::new();
    let goals = || {
        sections
            .iter()
            .flat_map(|section| &section.rows)
            .filter_map(|row| Some((row, row.goal.as_ref()?)))
    };
    let met = goals().filter(|(_, (_, met))| *met).count();
    writeln!(page, "# Benchmarks: {name}\n")?;
    writeln!(page, "Written by `cargo x bench {name}`. {}\n", machine::describe()?)?;
    writeln!(
        page,
        "Absolute figures belong to that machine and moment. The ratios compare with a floor \
         measured in the same run, in turns ({} rounds of {} s, medians): the least that the \
         same work costs there.\n",
        effort.rounds,
        effort.round.as_secs_f64()
    )?;
    if goals().next().is_some() {
        writeln!(page, "**{met} of {} goals are met.**\n", goals().count())?;
    }
    for section in sections {
        writeln!(page, "## {}\n\n{}\n", section.title, section.about)?;
        writeln!(
            page,
            "| | ratio to floor | goal | met | Moonlark | floor | CPU per request, Moonlark : floor |"
        )?;
        writeln!(page, "|---|---|---|---|---|---|---|")?;
        for row in &section.rows {
            let (goal, met) = match &row.goal {
                Some((goal, true)) => (goal.as_str(), "yes"),
                Some((goal, false)) => (goal.as_str(), "**no**"),
                None => ("", ""),
            };
            let ratio =
                if row.ratio.is_empty() { String::new() } else { format!("**{}**", row.ratio) };
            let Row { what, ours, floor, cpu, .. } = row;
            writeln!(page, "| {what} | {ratio} | {goal} | {met} | {ours} | {floor} | {cpu} |")?;
        }
        writeln!(page)?;
    }
    // One newline at the end of a file.
    page.truncate(page.trim_end().len());
    page.push('\n');
    Ok(page)
}
