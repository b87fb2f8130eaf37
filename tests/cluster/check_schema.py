#!/usr/bin/env python3
"""docs/cluster.schema.json is a schema, the examples are of it, and it agrees with the reader
(test_cluster_file.c) on every file of the table: check_schema.py SCHEMA TABLE EXAMPLE... An example
may be a list of clusters.

A case of the table has a `file` (or a `text` that is no JSON or has a field twice, which no schema
sees), and the `error` that the reader gives; `schema_accepts` marks what only the reader can
refuse."""
import json
import pathlib
import sys

import jsonschema


def main():
    schema, table, *examples = (json.loads(pathlib.Path(path).read_text()) for path in sys.argv[1:])
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    wrong, n_checked = [], 0
    for path, example in zip(sys.argv[3:], examples):
        for one in example if isinstance(example, list) else [example]:
            wrong += [
                f"{path}: {error.json_path}: {error.message}"
                for error in validator.iter_errors(one)
            ]
    for case in table:
        if "file" not in case:
            continue
        n_checked += 1
        accepted = validator.is_valid(case["file"])
        expected = "error" not in case or case.get("schema_accepts", False)
        if accepted != expected:
            reasons = "; ".join(
                f"{e.json_path}: {e.message}" for e in validator.iter_errors(case["file"])
            )
            wrong.append(
                f"{case['name']}: the schema {'accepts' if accepted else 'refuses'} it {reasons}"
            )
    if not examples or n_checked < 60:
        wrong.append("too few examples or cases")
    print("\n".join(wrong) if wrong else f"{len(examples)} examples and {n_checked} cases")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
