"""Generates tokens with a decoder: the prompt in one step, then one token a step.

The model has 16 layers, and its cache of keys and values grows.
"""

from __future__ import annotations

import time

import decoder
import loop
import torch


def main() -> int:
    parser = loop.parser(__doc__.splitlines()[0], layers=16, width=3072, inner=8192)
    parser.add_argument("--prompt", type=int, default=250, help="tokens of the prompt")
    parser.add_argument("--growth", type=int, default=8, help="tokens that the cache grows by")
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
