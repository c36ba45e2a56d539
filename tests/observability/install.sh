#!/bin/sh
# Install the parsers that judge what observability.rs collects, those of
# Prometheus and of OpenTelemetry's protocol, into target/observability.
#
#     tests/observability/install.sh            install what is missing or outdated
#     tests/observability/install.sh --check    only say whether that is needed
#
# What is installed is pinned by the file beside this one. Needs python3 (3.10 or
# newer) with venv.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../install-lib.sh"

need_python_and_node
begin "${1-}" "the parsers for metrics and traces" "$(python3 --version)" requirements.txt
need_new_python_and_node
clear_target
python_packages python requirements.txt
finish
