"""Compares the prefix cache hits that the endpoint-picker expects of real vLLM servers with those that the servers report.

Each case has its own model, length of tokens and size of blocks. Servers are vLLM on CPUs with tiny models of random weights: their speeds
mean nothing, but their caches, queues and metrics are vLLM's own.
"""

import argparse
import asyncio
import functools
import itertools
import json
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import processes
import tables
import traffic

MODEL = "tiny"
ENVIRONMENT = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
START = 600  # seconds in which a server starts on a busy machine
STEP = 0.5  # seconds between two looks at the queues
GOAL = 5  # points between the expected and the real hit rate
COUNTERS = ["vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"]
QUEUES = ["vllm:num_requests_running", "vllm:num_requests_waiting"]


def serve(options, folder, model, block, port):
    sequences = ["--max-num-seqs", str(options.sequences)]
    blocks = ["--num-gpu-blocks-override", str(options.cache_tokens // block)] if options.cache_tokens else []
    details = ["--enable-prompt-tokens-details"] if options.details else []
    return processes.Process(
        folder / f"vllm-{port}.log",
        [
            Path(sys.executable).parent / "vllm",
            "serve",
            model,
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--served-model-name",
            MODEL,
            "--dtype",
            "bfloat16",
            "--enforce-eager",
            "--block-size",
            str(block),
            "--enable-prefix-caching",
            *sequences,
            *blocks,
            *details,
        ],
        ENVIRONMENT,
    )


def start_picker(options, folder, port, admin, servers):
    file = folder / "endpoints.yaml"
    file.write_text("endpoints:\n" + "".join(f"- {{name: vllm-{port}, address: 127.0.0.1, port: {port}}}\n" for port in servers))
    return processes.Process(
        folder / "picker.log",
        [
            options.bin / "endpoint-picker",
            f"--endpoints-file={file}",
            f"--proxy-bind-address=127.0.0.1:{port}",
            "--grpc-port=0",
            "--grpc-health-port=0",
            f"--metrics-bind-address=127.0.0.1:{admin}",
            "--health-probe-bind-address=127.0.0.1:0",
            "--log-requests",
        ],
    )


def list_words(model):
    """Returns the tokens that begin a word. Answers of these have the same tokens in the prompt of the next turn; random ones would not."""
    vocabulary = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    return [number for token, number in vocabulary.items() if re.fullmatch("Ġ[a-z]+", token)]


async def read_hits(session, admin, servers):
    """Returns for each server the tokens that hit and all: as expected by the picker, and as counted by the server."""
    async with session.get(f"http://127.0.0.1:{admin}/debug/pools.json") as response:
        endpoints = (await response.json())["pools"][0]["endpoints"]
    expected = {int(endpoint["address"].rpartition(":")[2]): endpoint["prefixTokens"] for endpoint in endpoints}
    real = await asyncio.gather(*(traffic.read_counters(session, f"http://127.0.0.1:{port}", *COUNTERS) for port in servers))
    return [[expected[port]["expected"], expected[port]["prompt"], *counts] for port, counts in zip(servers, real)]


def compare_prompts(log, offset, servers):
    """Returns for each server the estimated divided by the counted prompt tokens, of requests in the log of the picker from an offset."""
    sums = {port: [0, 0] for port in servers}
    with open(log, "rb") as lines:
        lines.seek(offset)
        for line in lines:
            entry = json.loads(line)
            if entry.get("inputTokens"):
                for i, key in enumerate(["promptTokens", "inputTokens"]):
                    sums[int(entry["endpoint"].rpartition(":")[2])][i] += entry[key]
    return [estimated / max(counted, 1) for estimated, counted in sums.values()]


async def watch_queues(session, servers, looks):
    """Records in looks whether a server was idle while another one queued."""
    while True:
        pages = await asyncio.gather(*(traffic.read_counters(session, f"http://127.0.0.1:{port}", *QUEUES) for port in servers))
        looks.append((any(running + waiting == 0 for running, waiting in pages), any(waiting > 0 for _, waiting in pages)))
        await asyncio.sleep(STEP)


async def run_case(options, kind, size, block):
    name = f"{kind}-{size}-{block}"
    folder, model = options.folder / name, options.folder / f"model-{kind}-{size}"
    folder.mkdir(parents=True)
    if not model.exists():
        with open(folder / "model.log", "w") as log:
            subprocess.run(
                [sys.executable, Path(__file__).with_name("models.py"), model, kind, str(size)], check=True, stdout=log, stderr=log
            )
    conversations = sorted(
        traffic.make_conversations("shared", options.seed, options.rate / 2, options.seconds)
        + traffic.make_conversations("multi", options.seed, options.rate / 2, options.seconds),
        key=lambda c: c.start,
    )
    async with traffic.new_session() as session:
        servers = [processes.free_port() for _ in range(options.servers)]
        running = [serve(options, folder, model, block, port) for port in servers]
        for port, process in zip(servers, running):
            await traffic.await_answer(traffic.Client(session, f"http://127.0.0.1:{port}", MODEL), process, START)
        port, admin = processes.free_port(), processes.free_port()
        client = traffic.Client(session, f"http://127.0.0.1:{port}", MODEL, options.usage, {"allowed_token_ids": list_words(model)})
        picker = start_picker(options, folder, port, admin, servers)
        await traffic.await_answer(client, picker)
        looks, begin = [], time.monotonic()
        watch = asyncio.create_task(watch_queues(session, servers, looks))
        play = asyncio.create_task(traffic.play_all([client], conversations, begin))
        await asyncio.sleep(options.settle)
        before, offset = await read_hits(session, admin, servers), picker.log.stat().st_size
        await play
        await asyncio.sleep(2)
        watch.cancel()
        after, prompts = await read_hits(session, admin, servers), compare_prompts(picker.log, offset, servers)
    answers = client.answers
    failed = [answer.error for answer in answers if answer.error]
    return {
        "case": name,
        "servers": [compare_hits(*pair) | {"prompt": prompt} for *pair, prompt in zip(before, after, prompts)],
        "n": len(answers),
        "failed": len(failed),
        "errors": sorted(set(failed)),
        "late": 1000 * statistics.mean(answer.late for answer in answers),
        "first": 1000 * statistics.mean([answer.first - answer.start for answer in answers if not answer.error] or [0]),
        "looks": len(looks),
        "queued": sum(queued for _, queued in looks),
        "idle": sum(all(pair[0]) and all(pair[1]) for pair in zip(looks, looks[1:])),
    }


def compare_hits(before, after):
    """Returns hit rates in percent: between two readings, and until the second one."""
    late = [end - start for start, end in zip(before, after)]
    (expected, real), (expected_all, real_all) = (
        [100 * hits / max(tokens, 1) for hits, tokens in (counts[:2], counts[2:])] for counts in (late, after)
    )
    return {"expected": expected, "real": real, "expected_all": expected_all, "real_all": real_all}


def print_tables(rows):
    tables.print_table(
        f"Hit rates in %; the goal is a difference of at most {GOAL} points after the start",
        [
            "case",
            "server",
            "after the start: expected",
            "real",
            "points",
            "whole run: expected",
            "real",
            "picker's prompt tokens / vLLM's",
            "",
        ],
        (
            [row["case"], number, *(f"{server[key]:.1f}" for key in ("expected", "real")), f"{server['expected'] - server['real']:+.1f}"]
            + [*(f"{server[key]:.1f}" for key in ("expected_all", "real_all")), f"{server['prompt']:.2f}"]
            + ["ok" if abs(server["expected"] - server["real"]) <= GOAL else "**off**"]
            for row in rows
            for number, server in enumerate(row["servers"])
        ),
    )
    tables.print_table(
        f"Looks at the queues, every {STEP} s; idle: twice in a row, a server had no request while another one queued",
        ["case", "requests", "failed", "client late ms", "TTFT mean ms", "looks", "queued", "idle"],
        (
            [row["case"], row["n"], " ".join([str(row["failed"]), *row["errors"]]), f"{row['late']:.0f}", f"{row['first']:.0f}"]
            + [row["looks"], row["queued"], row["idle"]]
            for row in rows
        ),
    )


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="folder with endpoint-picker")
    parser.add_argument(
        "--folder", type=Path, help="new folder for models, logs and rows.json; default: vllm-<time> in the folder of --bin"
    )
    parser.add_argument("--models", nargs="+", default=["plain", "hybrid"], choices=["plain", "hybrid"])
    parser.add_argument("--bytes", nargs="+", type=int, default=[3, 5], help="mean length of a token")
    parser.add_argument("--blocks", nargs="+", type=int, default=[32, 128], help="--block-size of vLLM")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=90, help="time in which requests arrive")
    parser.add_argument("--settle", type=float, default=60, help="seconds after which the hit rates are compared")
    parser.add_argument("--rate", type=float, default=2, help="requests per second, half of them shared prefixes and half conversations")
    parser.add_argument("--minutes", type=float, default=60, help="limit of the whole run: later cases are left out")
    parser.add_argument("--sequences", type=int, default=8, help="--max-num-seqs of vLLM")
    parser.add_argument("--cache-tokens", type=int, default=0, help="size of each KV cache; 0: 1 GiB, more than is used")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--details", action=argparse.BooleanOptionalAction, default=True, help="servers report cached tokens")
    parser.add_argument("--usage", action=argparse.BooleanOptionalAction, default=True, help="clients ask for the numbers of tokens")
    options = parser.parse_args()
    options.folder = (options.folder or options.bin / time.strftime("vllm-%Y%m%d-%H%M%S")).resolve()
    return options


async def run_cases(options, rows):
    cases = itertools.product(options.models, options.bytes, options.blocks)
    run, least = functools.partial(run_case, options), options.seconds + traffic.TIMEOUT
    async for row in processes.run_in_turn(cases, run, options.minutes, least, (signal.SIGTERM, signal.SIGKILL)):
        rows.append(row)
        rates = (f"expected {server['expected']:.1f}, real {server['real']:.1f}" for server in row["servers"])
        print(f"{row['case']}: failed {row['failed']} of {row['n']}", *rates, sep="; ", flush=True)


def main():
    options, rows = parse_options(), []
    try:
        asyncio.run(run_cases(options, rows))
    except (KeyboardInterrupt, asyncio.CancelledError, asyncio.TimeoutError) as error:
        print(f"ended early: {type(error).__name__}", file=sys.stderr)
    finally:
        if rows:
            (options.folder / "rows.json").write_text(json.dumps(rows, indent=1))
            print_tables(rows)


if __name__ == "__main__":
    main()
