"""Each setting of a job is written once: in the table of settings, from which the rest is made."""

from __future__ import annotations

import ast

from tidy_sources import name, python_files, text

from pump.config.settings import JOB, variable

TABLE = "pump/config/settings.py"
MADE = ("pump/config/", "pump/cli/support/options.py", "pump/cli/support/environment.py")
"""Code that handles all settings alike."""
NAMED = {
    "pump/config/checks.py": {
        *("policy", "granularity"),  # in messages
        *("budget", "limit"),  # values of `report`
    },
    "pump/config/folder.py": {"record"},  # must be inside the folder
    "pump/config/layers.py": {
        *("budget", "limit", "priority"),  # the administrator's bounds
        "record",  # the folder that must contain it
    },
    "pump/cli/support/options.py": {
        *("log_file", "record"),  # must be writable
        "duplicates",  # --no-duplicates
    },
    "pump/cli/support/environment.py": {"record"},  # only with a pumpd
}
"""Settings that such code names because it treats them specially."""


def test_each_setting_is_written_once() -> None:
    keys = {}
    for key, setting in JOB.items():
        option = setting.option.usage.split()[0]
        keys |= dict.fromkeys((key, variable(key), option, f"--{key.replace('_', '-')}"), key)
    found: dict[str, set[str]] = {}
    for path in python_files(*MADE):
        words = [
            keys[word]
            for node in ast.walk(ast.parse(text(path)))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            for word in node.value.split()[:1]
            if word in keys and (word == node.value or word.startswith("--"))
        ]
        if words and name(path) != TABLE:
            found[name(path)] = set(words)
    assert found == NAMED
