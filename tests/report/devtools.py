"""Headless Chromium through its own pipe: no driver, no download, no port."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe"),
)
PATIENCE = 60.0


class Browser:
    """One process with one page; commands go in as JSON and answers and events come out."""

    def __init__(self) -> None:
        self.profile = tempfile.mkdtemp(prefix="addml-chromium-")
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        moved = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'  # Chromium reads file 3 and writes file 4
        self.process = subprocess.Popen(
            ["bash", "-c", moved, "bash", str(CHROMIUM), *FLAGS, f"--user-data-dir={self.profile}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.count, self.buffer, self.session = 0, b"", ""
        self.events: list[dict[str, Any]] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """End the process that was started, and remove its profile."""
        self.process.terminate()
        self.process.wait(PATIENCE)
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command, and its answer."""
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            more = os.read(self._in, 1 << 20)
            if not more:
                raise RuntimeError("Chromium has gone")
            self.buffer += more
        message, _, self.buffer = self.buffer.partition(b"\0")
        return dict(json.loads(message))

    # A page -------------------------------------------------------------------------------------------------

    def open(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a file and wait until its script has run."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.load(path)
        self.wait("document.documentElement.dataset.ready === 'true'")

    def load(self, path: Path) -> None:
        """Go to a file and wait until it is loaded."""
        self.go(path.resolve().as_uri())

    def go(self, address: str) -> None:
        """Go to an address and wait until it is loaded."""
        self.events.clear()
        self.send("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def wait(self, condition: str) -> None:
        """Until the expression holds."""
        end = time.monotonic() + PATIENCE
        while not self.value(condition):
            if time.monotonic() > end:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """What an expression gives in the page."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def point(self, selector: str, x: float = 0.5, y: float = 0.5, click: bool = False) -> None:
        """Move the mouse to a place within an element, in shares of its size; perhaps click."""
        element = self._shown(selector)
        box = self.value(f"{element}.getBoundingClientRect().toJSON()")
        at = {"x": box["left"] + x * box["width"], "y": box["top"] + y * box["height"]}
        self.send("Input.dispatchMouseEvent", type="mouseMoved", **at)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.send("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def _shown(self, selector: str) -> str:
        """The element, scrolled to."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{element}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return element

    def focus(self, selector: str) -> None:
        """Give an element the focus."""
        self.value(f"{self._shown(selector)}.focus({{preventScroll: true}})")

    def press(self, key: str) -> None:
        """A key for the element that has the focus."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def complaints(self) -> list[str]:
        """Errors and warnings of the page since it was opened."""
        self.value("1")
        found = []
        for event in self.events:
            params = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(str(params["exceptionDetails"]))
                case "Runtime.consoleAPICalled":
                    found.append(str(params["args"]))
                case "Log.entryAdded":
                    found.append(str(params["entry"]))
        return found

    def requests(self) -> list[str]:
        """Every address that the page asked for since it was opened."""
        self.value("1")
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """The page as an image."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page as printed on A4."""
        self.send("Emulation.setEmulatedMedia", media="")
        printed = self.send("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)
        return base64.b64decode(printed["data"])
