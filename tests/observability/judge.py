"""Judges what Moonlark says about itself, by parsers that others wrote.

`judge.py prometheus` reads the text of /metrics, `judge.py traces` and
`judge.py metrics` what a collector was sent. Each prints what it has read as
JSON, and fails if that is not what the format allows.
"""

import base64
import json
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families


def prometheus(text):
    families = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        samples = [[sample.name, sample.labels, sample.value] for sample in family.samples]
        families[family.name] = {"type": family.type, "samples": samples}
    return families


def with_bytes(value):
    """OTLP writes its ids in hexadecimal, where protobuf's own JSON has Base64."""
    if isinstance(value, list):
        return [with_bytes(item) for item in value]
    if isinstance(value, dict):
        ids = ("traceId", "spanId", "parentSpanId")
        encode = lambda text: base64.b64encode(bytes.fromhex(text)).decode()
        return {key: encode(it) if key in ids else with_bytes(it) for key, it in value.items()}
    return value


def otlp(text, request):
    return json_format.Parse(json.dumps(with_bytes(json.loads(text))), request)


def attributes(pairs):
    return {pair.key: pair.value.string_value or pair.value.int_value for pair in pairs}


def traces(text):
    spans = []
    for resource in otlp(text, ExportTraceServiceRequest()).resource_spans:
        service = attributes(resource.resource.attributes)["service.name"]
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            assert len(span.trace_id) == 16 and len(span.span_id) == 8, span
            assert len(span.parent_span_id) in (0, 8), span
            assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
            spans.append({
                "service": service,
                "trace": span.trace_id.hex(),
                "id": span.span_id.hex(),
                "parent": span.parent_span_id.hex(),
                "name": span.name,
                "kind": span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
                "failed": span.status.code == span.status.STATUS_CODE_ERROR,
                "attributes": attributes(span.attributes),
            })
    return spans


def metrics(text):
    read = {}
    for resource in otlp(text, ExportMetricsServiceRequest()).resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            kind = metric.WhichOneof("data")
            points = []
            for point in getattr(metric, kind).data_points:
                value = point.count if kind == "histogram" else point.as_double
                if kind == "histogram":
                    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1, metric
                    assert sum(point.bucket_counts) == point.count, metric
                points.append([attributes(point.attributes), value])
            read[metric.name] = {"kind": kind, "unit": metric.unit, "points": points}
    return read


print(json.dumps({"prometheus": prometheus, "traces": traces, "metrics": metrics}[sys.argv[1]](sys.stdin.read())))
