"""``python -m tests.checks.changed_numbers``: change random numbers of the pages whose
numbers are all checked, one at a time, and count how many are noticed.

Code, targets of links and comments are left alone, as are numbers that belong to a name,
such as float64.
"""

import argparse
import random
import re
import sys

from benchmarks.tables import PAGES, ROOT, declared, numbers, written

CODE = re.compile(
    r"^```.*?^```|`[^`\n]+`|<!--.*?-->|(?<=\])\([^)\s]+\)|(?<=\])\[[^\]]*\]",
    re.DOTALL | re.MULTILINE,
)


def places(text: str) -> list[re.Match[str]]:
    """Return the numbers that readers see."""
    seen = CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    return list(declared.NUMBER.finditer(seen))


def changed(text: str, number: re.Match[str], chance: random.Random) -> str:
    """Return the page with another digit somewhere in a number."""
    digits = [k for k in range(*number.span()) if text[k].isdigit()]
    at = chance.choice(digits)
    other = chance.choice([one for one in "123456789" if one != text[at]])
    return text[:at] + other + text[at + 1 :]


def noticed(page: str, text: str) -> bool:
    """Return whether the checks of `benchmarks.tables` fail for a page."""
    return (
        any(numbers.problems(text))
        or any(declared.problems(page, text))
        or written(text) != text
    )


def unnoticed(seed: int, number: int) -> list[str]:
    """Return the changes that nothing noticed, of some random ones."""
    chance = random.Random(seed)
    pages = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
    every = [(page, one) for page, text in pages.items() for one in places(text)]
    missed = []
    for page, one in chance.sample(every, min(number, len(every))):
        new = changed(pages[page], one, chance)
        if not noticed(page, new):
            around = pages[page][max(0, one.start() - 40) : one.end() + 30]
            missed.append(f"{page}: {one[0]}: {' '.join(around.split())}")
    return missed


def main() -> int:
    """Change numbers by some seeds; return 1 if a change passed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.checks.changed_numbers", description=__doc__
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--changes", type=int, default=12, help="of each seed (12)")
    options = parser.parse_args()
    wrong = 0
    for seed in options.seeds:
        missed = unnoticed(seed, options.changes)
        wrong += len(missed)
        print(f"seed {seed}: {options.changes - len(missed)} of {options.changes} seen")
        for one in missed:
            print(f"  not seen: {one}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
