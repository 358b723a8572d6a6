"""Child processes of a benchmark, with their output in files. They end with the benchmark."""

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import time

TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A child process with a session of its own, so that its children are known."""

    started = []

    def __init__(self, log, command, environment=None):
        self.log = log
        with open(log, "ab") as output:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=end_with_parent,
                env=os.environ | (environment or {}),
            )
        self.started.append(self)

    def require_running(self):
        if self.child.poll() is not None:
            with open(self.log, "rb") as log:
                tail = log.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"{self.child.args[0]} ended with {self.child.returncode}:\n{tail}")

    async def terminate(self):
        """Sends SIGTERM and waits for the end, at most two minutes."""
        self.child.terminate()
        await asyncio.to_thread(self.child.wait, 120)

    def kill(self, signals=(signal.SIGKILL,), patience=10):
        for number in signals:
            try:
                os.killpg(self.child.pid, number)
                self.child.wait(patience)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass

    def usage(self):
        """Returns the seconds of processor time and the peak of the resident MB of the session."""
        seconds = peak = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
                if int(fields[3]) != self.child.pid:
                    continue
                with open(f"/proc/{pid}/status") as status:
                    peak += sum(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
                seconds += (int(fields[11]) + int(fields[12])) / TICKS
            except (FileNotFoundError, ProcessLookupError):
                pass
        return seconds, peak / 1024


def kill_all(signals=(signal.SIGKILL,)):
    """Ends all processes that were started. The first signal reaches all of them before any is waited for."""
    for process in Process.started:
        process.kill(signals[:1], patience=0)
    for process in Process.started:
        process.kill(signals)
    Process.started.clear()


async def run_in_turn(cells, run, minutes, least, signals=(signal.SIGKILL,)):
    """Yields what run returns for each cell, and ends the processes of each. After some minutes it ends.

    Cells that would have less than the least seconds are left out. A signal to the benchmark cancels it.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    for number in signal.SIGINT, signal.SIGTERM:
        loop.add_signal_handler(number, task.cancel)
    deadline = time.monotonic() + 60 * minutes
    for cell in cells:
        left = deadline - time.monotonic()
        if left < least:
            print("left out, as the time is over:", *cell, flush=True)
            continue
        try:
            result = await asyncio.wait_for(run(*cell), left)
        finally:
            kill_all(signals)
        yield result


def machine_times():
    """Returns the busy and all processor time of the machine, in ticks."""
    with open("/proc/stat") as stat:
        times = [int(field) for field in stat.readline().split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)
