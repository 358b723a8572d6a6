"""Compares the proxy listener of the endpoint-picker with sglang-router, vllm-router and nginx.

In a cell, each balancer has its own emulated model servers, and all balancers get the same requests at the same times, so they share the
disturbances of the machine. Servers and balancers start cold. The steps of the servers are slow, so that servers are the bottleneck.
"""

import argparse
import asyncio
import functools
import itertools
import json
import re
import shlex
import shutil
import statistics
import sys
import time
from pathlib import Path

import processes
import tables
import traffic

MODEL = "m"
# 20 % of the speed of Llama 3.1 8B on an H100: steps of 30 ms, and 200 µs for a prompt token.
SERVER_FLAGS = ["--profile=realistic", "--speed=0.2", "--stream-interval=8"]
# Requests per second that four such servers sustain.
CAPACITY = {"shared": 22, "multi": 20, "mixed": 13}
CELLS = ["shared-60", "multi-60", "mixed-60", "shared-90", "multi-90", "mixed-90", "fault", "restart", "roll"]
SPECIAL = {"fault": "shared-50", "restart": "multi-60", "roll": "multi-60"}
COUNTERS = ["vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"]


def fairlead(options, folder, port, admin, servers):
    file = folder / "endpoints.yaml"
    file.write_text("endpoints:\n" + "".join(f"- {{name: server-{port}, address: 127.0.0.1, port: {port}}}\n" for port in servers))
    return [
        options.bin / "endpoint-picker",
        f"--endpoints-file={file}",
        f"--proxy-bind-address=127.0.0.1:{port}",
        "--grpc-port=0",
        "--grpc-health-port=0",
        f"--metrics-bind-address=127.0.0.1:{admin}",
        "--health-probe-bind-address=127.0.0.1:0",
        *(flag.format(folder=folder) for flag in shlex.split(options.fairlead_flags)),
    ]


def router(*command):
    def build(options, folder, port, admin, servers):
        urls = [f"http://127.0.0.1:{server}" for server in servers]
        return [
            Path(sys.executable).parent / command[0],
            *command[1:],
            "--host=127.0.0.1",
            f"--port={port}",
            f"--prometheus-port={admin}",
            "--worker-urls",
            *urls,
        ]

    return build


def nginx(options, folder, port, admin, servers):
    temporary = "".join(f"{name}_temp_path {folder}/{name};\n" for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    upstream = "".join(f"server 127.0.0.1:{server};\n" for server in servers)
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off;\npid {folder}/nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}upstream servers {{\n{upstream}}}\n"
        f"server {{\nlisten 127.0.0.1:{port};\nlocation / {{\nproxy_pass http://servers;\nproxy_buffering off;\n}}\n}}\n}}\n"
    )
    return [NGINX, "-p", folder, "-e", "stderr", "-c", file]


NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/sbin")
BALANCERS = {"fairlead": fairlead, "sglang": router("sglang-router", "launch"), "vllm": router("vllm-router")} | (
    {"nginx": nginx} if NGINX else {}
)


