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

/// What differs from page to page.
pub(super) struct ReportPage {
    name: &'static str,
    /// After «the ratios compare with».
    compared_with: &'static str,
    columns: &'static str,
    /// At the end.
    closing: &'static str,
}

impl ReportPage {
    /// Ratios to a floor.
    pub(super) fn with_floors(name: &'static str) -> ReportPage {
        ReportPage {
            name,
            compared_with: "a floor measured in the same run, in turns ({rounds}): the least that \
                            the same work costs there",
            columns: "ratio to floor | goal | met | Moonlark | floor | CPU per request, Moonlark : \
                      floor",
            closing: "",
        }
    }

    /// Ratios to a program of the same kind.
    pub(super) fn with_peers(name: &'static str, closing: &'static str) -> ReportPage {
        ReportPage {
            name,
            compared_with: "a program of the same kind that others wrote, measured in the same \
                            run, in turns ({rounds})",
            columns: "ratio to peer | goal | met | Moonlark | peer | beside it, Moonlark : peer",
            closing,
        }
    }
}

#[derive(Default)]
pub(super) struct Row {
    what: String,
    ratio: String,
    goal: Option<RowGoal>,
    /// Shown where the goal is missed.
    reason: Option<&'static str>,
    ours: String,
    floor: String,
    cpu: String,
}

struct RowGoal {
    text: String,
    verdict: GoalVerdict,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GoalVerdict {
    Met,
    Missed,
    NotMeasured,
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
        let verdict = if met { GoalVerdict::Met } else { GoalVerdict::Missed };
        self.goal = Some(RowGoal { text: goal.into(), verdict });
        self
    }

    /// Why the goal is missed, should it be.
    pub(super) fn reason(mut self, reason: &'static str) -> Row {
        self.reason = Some(reason);
        self
    }

    /// With a goal or without.
    pub(super) fn not_measured(mut self, goal: Option<String>) -> Row {
        self.goal = goal.map(|text| RowGoal { text, verdict: GoalVerdict::NotMeasured });
        self.ratio = "not measured".to_owned();
        self
    }

    fn verdict(&self) -> Option<GoalVerdict> {
        self.goal.as_ref().map(|goal| goal.verdict)
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

pub(super) fn render(
    page_kind: &ReportPage,
    sections: &[Section],
    effort: Effort,
) -> Result<String> {
    let mut page = String::new();
    let ReportPage { name, compared_with, columns, closing } = page_kind;
    writeln!(page, "# Benchmarks: {name}\n")?;
    writeln!(page, "Written by `cargo x bench {name}`. {}\n", machine::describe()?)?;
    let rounds = format!("{} rounds of {} s, medians", effort.rounds, effort.round.as_secs_f64());
    writeln!(
        page,
        "Absolute figures belong to that machine and moment. The ratios compare with {}.\n",
        compared_with.replace("{rounds}", &rounds)
    )?;
    write_verdicts(&mut page, sections)?;
    for section in sections {
        writeln!(page, "## {}\n\n{}\n", section.title, section.about)?;
        writeln!(page, "| | {columns} |\n|---|---|---|---|---|---|---|")?;
        for row in &section.rows {
            write_row(&mut page, row)?;
        }
        writeln!(page)?;
        write_reasons(&mut page, section)?;
    }
    page.push_str(closing);
    // One newline at the end of a file.
    page.truncate(page.trim_end().len());
    page.push('\n');
    Ok(page)
}

fn write_verdicts(page: &mut String, sections: &[Section]) -> std::fmt::Result {
    let rows = sections.iter().flat_map(|section| &section.rows);
    let verdicts: Vec<GoalVerdict> = rows.filter_map(Row::verdict).collect();
    let count = |wanted: GoalVerdict| verdicts.iter().filter(|it| **it == wanted).count();
    let (met, left_out) = (count(GoalVerdict::Met), count(GoalVerdict::NotMeasured));
    let measured = verdicts.len() - left_out;
    if measured > 0 {
        writeln!(page, "**{met} of {measured} goals are met.**\n")?;
    }
    if left_out > 0 {
        writeln!(page, "{left_out} more were not measured.\n")?;
    }
    Ok(())
}

fn write_row(page: &mut String, row: &Row) -> std::fmt::Result {
    let Row { what, ours, floor, cpu, .. } = row;
    let goal = row.goal.as_ref().map_or("", |goal| &goal.text);
    let met = match row.verdict() {
        Some(GoalVerdict::Met) => "yes",
        Some(GoalVerdict::Missed) => "**no**",
        Some(GoalVerdict::NotMeasured) | None => "",
    };
    let ratio = if row.ratio.is_empty() { String::new() } else { format!("**{}**", row.ratio) };
    writeln!(page, "| {what} | {ratio} | {goal} | {met} | {ours} | {floor} | {cpu} |")
}

fn write_reasons(page: &mut String, section: &Section) -> std::fmt::Result {
    let missed = section.rows.iter().filter(|row| row.verdict() == Some(GoalVerdict::Missed));
    // Rows that miss for the same reason, one after the other, share its sentence.
    let mut reasons: Vec<(Vec<&str>, &str)> = Vec::new();
    for (row, reason) in missed.filter_map(|row| Some((row, row.reason?))) {
        match reasons.last_mut() {
            Some((rows, last)) if *last == reason => rows.push(row.what.as_str()),
            _ => reasons.push((vec![row.what.as_str()], reason)),
        }
    }
    if reasons.is_empty() {
        return Ok(());
    }
    writeln!(page, "What misses its goal:\n")?;
    for (rows, reason) in reasons {
        writeln!(page, "- **{}**: {reason}", rows.join("; "))?;
    }
    writeln!(page)
}
