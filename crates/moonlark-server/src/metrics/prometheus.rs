//! Figures as text, in the format of Prometheus.

use std::fmt::Write;

use moonlark_gateway::metrics::family::{
    MetricFamily, MetricKind, MetricSample, MetricValue, bucket_bounds_seconds,
};

pub(super) fn render_families(families: &[MetricFamily]) -> String {
    let mut out = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let (name, help) = (family.name, family.help);
        let kind = match family.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        // Into a String: never fails, here and below.
        let _ = writeln!(out, "# HELP {name} {help}.\n# TYPE {name} {kind}");
        for sample in &family.samples {
            write_sample(&mut out, name, sample);
        }
    }
    out
}

fn write_sample(out: &mut String, name: &str, sample: &MetricSample) {
    let MetricSample { labels, value } = sample;
    match value {
        MetricValue::Number(value) => write_line(out, name, "", labels, None, *value),
        MetricValue::Spread { classes, sum } => {
            let ends =
                bucket_bounds_seconds().map(|bound| bound.to_string()).chain(["+Inf".to_owned()]);
            let mut below = 0;
            for (end, class) in ends.zip(classes) {
                below += class;
                write_line(out, name, "_bucket", labels, Some(&end), below as f64);
            }
            write_line(out, name, "_sum", labels, None, *sum);
            write_line(out, name, "_count", labels, None, below as f64);
        }
    }
}

fn write_line(
    out: &mut String,
    name: &str,
    part: &str,
    labels: &[(&'static str, String)],
    end: Option<&str>,
    value: f64,
) {
    let _ = write!(out, "{name}{part}");
    let labels = labels.iter().map(|(key, value)| (*key, value.as_str()));
    for (index, (key, value)) in labels.chain(end.map(|end| ("le", end))).enumerate() {
        let before = if index == 0 { '{' } else { ',' };
        let _ = write!(out, "{before}{key}=\"{}\"", escape_label_value(value));
    }
    let close = if out.ends_with('"') { "}" } else { "" };
    let _ = writeln!(out, "{close} {value}");
}

fn escape_label_value(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_prometheus_reads_them() {
        let mut classes = vec![0; bucket_bounds_seconds().count() + 1];
        (classes[0], classes[18]) = (2, 1);
        let spread = MetricValue::Spread { classes, sum: 61.5 };
        let mut times = MetricFamily::histogram("took_seconds", "Times");
        times
            .samples
            .push(MetricSample { labels: vec![("source", "a".to_owned())], value: spread });
        let odd = "a\"b\\c\nd".to_owned();
        let families = [
            MetricFamily::gauge("plain", "One").with_value(1.5),
            MetricFamily::gauge("none", "Nothing"),
            MetricFamily::counter("calls_total", "Calls")
                .with_sample(vec![("source", odd), ("kind", "api".to_owned())], 3.0),
            times,
        ];
        let written = render_families(&families);
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!(
            lines[..7],
            [
                "# HELP plain One.",
                "# TYPE plain gauge",
                "plain 1.5",
                "# HELP calls_total Calls.",
                "# TYPE calls_total counter",
                "calls_total{source=\"a\\\"b\\\\c\\nd\",kind=\"api\"} 3",
                "# HELP took_seconds Times.",
            ]
        );
        assert_eq!(lines[8], "took_seconds_bucket{source=\"a\",le=\"0.0001\"} 2");
        assert_eq!(
            lines[26..],
            [
                "took_seconds_bucket{source=\"a\",le=\"+Inf\"} 3",
                "took_seconds_sum{source=\"a\"} 61.5",
                "took_seconds_count{source=\"a\"} 3",
            ]
        );
    }
}
