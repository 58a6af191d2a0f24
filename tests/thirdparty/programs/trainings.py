"""Trains models of Hugging Face's libraries, built from configurations, and optimizers of
bitsandbytes for some steps: pytest tests that run in the environment of tests/thirdparty.

In timing mode no kernel computes, but memory is real. Memory that no copy and no memset writes
keeps its bits through all moves. Parameters are such memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bitsandbytes as bnb
import peft
import pytest
import torch
import transformers
from diffusers import DiTTransformer2DModel, UNet2DConditionModel
from torch import nn

torch.backends.cudnn.enabled = False  # needs a real driver
STEPS = 3
VOCABULARY, LENGTH, BATCH = 2048, 64, 4

Model = tuple[nn.Module, Callable[[], torch.Tensor]]
"""A model, and a function that computes its loss once the model is on the GPU."""


def language_model(kind: str, **more: Any) -> Model:
    config = getattr(transformers, f"{kind}Config")(vocab_size=VOCABULARY, use_cache=False, **more)
    model = transformers.AutoModelForCausalLM.from_config(config)
    ids = torch.randint(VOCABULARY, (BATCH, LENGTH))
    return model, lambda: model(input_ids=ids.cuda(), labels=ids.cuda()).loss


def llama() -> Model:
    sizes = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4}
    return language_model("Llama", num_attention_heads=8, num_key_value_heads=4, **sizes)


def gpt2() -> Model:
    return language_model("GPT2", n_embd=512, n_layer=4, n_head=8)


def mixtral() -> Model:
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    # Nothing computes the choice of experts for a token, so each token uses all experts.
    every = {"num_local_experts": 4, "num_experts_per_tok": 4}
    return language_model("Mixtral", **sizes, **heads, **every)


def vit() -> Model:
    sizes = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4}
    config = transformers.ViTConfig(num_attention_heads=8, image_size=64, num_labels=10, **sizes)
    model = transformers.ViTForImageClassification(config)
    pixels, labels = torch.randn(BATCH, 3, 64, 64), torch.randint(10, (BATCH,))
    return model, lambda: model(pixel_values=pixels.cuda(), labels=labels.cuda()).loss


def lora() -> Model:
    model, _ = llama()
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj", "v_proj"]))
    ids = torch.randint(VOCABULARY, (BATCH, LENGTH))
    return adapted, lambda: adapted(input_ids=ids.cuda(), labels=ids.cuda()).loss


def unet() -> Model:
    model = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(64, 128),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=64,
        norm_num_groups=16,
    )
    noise, text = torch.randn(BATCH, 4, 16, 16), torch.randn(BATCH, 8, 64)
    return model, lambda: model(noise.cuda(), 10, text.cuda()).sample.square().mean()


def dit() -> Model:
    model = DiTTransformer2DModel(
        num_attention_heads=8, attention_head_dim=64, num_layers=4, sample_size=16
    )
    noise, when = torch.randn(BATCH, 4, 16, 16), torch.full((BATCH,), 10)

    def loss() -> torch.Tensor:
        labels = torch.zeros(BATCH, dtype=torch.long, device="cuda")
        return model(noise.cuda(), when.cuda(), class_labels=labels).sample.square().mean()

    return model, loss


MODELS = [llama, gpt2, mixtral, vit, lora, unet, dit]
OPTIMISERS = [bnb.optim.PagedAdamW32bit, bnb.optim.PagedAdamW8bit, bnb.optim.PagedLion]


def train(made: Model, optimiser: Callable[..., torch.optim.Optimizer]) -> None:
    """Raises AssertionError unless each parameter, which only kernels write, keeps its bits."""
    model, loss_of = made
    before = [parameter.detach().clone() for parameter in model.parameters()]
    model.cuda().train()
    chosen = optimiser([one for one in model.parameters() if one.requires_grad], lr=1e-3)
    for _ in range(STEPS):
        loss_of().backward()
        chosen.step()
        chosen.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    after = [parameter.detach().cpu() for parameter in model.parameters()]
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


@pytest.fixture(autouse=True)
def alike() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_model_is_trained_by_adamw(model: Callable[[], Model]) -> None:
    train(model(), torch.optim.AdamW)


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=lambda optimiser: optimiser.__name__)
def test_a_model_is_trained_by_a_paged_optimiser(optimiser: Any) -> None:
    train(llama(), optimiser)
