#!/usr/bin/env python3
"""Sends one completion to the endpoint that the picker chooses: client.py PICKER PROMPT."""

import json
import sys
import urllib.request


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=600).read()


picker, prompt = sys.argv[1:]
body = {"model": "m", "prompt": prompt}
pick = json.loads(post(picker + "/v1/pick", {"path": "/v1/completions", "body": json.dumps(body)}))
body["model"] = pick.get("model", body["model"])
outcome = {"id": pick["id"], "event": "failed"}
try:
    for endpoint in pick["endpoints"]:  # best first
        try:
            answer = post(f"http://{endpoint['address']}/v1/completions", body)
        except OSError:  # it cannot be reached, or answers with an error
            continue
        usage = json.loads(answer).get("usage", {})
        outcome.update(event="completed", endpoint=endpoint["address"])
        outcome.update({k: usage[k] for k in ("prompt_tokens", "completion_tokens") if k in usage})
        sys.stdout.write(answer.decode())
        break
finally:
    post(pick["outcome_url"], outcome)
