"""Labels that limit the validity of an item's numbers, each with its reason. Pure."""

from __future__ import annotations

from dataclasses import replace

from probe.transfer import GVISOR, KEY, OUT

from acceptance.contract import Item, Json, Machine

NOT_TRANSFERABLE, OPTIMISTIC = KEY, "optimistic"
"""Keys in an item's values; the value is the reason."""
TITLES = {
    NOT_TRANSFERABLE: "Holds for this runtime alone",
    OPTIMISTIC: "Optimistic: the budget is emulated",
}
EMULATED = (
    "the card has room for everything, so its driver evicts nothing: a block that pump moved out "
    "keeps its place and comes back without eviction or allocation; a full card takes longer"
)


def labelled(stage: str, item: Item, machine: Machine) -> Item:
    """Returns the item with the labels that apply to it."""
    labels: dict[str, Json] = {}
    if machine.runtime == GVISOR and stage == "speed":
        labels[NOT_TRANSFERABLE] = f"speed under gVisor: {OUT}"
    if "budget_bytes" in item.values and _has_room(item, machine):
        labels[OPTIMISTIC] = EMULATED
    return replace(item, values={**item.values, **labels}) if labels else item


def _has_room(item: Item, machine: Machine) -> bool:
    """Returns whether all memory of the program fits on the GPU, whatever budget pump was given."""
    model = item.values.get("model")
    footprint_bytes = model.get("footprint_bytes", 0) if isinstance(model, dict) else 0
    return bool(footprint_bytes <= machine.free_bytes)
