#!/bin/sh
# Install the official MCP clients, which clients.rs runs, into target/clients.
#
#     tests/clients/install.sh            install what is missing or outdated
#     tests/clients/install.sh --check    only say whether that is needed
#
# What is installed is pinned by the files beside this one. Needs python3 (3.10
# or newer) with venv, and node (20 or newer) with npm.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../install-lib.sh"

need_python_and_node
begin "${1-}" "the official MCP clients" "$(python3 --version) $(node --version)" \
    requirements.txt package.json package-lock.json
need_new_python_and_node
clear_target
python_packages python requirements.txt
# The Inspector asks for a newer node than 20; its command line runs on that too.
npm_packages --engine-strict=false
# Programs elsewhere find the packages through this.
echo "export const load = (name) => import(name);" >"$target/load.mjs"
finish
