#!/bin/sh
# Install real MCP servers, which upstreams.rs runs behind Moonlark, into
# target/upstreams.
#
#     tests/upstreams/install.sh            install what is missing or outdated
#     tests/upstreams/install.sh --check    only say whether that is needed
#
# What is installed is pinned by the files beside this one. Needs python3 (3.10
# or newer) with venv, and node (20 or newer) with npm.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../install-lib.sh"

need_python_and_node
begin "${1-}" "the MCP servers" "$(python3 --version) $(node --version)" \
    requirements.txt requirements-mcp1.txt package.json package-lock.json
need_new_python_and_node
clear_target
python_packages python requirements.txt
# Some servers do not run with the second version of the SDK.
python_packages python-mcp1 requirements-mcp1.txt
npm_packages
finish