class Balancer:
    """A balancer with its own servers."""

    def __init__(self, options, name, folder, session):
        self.options, self.name, self.folder, self.session = options, name, folder, session
        folder.mkdir(parents=True)
        self.servers, self.seconds, self.peak, self.switched, self.dark = [], 0, 0, None, ""
        for number in range(options.servers):
            port = processes.free_port()
            self.servers.append(port)
            processes.Process(
                folder / f"server-{number}.log",
                [
                    options.bin / "modelserver",
                    f"--port={port}",
                    f"--model={MODEL}",
                    f"--pod-name=server-{port}",
                    *SERVER_FLAGS,
                    f"--enable-prompt-tokens-details={str(options.details).lower()}",
                ],
            )
        self.client = traffic.Client(session, "", MODEL, options.usage)
        self.launch(processes.free_port())

    def launch(self, port):
        self.port, self.admin = port, processes.free_port()
        command = BALANCERS[self.name](self.options, self.folder, port, self.admin, self.servers)
        self.process = processes.Process(self.folder / "balancer.log", command)

    async def await_ready(self):
        url = f"http://127.0.0.1:{self.port}"
        await traffic.await_answer(traffic.Client(self.session, url, MODEL), self.process)
        self.client.url = url

    def measure(self):
        seconds, peak = self.process.usage()
        self.seconds, self.peak = self.seconds + seconds, max(self.peak, peak)

    async def restart(self, roll):
        """Replaces the process: by a new one on the same port when the old one has ended, or with roll by one that starts before."""
        begin = time.monotonic()
        self.measure()
        old = self.process
        if roll:
            self.launch(processes.free_port())
            await self.await_ready()
            self.switched = time.monotonic()
            await old.terminate()
            return
        await old.terminate()
        self.switched = time.monotonic()
        self.launch(self.port)
        await self.await_ready()
        self.dark = f"{self.switched - begin:.1f} + {time.monotonic() - self.switched:.1f}"

    def count_kept(self):
        """Returns how many conversations kept their server, of those that crossed the restart."""
        pairs, last = [], {}
        for answer in sorted((a for a in self.client.answers if not a.error), key=lambda a: a.start):
            before = last.get(id(answer.conversation))
            if before and before.start < self.switched <= answer.start:
                pairs.append(before.server == answer.server)
            last[id(answer.conversation)] = answer
        return sum(pairs), len(pairs)

    async def count_tokens(self):
        pages = [await traffic.read_counters(self.session, f"http://127.0.0.1:{port}", *COUNTERS) for port in self.servers]
        return [sum(column) for column in zip(*pages)]

    async def read_learned(self, hit):
        """Returns what the picker learned of its servers, which had a hit rate."""
        async with self.session.get(f"http://127.0.0.1:{self.admin}/debug/pools.json") as response:
            pool = (await response.json())["pools"][0]
        tokens, expected = (sum(endpoint["prefixTokens"][key] for endpoint in pool["endpoints"]) for key in ("prompt", "expected"))
        return {
            "token": pool["speed"]["perTokenSeconds"] * 1e6,
            "step": pool["speed"]["baseSeconds"] * 1e3,
            "points": 100 * expected / max(tokens, 1) - hit,
        }


async def set_faults(balancer, faults):
    """Replaces the faults of one server."""
    async with balancer.session.post(f"http://127.0.0.1:{balancer.servers[1]}/admin/faults", json=faults) as response:
        response.raise_for_status()


async def disturb(cell, balancers, begin, seconds):
    if cell == "fault":
        for part, faults in (1 / 3, {"answer": "500"}), (2 / 3, {}):
            await asyncio.sleep(begin + seconds * part - time.monotonic())
            await asyncio.gather(*(set_faults(balancer, faults) for balancer in balancers))
    elif cell in ("restart", "roll"):
        await asyncio.sleep(begin + seconds / 2 - time.monotonic())
        await asyncio.gather(*(balancer.restart(cell == "roll") for balancer in balancers))


async def run_cell(options, seed, cell):
    """Returns a row of figures for each balancer."""
    workload, load = SPECIAL.get(cell, cell).split("-")
    rate = CAPACITY[workload] * int(load) / 100 * options.servers / 4
    conversations = traffic.make_conversations(workload, seed, rate, options.seconds)
    names = options.balancers[seed % len(options.balancers) :] + options.balancers[: seed % len(options.balancers)]
    async with traffic.new_session() as session:
        balancers = [Balancer(options, name, options.folder / f"{cell}-{seed}" / name, session) for name in names]
        await asyncio.gather(*(balancer.await_ready() for balancer in balancers))
        idle = [balancer.process.usage()[0] for balancer in balancers]
        machine, begin = processes.machine_times(), time.monotonic()
        await asyncio.gather(
            traffic.play_all([balancer.client for balancer in balancers], conversations, begin),
            disturb(cell, balancers, begin, options.seconds),
        )
        busy, total = (after - before for after, before in zip(processes.machine_times(), machine))
        rows = []
        for balancer, start in zip(balancers, idle):
            balancer.measure()
            row = await summarize(balancer, balancer.seconds - start)
            rows.append(row | {"cell": cell, "seed": seed, "rate": rate, "busy": busy / total, "disturbed": cell in SPECIAL})
    return sorted(rows, key=lambda row: options.balancers.index(row["balancer"]))


