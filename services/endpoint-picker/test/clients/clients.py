"""Requests of OpenAI's and Anthropic's libraries to a picker.

usage: clients.py <URL> <case>

Prints what a user of the library sees: the text of an answer, or the error with its status.
"""

import io
import sys

import anthropic
import openai

url, case = sys.argv[1:]
openai_client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
anthropic_client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def chat(prompt):
    return openai_client.chat.completions.create(model="m", messages=[{"role": "user", "content": prompt}], stream=True)


def messages(prompt):
    return anthropic_client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": prompt}])


def openai_stream(prompt="hello"):
    print("".join(chunk.choices[0].delta.content or "" for chunk in chat(prompt)))


def anthropic_stream(prompt="hello"):
    with messages(prompt) as stream:
        print("".join(stream.text_stream))


def openai_upload():
    sound = io.BytesIO(b"x" * 300_000)
    sound.name = "sound.wav"
    print(openai_client.audio.transcriptions.create(model="m", file=sound).text)


CASES = {
    "openai-stream": openai_stream,
    "anthropic-stream": anthropic_stream,
    "openai-upload": openai_upload,
    "openai-too-large": lambda: openai_stream("x" * 500_000),
    "anthropic-too-large": lambda: anthropic_stream("x" * 500_000),
    "openai-wrong-model": lambda: openai_client.completions.create(
        model="m" * 2000, prompt="hello", extra_headers={"x-llm-d-model-name-rewrite": "another"}
    ),
}

try:
    CASES[case]()
except (openai.APIStatusError, anthropic.APIStatusError) as error:
    print(type(error).__name__, error.status_code, error.message, sep=": ")
