# What the install.sh in clients/, conformance/ and upstreams/ have in common.
# They set `here` to their own folder and source this; what they install goes into
# the folder of the same name in target/.

name=$(basename "$here")
target=$here/../../target/$name

fail() {
    echo "tests/$name/install.sh: $1" >&2
    exit 1
}

need_python_and_node() {
    command -v python3 >/dev/null || fail "python3 is not installed; it is needed in version 3.10 or newer"
    command -v node >/dev/null || fail "node is not installed; it is needed in version 20 or newer"
}

# begin OPTION WHAT RUNNERS PIN…: go on only if WHAT has to be installed. That
# depends on the pins, which are files here, and on what runs it all.
begin() {
    option=$1 what=$2 runners=$3
    shift 3
    wanted=$({
        echo "$runners"
        cd "$here"
        cat ../install-lib.sh install.sh "$@"
    } | cksum)
    if [ "$(cat "$target/stamp" 2>/dev/null)" = "$wanted" ]; then
        exit 0
    fi
    if [ "$option" = --check ]; then
        fail "missing or outdated in target/$name: $what; run tests/$name/install.sh"
    fi
    command -v npm >/dev/null || fail "npm is not installed; it comes with node"
}

need_new_python_and_node() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "$(python3 --version) is too old; 3.10 or newer is needed"
    node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' ||
        fail "node $(node --version) is too old; 20 or newer is needed"
    python3 -c 'import venv, ensurepip' 2>/dev/null ||
        fail "python3 has no venv module; the package is often called python3-venv"
}

clear_target() {
    rm -rf "$target"
    mkdir -p "$target"
}

# python_packages FOLDER REQUIREMENTS
python_packages() {
    python3 -m venv "$target/$1"
    "$target/$1/bin/python" -m pip install \
        --quiet --disable-pip-version-check --require-hashes --requirement "$here/$2"
}

# npm_packages OPTION…
npm_packages() {
    cp "$here/package.json" "$here/package-lock.json" "$target/"
    (cd "$target" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error "$@")
}

# Only what was installed to the end counts.
finish() {
    echo "$wanted" >"$target/stamp"
}
