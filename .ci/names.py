#!/usr/bin/env python3
"""Counts the names of functions and methods: how many are one word, and how many of these have several definitions in the same module.

usage: names.py [--list] <folder>...

--list prints each one-word name with the number of its definitions. Tests, generated code and modules below the folder do not count.
"""
import collections
import pathlib
import re
import sys

FUNCTION = re.compile(r"^func (?:\([^)]*\) )?(\w+)", re.MULTILINE)
GENERATED = re.compile(r"^// Code generated .* DO NOT EDIT\.$", re.MULTILINE)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
SHARED = 3  # definitions
MOST_ONE_WORD, MOST_SHARED = 40, 10  # percent


def names(folder):
    root = pathlib.Path(folder)
    modules = [path.parent for path in root.rglob("go.mod") if path.parent != root]
    for path in sorted(root.rglob("*.go")):
        if path.name.endswith("_test.go") or "testdata" in path.parts or any(module in path.parents for module in modules):
            continue
        text = path.read_text()
        if not GENERATED.search(text):
            yield from FUNCTION.findall(text)


def main(arguments):
    listing = arguments[:1] == ["--list"]
    failed = False
    for folder in arguments[listing:]:
        every = list(names(folder))
        single = collections.Counter(name for name in every if len(WORD.findall(name)) <= 1)
        shared = sum(count for count in single.values() if count >= SHARED)
        one_word, ambiguous = 100 * single.total() / len(every), 100 * shared / len(every)
        print(f"{folder}: {len(every)} functions, {one_word:.0f} % of one word, {ambiguous:.0f} % that share a word with two or more others")
        failed |= one_word >= MOST_ONE_WORD or ambiguous >= MOST_SHARED
        if listing:
            print("  " + ", ".join(f"{name} {count}" for name, count in single.most_common()))
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
