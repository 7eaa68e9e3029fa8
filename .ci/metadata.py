"""What `.ci/run` asks of cargo's and the program's JSON.

metadata.py licences          every package's licence is one that we accept
metadata.py features PACKAGE  names of its features, without `default`
metadata.py load TASKS        standard input is a clean report of `load --json`
"""

import json
import re
import subprocess
import sys

ACCEPTED = {
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    # As permissive; of the one hash function in `redis`.
    "BSL-1.0",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
}

# Expressions with the answer that `accepted` has to give, tried before each use.
EXPRESSIONS = [
    ("MIT", True),
    ("MIT/Apache-2.0", True),
    ("GPL-3.0-only", False),
    ("GPL-3.0-only OR MIT", True),
    ("GPL-3.0-only AND MIT", False),
    ("(MIT OR Apache-2.0) AND Unicode-3.0", True),
    ("(MIT OR Apache-2.0) AND MPL-2.0", False),
    ("MIT AND GPL-3.0-only OR ISC", True),
    ("MIT AND (GPL-3.0-only OR LGPL-2.1-only)", False),
    ("Apache-2.0 WITH LLVM-exception", False),
    ("Apache-2.0 WITH LLVM-exception OR MIT", True),
    ("MIT OR", False),
    ("(MIT", False),
    ("MIT ISC", False),
    ("", False),
]


def accepted(expression):
    """Whether an SPDX expression leaves a choice among ACCEPTED only.

    AND binds tighter than OR; the old `A/B` means `A OR B`; an identifier with
    an exception is a licence of its own. What cannot be parsed is refused.
    """
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))

    def peek():
        return tokens[0] if tokens else None

    def either():
        result = both()
        while peek() == "OR":
            tokens.pop(0)
            result |= both()
        return result

    def both():
        result = single()
        while peek() == "AND":
            tokens.pop(0)
            result &= single()
        return result

    def single():
        token = tokens.pop(0)
        if token == "(":
            result = either()
            if tokens.pop(0) != ")":
                raise ValueError("unbalanced")
            return result
        if token in (")", "AND", "OR", "WITH"):
            raise ValueError("identifier expected")
        if peek() == "WITH":
            tokens.pop(0)
            token += " WITH " + tokens.pop(0)
        return token in ACCEPTED

    try:
        result = either()
    except (ValueError, IndexError):
        return False
    return result and not tokens


def packages(*arguments):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(output)["packages"]


def licences():
    for expression, expected in EXPRESSIONS:
        if accepted(expression) != expected:
            sys.exit(f"licences: {expression!r} should give {expected}")
    found = packages()
    refused = [p for p in found if not accepted(p["license"] or "")]
    for package in refused:
        print(f"licences: {package['name']} {package['version']}: {package['license']}")
    if refused:
        sys.exit(1)
    print(f"licences: {len(found)} packages, all accepted")


def features(name):
    (package,) = [p for p in packages("--no-deps") if p["name"] == name]
    print(*(feature for feature in package["features"] if feature != "default"))


def load(tasks):
    report = json.load(sys.stdin)
    expected = {"tasks": int(tasks), "fired": int(tasks), "early": 0, "lost": 0}
    for key, value in expected.items():
        if report.get(key) != value:
            sys.exit(f"load: {key} is {report.get(key)}, not {value}")


COMMANDS = {"licences": licences, "features": features, "load": load}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
