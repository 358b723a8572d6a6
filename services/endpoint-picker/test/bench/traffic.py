"""Conversations, and a client that plays them without retries and counts what it sees."""

import asyncio
import collections
import json
import pydoc_data.topics
import random
import re
import time
from dataclasses import dataclass, field

import aiohttp

THINK_TIME = 1  # seconds between an answer and the next turn
TIMEOUT = 60  # seconds of one request
ATTEMPTS = 10  # of a turn after the first
COUNTS = collections.Counter(re.findall(r"[a-z]{2,}", " ".join(pydoc_data.topics.topics.values())))
WORDS = sorted(word for word, count in COUNTS.items() if count >= 20)  # nearly all are one token of a large vocabulary


@dataclass
class Conversation:
    start: float  # seconds after the start of the run
    system: str
    turns: list  # of pairs: the text of the user, the tokens of the answer


@dataclass
class Answer:
    conversation: Conversation
    start: float
    first: float = 0
    end: float = 0
    late: float = 0  # seconds from the time when the request was due to its start
    server: str = ""
    text: str = ""
    error: str = ""


def make_conversations(workload, seed, rate, seconds):
    """Returns conversations that have a mean of rate requests per second."""
    rng = random.Random(f"{workload} {seed}")

    def write(low, high):
        return " ".join(rng.choices(WORDS, k=rng.randint(low, high)))

    def shared():
        return rng.choices(prefixes, weights)[0], [(write(80, 220), rng.randint(32, 96))]

    def multi():
        return common, [(write(100, 600), rng.randint(32, 96)) for _ in range(rng.randint(2, 5))]

    def mixed():
        return "", [(write(3000, 5000) if rng.random() < 0.15 else write(80, 220), rng.randint(32, 96))]

    prefixes = [write(1500, 1500) for _ in range(60)]
    weights = [1 / (i + 1) for i in range(len(prefixes))]  # Zipf's law
    common = write(200, 200)
    make, turns = {"shared": (shared, 1), "multi": (multi, 3.5), "mixed": (mixed, 1)}[workload]
    conversations, start = [], rng.expovariate(rate / turns)
    while start < seconds:
        conversations.append(Conversation(start, *make()))
        start += rng.expovariate(rate / turns)
    return conversations


async def ask(client, messages, tokens, answer):
    """Sends one request and fills in the answer."""
    body = {
        "model": client.model,
        "messages": messages,
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": client.usage},
    } | client.parameters
    done = False
    try:
        async with client.session.post(client.url + "/v1/chat/completions", json=body) as response:
            if response.status != 200:
                answer.error = f"status {response.status}"
            async for line in response.content:
                if line.startswith(b"data: [DONE]"):
                    done = True
                elif line.startswith(b"data: "):
                    read_event(json.loads(line[len("data: ") :]), answer)
        if not done and not answer.error:
            answer.error = "cut"
    except (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError, ValueError) as error:
        answer.error = type(error).__name__
    answer.end = time.monotonic()


def read_event(event, answer):
    if "error" in event:
        answer.error = "error event"
    answer.server = event.get("system_fingerprint") or answer.server
    for choice in event.get("choices", []):
        if text := choice["delta"].get("content"):
            answer.first = answer.first or time.monotonic()
            answer.text += text


@dataclass
class Client:
    """Plays conversations to one URL. A failed first turn ends its conversation; later turns are asked again after the think time."""

    session: aiohttp.ClientSession
    url: str
    model: str
    usage: bool = True  # asks for the numbers of tokens
    parameters: dict = field(default_factory=dict)  # more of each request
    answers: list = field(default_factory=list)

    async def play(self, conversation, due):
        messages = [{"role": "system", "content": conversation.system}] if conversation.system else []
        for turn, (text, tokens) in enumerate(conversation.turns):
            messages.append({"role": "user", "content": text})
            for _ in range(1 if turn == 0 else ATTEMPTS):
                await asyncio.sleep(max(0, due - time.monotonic()))
                answer = Answer(conversation, time.monotonic())
                answer.late = answer.start - due
                await ask(self, messages, tokens, answer)
                self.answers.append(answer)
                due = answer.end + THINK_TIME
                if not answer.error:
                    break
            else:
                return
            messages.append({"role": "assistant", "content": answer.text})


async def play_all(clients, conversations, begin):
    """Plays the same conversations to all clients at the same times. Each time, another client is the first."""
    tasks = []
    for number, conversation in enumerate(conversations):
        await asyncio.sleep(max(0, begin + conversation.start - time.monotonic()))
        for i in range(len(clients)):
            client = clients[(number + i) % len(clients)]
            tasks.append(asyncio.create_task(client.play(conversation, begin + conversation.start)))
    await asyncio.gather(*tasks)


def new_session():
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=TIMEOUT))


async def await_answer(client, process, patience=120):
    """Waits until a request of one token succeeds."""
    begin = time.monotonic()
    while time.monotonic() < begin + patience:
        process.require_running()
        answer = Answer(Conversation(0, "", []), time.monotonic())
        await ask(client, [{"role": "user", "content": "ready"}], 1, answer)
        if not answer.error:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"{client.url} does not answer: {answer.error}")


async def read_counters(session, url, *names):
    """Returns the sums of the series of metrics."""
    async with session.get(url + "/metrics") as response:
        page = await response.text()
    return [sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE)) for name in names]
