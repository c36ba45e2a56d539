#!/bin/sh
# Install old versions of the official MCP SDKs, which old_clients.rs runs, into
# target/old_clients.
#
#     tests/old_clients/install.sh            install what is missing or outdated
#     tests/old_clients/install.sh --check    only say whether that is needed
#
# What is installed is pinned by the files beside this one. Needs python3 (3.10
# or newer) with venv, and node (20 or newer) with npm.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../install-lib.sh"

need_python_and_node
begin "${1-}" "old versions of the MCP SDKs" "$(python3 --version) $(node --version)" \
    requirements-1.9.txt requirements-1.12.txt requirements-1.26.txt package.json package-lock.json
need_new_python_and_node
clear_target
for version in 1.9 1.12 1.26; do
    python_packages "python-$version" "requirements-$version.txt"
done
npm_packages --engine-strict=false
finish
