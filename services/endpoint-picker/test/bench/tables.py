"""Tables of a comparison in Markdown, from the rows of its runs."""

import statistics

# Of an emulated server: microseconds for a prompt token, and the least milliseconds of a step.
TOKEN_MICROSECONDS, STEP_MILLISECONDS = 200, 30
LATE = 0.02  # mean lateness of the client in seconds from which a cell is marked: the machine was the bottleneck
LATENCIES = {"first": "TTFT mean", "first50": "p50", "first99": "p99", "whole": "whole mean", "whole99": "p99"}


def print_table(title, header, rows):
    rows = list(rows)
    if rows:
        print(f"\n{title}\n")
        for cells in [header, ["---"] * len(header), *rows]:
            print("|", " | ".join(map(str, cells)), "|")


def print_comparison(rows):
    groups = {}
    for row in rows:
        groups.setdefault((row["cell"], row["balancer"]), []).append(row)
    marks = {cell: mark_cell([row for row in rows if row["cell"] == cell]) for cell, _ in groups}
    print_table(
        "Latencies in ms of successful requests; medians of the seeds, sums of requests",
        ["cell", "balancer", "requests", "failed", *LATENCIES.values(), "hit %", "CPU ms/request", "RSS MB"],
        (
            [marks[cell], name, total(runs, "n"), total(runs, "failed"), *(f"{median(runs, key):.0f}" for key in LATENCIES)]
            + [f"{median(runs, 'hit'):.1f}", f"{median(runs, 'cpu'):.2f}", f"{median(runs, 'memory'):.0f}"]
            for (cell, name), runs in groups.items()
        ),
    )
    print_table(
        "Fairlead divided by the peer, medians of the seeds; the hit rate is a difference in points",
        ["cell", "peer", *LATENCIES.values(), "CPU", "hit"],
        (
            [marks[cell], name, *compare_runs(groups[cell, "fairlead"], runs)]
            for (cell, name), runs in groups.items()
            if name != "fairlead" and (cell, "fairlead") in groups
        ),
    )
    print_table(
        "Failures, and restarts: seconds from SIGTERM to the end of the process, and from there to the first answer of the next",
        ["cell", "balancer", "failed", "conversations that kept their server", "seconds", "errors"],
        (
            [cell, name, total(runs, "failed"), kept_server(runs), "; ".join(run.get("dark", "") for run in runs), list_errors(runs)]
            for (cell, name), runs in groups.items()
            if runs[0]["disturbed"] or total(runs, "failed")
        ),
    )
    print_table(
        f"What the picker learned; the truth is {TOKEN_MICROSECONDS} µs, at least {STEP_MILLISECONDS} ms, and 0 points",
        ["cell", "µs per prompt token", "ms per step", "expected - real hit rate"],
        (
            [cell, f"{median(runs, 'token'):.0f}", f"{median(runs, 'step'):.0f}", f"{median(runs, 'points'):+.1f}"]
            for (cell, name), group in groups.items()
            if (runs := [run["learned"] for run in group if "learned" in run])
        ),
    )


def mark_cell(runs):
    """Names a cell, and marks it if the client was late in one of its runs."""
    late = max(run["late"] for run in runs)
    text = f"{runs[0]['cell']}, {runs[0]['rate']:.1f}/s, machine {100 * max(run['busy'] for run in runs):.0f} % busy"
    return text + (f", **late by {1000 * late:.0f} ms**" if late > LATE else "")


def compare_runs(ours, theirs):
    pairs = [(our, their) for our in ours for their in theirs if our["seed"] == their["seed"]]
    ratios = [statistics.median(our[key] / max(their[key], 1e-9) for our, their in pairs) for key in [*LATENCIES, "cpu"]]
    return [f"{ratio:.2f}" for ratio in ratios] + [f"{statistics.median(our['hit'] - their['hit'] for our, their in pairs):+.1f}"]


def kept_server(runs):
    return f"{total(runs, 'kept')} of {total(runs, 'crossed')}" if "kept" in runs[0] else ""


def list_errors(runs):
    return ", ".join(sorted({error for run in runs for error in run["errors"]}))


def median(runs, key):
    return statistics.median(run[key] for run in runs)


def total(runs, key):
    return sum(run[key] for run in runs)
