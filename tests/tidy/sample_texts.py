"""Prints texts drawn at random for a reader who has not seen the code: scripts/lint --sample SEED.

For each folder of two levels: four comments, two functions with their signatures, two messages,
without the code around them. The reader writes one sentence for each: what does it say? Somebody
who knows the code marks the sentences as right, vague or wrong. What was not right is rewritten,
and asked of another reader. Not a test.
"""

from __future__ import annotations

import ast
import random
import re
import sys
from pathlib import Path

from tidy_comments import comments
from tidy_sources import files, name, python_files, text
from tidy_texts import texts_of

WORDS_LEAST = 4
"""Shorter comments are left out."""
OWN_WORDS_LEAST = 2
"""Messages with fewer words are left out. X and % stand for values."""
DEFINITION = re.compile(r"^(?:[a-z_][\w ]*[ *]+)([a-z_]\w+)\(([^;{}()]*)\) \{$", re.MULTILINE)


def functions(path: Path) -> list[str]:
    """Returns the signatures of a file's functions, except test cases and dunder methods."""
    if path.suffix in {".c", ".h"}:
        return [" ".join(found[0].rstrip("{").split()) for found in DEFINITION.finditer(text(path))]
    return [
        f"{node.name}({ast.unparse(node.args)})"
        + (f" -> {ast.unparse(node.returns)}" if node.returns else "")
        for node in ast.walk(ast.parse(text(path)))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith(("test_", "__"))
    ]


def own_words(message: str) -> list[str]:
    """Returns the words of a message, without the values in it."""
    return re.findall(r"\b(?!X)[A-Za-z][A-Za-z'-]+", re.sub(r"%\S+", " ", message))


def main() -> None:
    """Prints the sample of argument SEED, any text."""
    chance = random.Random(sys.argv[1])
    python = python_files()
    for folder, found in sorted(comments().items()):
        inside = [path for path in files() if name(path).startswith(f"{folder}/")]
        code = [path for path in inside if path in python or path.suffix in {".c", ".h"}]
        told = [one.content for one in found if len(one.content.split()) >= WORDS_LEAST]
        messages = [one.content for path in code for one in texts_of(path)]
        messages = [one for one in messages if len(own_words(one)) >= OWN_WORDS_LEAST]
        kinds = {
            "comment": (4, told),
            "function": (2, [one for path in code for one in functions(path)]),
            "message": (2, messages),
        }
        print(f"\n{folder}")
        for kind, (count, texts) in kinds.items():
            some = sorted(set(texts))
            for one in chance.sample(some, min(count, len(some))):
                print(f"  {kind}: {one}")


main()
