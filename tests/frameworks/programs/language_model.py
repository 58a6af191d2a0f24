"""A small language model of transformers, built from a configuration without downloads."""

from __future__ import annotations

import sys

import common
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

WORDS, LENGTH, WIDTH = 512, 64, 192


def llama() -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=LENGTH,
        )
    )


def gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=WIDTH, n_layer=2, n_head=4)
    )


torch.manual_seed(3)
kind = sys.argv[1]
model = {"llama": llama, "gpt2": gpt2}[kind]().cuda()


def loss_of(step: int) -> torch.Tensor:
    words = torch.randint(0, WORDS, (2, LENGTH)).cuda()
    return model(input_ids=words, labels=words).loss


common.train(model, loss_of)
common.tell(kind=kind, parameters=sum(p.numel() for p in model.parameters()))
