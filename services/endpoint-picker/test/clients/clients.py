"""Requests of OpenAI's and Anthropic's libraries to a picker, or to a gateway that asks one.

usage: clients.py <URL> <case>...

Prints a line for each case, with what a user of the library sees: the text of an answer, and the error that ended it.
"""

import gzip
import io
import sys

import anthropic
import openai

openai_client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
anthropic_client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)


def chat(model="m", prompt="hello"):
    with openai_client.chat.completions.create(model=model, messages=[{"role": "user", "content": prompt}], stream=True) as stream:
        for chunk in stream:
            yield chunk.choices[0].delta.content or ""


def messages(model="m", prompt="hello"):
    with anthropic_client.messages.stream(model=model, max_tokens=9, messages=[{"role": "user", "content": prompt}]) as stream:
        yield from stream.text_stream


def model_of_chat(model):
    with openai_client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hello"}], stream=True) as stream:
        yield " ".join(sorted({chunk.model for chunk in stream}))


def leave(stream):
    """Closes a stream after its first text. The server lists models when it knows that."""
    yield next(stream)
    stream.close()
    yield openai_client.models.list().data[0].id


class Sound(io.RawIOBase):
    """A file of unknown size, which the library sends in chunks."""

    name = "sound.wav"
    left = 300_000

    def readable(self):
        return True

    def readinto(self, buffer):
        n = min(len(buffer), self.left)
        buffer[:n] = b"x" * n
        self.left -= n
        return n


def upload(file):
    yield openai_client.audio.transcriptions.create(model="m", file=file).text


def wrong_model():
    yield openai_client.completions.create(model="m" * 2000, prompt="hello", extra_headers={"x-llm-d-model-name-rewrite": "another"}).id


def compressed():
    body = gzip.compress(b'{"model":"m","prompt":"hello"}')
    yield openai_client.post("/completions", cast_to=object, content=body, options={"headers": {"Content-Encoding": "gzip"}})


CASES = {
    "openai-stream": chat,
    "openai-rewritten-model": lambda: model_of_chat("chat"),
    "openai-upload": lambda: upload(("sound.wav", b"x" * 300_000)),
    "openai-upload-in-chunks": lambda: upload(Sound()),
    "openai-bad-request": lambda: chat("bad-request"),
    "openai-broken": lambda: chat("broken"),
    "openai-no-answer": lambda: chat("no-answer"),
    "openai-error-event": lambda: chat("error-event"),
    "openai-too-large": lambda: chat(prompt="x" * 500_000),
    "openai-upload-too-large": lambda: upload(("sound.wav", b"x" * 500_000)),
    "openai-wrong-model": wrong_model,
    "openai-compressed": compressed,
    "openai-leaves": lambda: leave(chat("endless")),
    "anthropic-stream": messages,
    "anthropic-bad-request": lambda: messages("bad-request"),
    "anthropic-broken": lambda: messages("broken"),
    "anthropic-no-answer": lambda: messages("no-answer"),
    "anthropic-error-event": lambda: messages("error-event"),
    "anthropic-too-large": lambda: messages(prompt="x" * 500_000),
    "anthropic-leaves": lambda: leave(messages("endless")),
}


def seen(case):
    """Yields the pieces of what a user of the library sees."""
    try:
        yield from CASES[case]()
    except (openai.APIError, anthropic.APIError) as error:
        yield f"{type(error).__name__}: {error.message}"


for case in sys.argv[2:]:
    print(case, "".join(seen(case)), sep="\t", flush=True)
