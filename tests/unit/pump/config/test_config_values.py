"""Sizes, shares and names as people write them."""

import pytest

from pump.config.values import BadValueError, choose, parse_amount, parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4294967296", 4 << 30),
        ("4GiB", 4 << 30),
        ("4gib", 4 << 30),
        (" 4 GiB ", 4 << 30),
        ("4G", 4 << 30),
        ("4GB", 4_000_000_000),
        ("1.5G", 3 << 29),
        ("0.1KB", 100),
        ("512MiB", 512 << 20),
        ("2TiB", 2 << 40),
        ("7B", 7),
        # a float would lose the last byte
        ("9007199254740993", 9007199254740993),
    ],
)
def test_a_size_is_read_exactly(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["", "GiB", "4XB", "-4GiB", "4..5G", "4.G", ".5G", "1e9", "0x10", "4GiBs", "٤GiB", "9" * 5000],
)
def test_what_is_no_size_is_refused_with_one_line_that_quotes_it(text: str) -> None:
    with pytest.raises(BadValueError) as caught:
        parse_size(text)
    assert text[:12] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_size_beyond_any_machine_is_refused() -> None:
    with pytest.raises(BadValueError, match="exceeds the memory of any machine"):
        parse_size("9999999999TiB")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("80%", "80%"), (" 8 %", "8%"), ("100%", "100%"), ("2MiB", "2097152")],
        *[("1.5x", "1.5x"), ("1.50 X", "1.5x"), ("02x", "2x"), ("0.001x", "0.001x")],
    ],
)
def test_an_amount_comes_out_as_the_shim_reads_it(text: str, value: str) -> None:
    assert parse_amount(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *["0%", "101%", "%", "1.5%", "-3%", "0", "1MiB", "much", "9" * 99 + "%"],
        *["x", "0x", ".5x", "1.x", "1.0001x", "1001x", "-1x", "1e3x", "9" * 99 + "x"],
    ],
)
def test_an_amount_out_of_bounds_is_refused(text: str) -> None:
    with pytest.raises(BadValueError):
        parse_amount(text)


def test_an_unknown_name_is_answered_with_the_nearest_and_with_all() -> None:
    with pytest.raises(BadValueError) as caught:
        choose("windw", ["demand", "window"], "policy")
    assert "did you mean 'window'" in str(caught.value)
    assert "demand, window" in str(caught.value)
    with pytest.raises(BadValueError) as caught:
        choose("zzz", ["demand", "window"], "policy")
    assert "did you mean" not in str(caught.value)
