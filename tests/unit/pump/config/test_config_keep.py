"""Rules for memory that stays device memory, as users write them and as the shim reads them."""

import pytest

from pump.cli.support import options
from pump.cli.support.lines import BadInputError
from pump.config import keep
from pump.config.values import BadValueError


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("below=8MiB", "below=8388608"),
        (" library = libmine ", None),
        ("library=libmine", "library=libmine"),
        ("ipc", "ipc"),
        ("stream-ordered", "stream-ordered"),
        ("vmm", "vmm"),
        ("none", "none"),
        ("below=2MiB", "below=2097152"),
        ("below=1MiB", None),
        ("below=", None),
        ("library=", None),
        ("library=/usr/lib/libmine.so", None),
        ("library=a,b", None),
        (f"library={'l' * 64}", None),
        ("ipc=on", None),
        ("librari=libmine", None),
        ("", None),
    ],
)
def test_a_rule_is_brought_into_the_form_that_the_shim_reads(text: str, rule: str | None) -> None:
    if rule is None:
        with pytest.raises(BadValueError) as raised:
            keep.parse(text)
        assert "\n" not in str(raised.value)
    else:
        assert keep.parse(text) == rule


def test_rules_are_added_to_the_defaults_and_none_drops_what_stands_before_it() -> None:
    def rules(*words: str) -> list[str]:
        given = [word for rule in words for word in ("--keep-device", rule)]
        asked = options.parse([*given, "job"])
        return asked.job()._replace(**asked.settings).keep_device

    assert rules() == keep.DEFAULT
    assert rules("below=8MiB", "ipc") == [*keep.DEFAULT, "below=8388608"]
    assert rules("library=a", "none", "library=b") == ["library=b"]
    assert rules("none") == []


def test_more_libraries_than_the_shim_looks_for_are_refused() -> None:
    words = [word for i in range(20) for word in ("--keep-device", f"library=lib{i}")]
    with pytest.raises(BadInputError, match="at most 16"):
        options.parse([*words, "job"])
