"""Speed of the server, against `anomaly_score` and a bare Starlette endpoint that parses the same JSON.

`python -m benchmarks serving` writes the table of docs/results/serving.md: one model, one run, real servers on
loopback. Times are medians of interleaved rounds. `python -m benchmarks.serving N` prints it, with N requests for the
memory.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import addml
from addml.compute import blas_threads
from benchmarks.timing import markdown

BARE = """
import json, socket, sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def parse(request):
    return JSONResponse({"rows": len(json.loads(await request.body())["rows"])})

listening = socket.create_server(("127.0.0.1", 0))
listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=listening.detach())
print(f"http://127.0.0.1:{listening.getsockname()[1]}/?token=", flush=True)
app = Starlette(routes=[Route("/{path:path}", parse, methods=["POST"])])
uvicorn.Server(uvicorn.Config(app, http="h11", log_level="critical")).run(sockets=[listening])
"""
TOKEN = "t" * 32
PATH = "/api/v1/models/shop/score"


def start(command: list[str]) -> tuple[subprocess.Popen[str], str]:
    """A running server, and its host and port."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "ADDML_TOKEN": TOKEN})
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1].removeprefix("http://").partition("/")[0]


def asking(address: str, body: bytes) -> Callable[[], tuple[int, float]]:
    """One request on a connection that stays open: its status and seconds."""
    connection = http.client.HTTPConnection(address, timeout=30)
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}

    def ask() -> tuple[int, float]:
        began = time.perf_counter()
        connection.request("POST", PATH, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, time.perf_counter() - began

    return ask


def medians(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each, measured in turn."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            taken[name].append(time.perf_counter() - began)
    return {name: float(np.median(times)) for name, times in taken.items()}


def overload(address: str, body: bytes, rate: float, seconds: float, clients: int = 32) -> dict[str, float]:
    """The answers to requests sent at this rate, whether or not earlier ones were answered."""
    found: list[tuple[int, float]] = []
    count, begin = int(rate * seconds), time.perf_counter() + 0.2

    def client(own: int) -> None:
        ask = asking(address, body)
        for number in range(own, count, clients):
            time.sleep(max(0.0, begin + number / rate - time.perf_counter()))
            found.append(ask())

    threads = [threading.Thread(target=client, args=(own,)) for own in range(clients)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    accepted = [taken for status, taken in found if status == 200]
    refused = sum(status == 503 for status, _ in found)
    if len(accepted) + refused != count:
        raise SystemExit(f"statuses: {sorted({status for status, _ in found})}; expected 200 and 503 alone")
    slowest = max(taken for _, taken in found)
    p99 = 1000 * float(np.percentile(accepted, 99))
    return {"accepted": len(accepted), "refused": refused, "slowest": slowest, "p99": p99}


def resident(pid: int) -> float:
    """Resident memory of a process in megabytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def serving(requests: int = 100_000) -> str:
    """The table; memory is measured over this number of requests."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.standard_normal((5000, 10)), columns=[f"x{i}" for i in range(10)])
    frame["kind"] = random.choice(list("abcd"), 5000)
    with tempfile.TemporaryDirectory() as folder:
        detector = addml.ADDML(random_state=0).fit(frame)
        detector.save(f"{folder}/shop.model")
        served, address = start([sys.executable, "-m", "addml", "serve", f"{folder}/shop.model", "--port", "0"])
        bare, bare_address = start([sys.executable, "-c", BARE])
        try:
            rows = [*speed(detector, frame, address, bare_address), *load(frame, served.pid, address, requests)]
        finally:
            for one in (served, bare):
                one.terminate()
                one.wait(30)
    return markdown(["10 numbers and a category a row", "measured", "goal"], rows)


def speed(detector: addml.ADDML, frame: pd.DataFrame, address: str, bare: str) -> Iterator[list[str]]:
    """One row and a thousand, beside `anomaly_score` and the bare endpoint."""
    for count, rounds in ((1, 300), (1000, 30)):
        rows = frame[:count]
        body = json.dumps({"rows": rows.to_dict("records")}).encode()
        plain = json.dumps({"rows": rows.to_dict("records"), "reasons": 0}).encode()
        ways = {
            "served": asking(address, body),
            "plain": asking(address, plain),
            "bare": asking(bare, body),
            "alone": partial(detector.anomaly_score, rows),
        }
        with blas_threads(1):
            medians(ways, 5)
            took = medians(ways, rounds)
        goal = took["bare"] + 1.5 * took["alone"] if count == 1 else 2 * took["alone"]
        noun = "1 row" if count == 1 else f"{count:,} rows"
        yield [f"{noun} with reasons, ms", f"{1000 * took['served']:.2f}", f"at most {1000 * goal:.2f}"]
        yield [f"{noun} without reasons, ms", f"{1000 * took['plain']:.2f}", f"at most {1000 * goal:.2f}"]
        yield ["`anomaly_score` of the same, ms", f"{1000 * took['alone']:.2f}", ""]
        yield ["bare Starlette endpoint that parses the same JSON, ms", f"{1000 * took['bare']:.2f}", ""]


def load(frame: pd.DataFrame, pid: int, address: str, requests: int) -> Iterator[list[str]]:
    """The server at twice the rate that one connection gets answered, and its memory."""
    body = json.dumps({"rows": frame[:1].to_dict("records")}).encode()
    ask = asking(address, body)
    unloaded = [ask()[1] for _ in range(500)]
    p99, rate = 1000 * float(np.percentile(unloaded, 99)), 2 / float(np.mean(unloaded))
    found = overload(address, body, rate, 5)
    yield ["p99 of a row without other load, ms", f"{p99:.1f}", ""]
    yield [f"p99 of accepted requests at twice the load ({rate:.0f}/s), ms", f"{found['p99']:.1f}", f"< {10 * p99:.1f}"]
    yield ["slowest answer or 503 at that load, s", f"{found['slowest']:.2f}", "< 1"]
    yield ["accepted and refused (503) at that load", f"{found['accepted']:.0f} and {found['refused']:.0f}", ""]
    before = resident(pid)
    for _ in range(requests):
        ask()
    yield [f"memory before and after {requests:,} requests, MB", f"{before:.0f} and {resident(pid):.0f}", "equal"]


if __name__ == "__main__":
    print(serving(int(sys.argv[1]) if sys.argv[1:] else 10_000))
