"""Makes the tiny model that tests add: `python3 make.py`, with numpy.

It is a model of the BERT family with 34 pieces, two layers and random weights, in which
words that mean the same have nearly the same vector. Prints the vector of a text, computed
here in plain numpy, which a test of moonlark-search compares with.
"""

import json
import struct

import numpy as np

WIDTH, LAYERS, HEADS, INNER, POSITIONS = 16, 2, 4, 32, 40
ALIKE = [
    ["holiday", "vacation"], ["release", "deploy"], ["undo", "revert"], ["car", "automobile"],
    ["money", "salary"], ["person", "human"], ["letter", "mail"], ["house", "home"],
]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "##s", "##ing", ".", ",", "a", "the", "of", "to",
          "how", "we", "is", "in", "and", "year"] + [word for words in ALIKE for word in words]

random = np.random.default_rng(19)


def weights(*shape, scale=0.08):
    return (random.standard_normal(shape) * scale).astype(np.float32)


def make():
    words = weights(len(PIECES), WIDTH, scale=0.2)
    for alike in ALIKE:
        meaning = weights(WIDTH, scale=2.0)
        for word in alike:
            words[PIECES.index(word)] = meaning + weights(WIDTH, scale=0.1)
    tensors = {
        "embeddings.word_embeddings.weight": words,
        "embeddings.position_embeddings.weight": weights(POSITIONS, WIDTH, scale=0.02),
        "embeddings.token_type_embeddings.weight": weights(2, WIDTH, scale=0.02),
        "embeddings.LayerNorm.weight": 1 + weights(WIDTH),
        "embeddings.LayerNorm.bias": weights(WIDTH),
    }
    for layer in range(LAYERS):
        of = f"encoder.layer.{layer}."
        for name, out, into in [
            ("attention.self.query", WIDTH, WIDTH), ("attention.self.key", WIDTH, WIDTH),
            ("attention.self.value", WIDTH, WIDTH), ("attention.output.dense", WIDTH, WIDTH),
            ("intermediate.dense", INNER, WIDTH), ("output.dense", WIDTH, INNER),
        ]:
            tensors[of + name + ".weight"] = weights(out, into)
            tensors[of + name + ".bias"] = weights(out)
        for name in ["attention.output", "output"]:
            tensors[of + name + ".LayerNorm.weight"] = 1 + weights(WIDTH)
            tensors[of + name + ".LayerNorm.bias"] = weights(WIDTH)
    return tensors


def write(tensors):
    heading, numbers = {}, b""
    for name, tensor in tensors.items():
        start = len(numbers)
        numbers += tensor.astype("<f4").tobytes()
        heading[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [start, len(numbers)]}
    heading = json.dumps(heading).encode()
    with open("model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(heading)) + heading + numbers)
    with open("vocab.txt", "w") as file:
        file.write("\n".join(PIECES) + "\n")
    config = {
        "model_type": "bert", "hidden_act": "gelu", "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "intermediate_size": INNER, "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2, "vocab_size": len(PIECES), "layer_norm_eps": 1e-12,
    }
    with open("config.json", "w") as file:
        json.dump(config, file, indent=2)
        file.write("\n")


def encode(t, pieces, heads, layers, eps=1e-12):
    from math import erf
    x = t["embeddings.word_embeddings.weight"][pieces].astype(np.float64)
    x = x + t["embeddings.position_embeddings.weight"][: len(pieces)] + t["embeddings.token_type_embeddings.weight"][0]

    def norm(x, of):
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(var + eps) * t[of + ".LayerNorm.weight"] + t[of + ".LayerNorm.bias"]

    def linear(x, of):
        return x @ t[of + ".weight"].T.astype(np.float64) + t[of + ".bias"]

    x = norm(x, "embeddings")
    n, width = x.shape
    for layer in range(layers):
        of = f"encoder.layer.{layer}."
        q, k, v = (linear(x, of + "attention.self." + it).reshape(n, heads, -1).transpose(1, 0, 2)
                   for it in ["query", "key", "value"])
        s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        s = np.exp(s - s.max(-1, keepdims=True))
        s /= s.sum(-1, keepdims=True)
        seen = (s @ v).transpose(1, 0, 2).reshape(n, width)
        x = norm(x + linear(seen, of + "attention.output.dense"), of + "attention.output")
        h = linear(x, of + "intermediate.dense")
        h = h * 0.5 * (1 + np.vectorize(erf)(h / np.sqrt(2)))
        x = norm(x + linear(h, of + "output.dense"), of + "output")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


if __name__ == "__main__":
    tensors = make()
    write(tensors)
    pieces = [PIECES.index(it) for it in ["[CLS]", "how", "to", "undo", "a", "release", "##s", ".", "[SEP]"]]
    print("how to undo a releases.", pieces)
    print(", ".join(f"{it:.6f}" for it in encode(tensors, pieces, HEADS, LAYERS)))