async def summarize(balancer, seconds):
    answers = balancer.client.answers
    good = [answer for answer in answers if not answer.error]
    hits, queries = await balancer.count_tokens()
    first = [1000 * (answer.first - answer.start) for answer in good] or [0]
    whole = [1000 * (answer.end - answer.start) for answer in good] or [0]
    row = {
        "balancer": balancer.name,
        "n": len(answers),
        "failed": len(answers) - len(good),
        "errors": sorted({answer.error for answer in answers if answer.error}),
        "late": statistics.mean(answer.late for answer in answers),
        "first": statistics.mean(first),
        "first50": quantile(first, 0.5),
        "first99": quantile(first, 0.99),
        "whole": statistics.mean(whole),
        "whole99": quantile(whole, 0.99),
        "hit": 100 * hits / queries,
        "cpu": 1000 * seconds / len(answers),
        "memory": balancer.peak,
    }
    if balancer.switched:
        row["kept"], row["crossed"] = balancer.count_kept()
        row["dark"] = balancer.dark
    elif balancer.name == "fairlead":
        row["learned"] = await balancer.read_learned(row["hit"])
    return row


def quantile(values, part):
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True, help="folder with endpoint-picker and modelserver")
    parser.add_argument("--folder", type=Path, help="new folder for logs and rows.json; default: peers-<time> in the folder of --bin")
    parser.add_argument(
        "--cells",
        nargs="+",
        default=CELLS,
        help="fault, restart, roll, or a workload with its load in percent; default: all of " + " ".join(CELLS),
    )
    parser.add_argument("--balancers", nargs="+", default=list(BALANCERS), choices=BALANCERS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--seconds", type=float, default=36, help="time in which requests arrive in a cell")
    parser.add_argument("--servers", type=int, default=4, help="model servers of each balancer")
    parser.add_argument("--minutes", type=float, default=40, help="limit of the whole run: later cells are left out")
    parser.add_argument("--details", action=argparse.BooleanOptionalAction, default=True, help="servers report cached tokens")
    parser.add_argument("--usage", action=argparse.BooleanOptionalAction, default=True, help="clients ask for the numbers of tokens")
    parser.add_argument("--fairlead-flags", default="", help="more flags of the endpoint-picker; {folder}: a new folder for each cell")
    options = parser.parse_args()
    for cell in options.cells:
        if not re.fullmatch(rf"({'|'.join(CAPACITY)})-\d+", SPECIAL.get(cell, cell)):
            parser.error(f"no cell {cell}")
    options.folder = (options.folder or options.bin / time.strftime("peers-%Y%m%d-%H%M%S")).resolve()
    return options


async def run_cells(options, rows):
    cells = itertools.product(options.seeds, options.cells)
    run, least = functools.partial(run_cell, options), options.seconds + traffic.TIMEOUT
    async for done in processes.run_in_turn(cells, run, options.minutes, least):
        rows += done
        for row in done:
            print(
                f"{row['cell']}, seed {row['seed']}: {row['balancer']} failed {row['failed']} of {row['n']}, TTFT {row['first']:.0f} ms, "
                f"late {1000 * row['late']:.1f} ms",
                flush=True,
            )


def main():
    options, rows = parse_options(), []
    try:
        asyncio.run(run_cells(options, rows))
    except (KeyboardInterrupt, asyncio.CancelledError, asyncio.TimeoutError) as error:
        print(f"ended early: {type(error).__name__}", file=sys.stderr)
    finally:
        if rows:
            (options.folder / "rows.json").write_text(json.dumps(rows, indent=1))
            tables.print_comparison(rows)


if __name__ == "__main__":
    main()
