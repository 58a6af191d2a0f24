"""The acceptance's page, made only from the stages' JSON."""

from __future__ import annotations

from typing import Any

from acceptance import contract, labels, results, summary
from acceptance_fakes import make_machine


def result(
    stage: str, *items: dict[str, Any], virtual: bool = False, **more: Any
) -> dict[str, Any]:
    machine = make_machine(kind="virtual", profile="p") if virtual else make_machine()
    head = results.Identity("c0ffee" * 6, False, machine).head()
    facts = {"stage": stage, "what": f"what {stage} does", "date": "2026-01-02", "seconds": 12.34}
    return {**head, **facts, "complete": True, "items": list(items), **more}


def item(name: str, status: str, reason: str = "", **values: Any) -> dict[str, Any]:
    return {"name": name, "status": status, "reason": reason, "values": values, "seconds": 1.0}


def test_the_page_counts_each_status_and_names_every_reason() -> None:
    page = summary.page(
        [
            result("bits", item("a", "pass"), item("b", "fail", "other bits than without pump")),
            result("shim", item("jax", "unavailable", "jax is not installed here")),
        ],
        61.0,
    )
    assert "| bits | 12.3 | 1 | 1 | 0 | 0 | yes | what bits does |" in page
    assert "- bits.b: other bits than without pump" in page
    assert "- shim.jax: jax is not installed here" in page
    assert page.index("## Failed") < page.index("## Could not run here")
    assert "61 s in all" in page


def test_virtual_figures_are_labelled_and_measured_ones_say_so() -> None:
    virtual = summary.page([result("bits", virtual=True)], 1.0)
    assert "**virtual GPU p, figures are a model's**" in virtual
    assert "measured" not in virtual
    assert "(measured on this card)" in summary.page([result("bits")], 1.0)


def test_the_page_says_which_figures_hold_only_in_part_and_why() -> None:
    window = item("gpt2.2x.window", "info", optimistic="the card has room")
    idle = item("question.prefetch_idle", "pass", not_transferable="it returns early")
    page = summary.page([result("probe", idle), result("speed", window)], 1.0)
    assert "## Optimistic: the budget is emulated\n\n- speed.gpt2.2x.window: the card" in page
    assert "- probe.question.prefetch_idle: it returns early" in page
    plain = summary.page([result("speed", item("gpt2.2x.window", "info"))], 1.0)
    assert "Optimistic" not in plain and "this runtime alone" not in plain


def test_figures_under_an_emulated_budget_are_optimistic_where_the_card_has_room() -> None:
    def made(footprint_gib: int, **values: Any) -> contract.Item:
        model = {"footprint_bytes": footprint_gib << 30}
        return contract.Item("a", "info", values={"model": model, **values})

    machine = make_machine(free_bytes=4 << 30)
    budget = {"budget_bytes": 1 << 30}
    assert (
        "evicts nothing"
        in labels.labelled("speed", made(3, **budget), machine).values["optimistic"]
    )
    for item_of_full_card in (made(5, **budget), made(3)):
        assert labels.labelled("speed", item_of_full_card, machine) == item_of_full_card


def test_all_of_speed_holds_for_gvisor_alone_and_bits_hold_everywhere() -> None:
    one = contract.Item("a", "info")
    gvisor = make_machine(runtime="gvisor")
    assert "gVisor" in labels.labelled("speed", one, gvisor).values["not_transferable"]
    assert labels.labelled("bits", one, gvisor) == one
    assert labels.labelled("speed", one, make_machine()) == one


def test_quick_figures_are_said_to_mean_nothing() -> None:
    assert "the figures mean nothing" in summary.page([result("bits", quick=True)], 1.0)
    assert "the figures mean nothing" not in summary.page([result("bits")], 1.0)


def test_speed_becomes_a_table_of_its_numbers() -> None:
    row = item("gpt2.1_5x.window", "info", seconds_window=1.5, of_floor=0.91234, model="gpt2")
    page = summary.page([result("speed", row)], 1.0)
    assert "| item | status | seconds_window | of_floor |" in page
    assert "| gpt2.1_5x.window | info | 1.5 | 0.9123 |" in page


def test_headlines_become_key_figures_and_failed_items_give_none() -> None:
    good = item("cost", "info", headline="a launch takes 463 ns")
    bad = item("cost2", "fail", "broken", headline="never mind")
    page = summary.page([result("shim", good, bad)], 1.0)
    assert "- shim.cost: a launch takes 463 ns" in page
    assert "never mind" not in page


def test_a_thousand_items_still_make_one_page() -> None:
    many = [item(f"i{n}", "fail", f"reason {n} " + "x" * 1000) for n in range(1000)]
    figures = [item(f"j{n}", "info", headline=f"figure {n}") for n in range(1000)]
    page = summary.page([result("shim", *many, *figures)], 1.0)
    assert len(page.splitlines()) < 80
    assert "and 988 more in the JSON" in page


def test_no_results_make_a_page_that_says_so() -> None:
    assert "No stage has run" in summary.page([], 0.0)
