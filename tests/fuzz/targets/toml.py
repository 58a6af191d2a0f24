"""A folder's pump.toml, which may come from a clone, and the lookup of its lines."""

from __future__ import annotations

import re

from pump.config import files, folder, locate, reference, schema, settings

from . import one_line


def target(data: bytes) -> None:
    if not data:
        return
    administrators, text = bool(data[0] & 1), data[1:]
    try:
        found = files.parse(text, "f.toml", administrators=administrators)
    except files.ConfigError as error:
        one_line(error)
        assert 0 < len(error.faults) <= files.FAULTS_MAX
        assert all("\n" not in fault for fault in error.faults)
        return
    assert administrators or not set(schema.ADMINISTRATORS) & set(found.tables)
    last = text.count(b"\n") + 1
    assert all(1 <= line <= last for line in found.lines.values())
    assert all((table,) in found.lines for table in found.tables)
    job = found.tables.get("job", {})
    classes = (settings.AT_ONCE, settings.TRUSTED, settings.NEVER)
    assert sorted(key for when in classes for key in folder.asks(found, when)) == sorted(job)
    written = "".join(f"{key} = {files.to_toml(value)}\n" for key, value in job.items())
    told = "[job]\n" + written.replace("keep_device = [", 'keep_device = ["none", ')
    if all(len(line) <= files.LINE_BYTES_MAX for line in told.encode().split(b"\n")):
        again = files.parse(told.encode(), "again", administrators=False)
        assert again.tables["job"] == job
    assert locate.lines(text.decode()) == found.lines


def seeds() -> list[bytes]:
    whole = reference.example(administrators=False)
    pieces = [
        'job.budget = "1GiB"\n[job."record"]\nx = 1',
        "[job]\nkeep_device = [ # a\n 'below=8MiB',\n\"ipc\" ]\nname = '''a'''\n",
        '[job]\nrecord = "~/thesis.tex"\nlog_file = "../\\u000a$(x)"\n',
        "a." * 60 + "a = 1\n" + "[[" + "b." * 60 + "b]]\n",
        "a = " + "[" * 900 + "]" * 900,
        f"[job]\nbudget = {'9' * 1900}\npriority = 0x{'f' * 1900}\n",
        "\n".join(f"k{number} = {{ a = 1979-05-27, b = 1e9 }}" for number in range(30)),
    ]
    in_force = re.sub(r"^# ([a-z_]+ = )", r"\1", whole, flags=re.M)
    found = [b"\0" + text.encode() for text in (in_force, *pieces)]
    system = '[limits]\nbudget = "80%"\n[shares]\nalice = 4\n"@s" = 1\n[service]\nlease_s = 3.0\n'
    return [*found, b"\1" + system.encode()]
