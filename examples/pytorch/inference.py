"""A decoder generates words one by one: a prompt in one go, then a word a step.

Weights as of a model of 16 layers; a cache of keys and values grows as it goes.
"""

from __future__ import annotations

import time

import decoder
import loop
import torch


def main() -> int:
    parser = loop.parser(__doc__.splitlines()[0], layers=16, width=3072, inner=8192)
    parser.add_argument("--prompt", type=int, default=250, help="words of it")
    parser.add_argument("--growth", type=int, default=8, help="words that the cache grows by")
    options = parser.parse_args()
    with torch.inference_mode(), loop.prepare(options):
        model = decoder.Decoder(options)
        words = decoder.generation(model, options)
        began = time.perf_counter()
        words.step()
        prompt_s = time.perf_counter() - began
        found = loop.timed(words.step, options, model)
    found |= {"prompt_s": prompt_s, "cache_bytes": words.cache_bytes}
    return loop.finish(found, options)


if __name__ == "__main__":
    raise SystemExit(main())
