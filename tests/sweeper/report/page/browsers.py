"""A real browser for the tests of pages: the machine's Chromium, without a network. Tests are skipped without one."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

COMMANDS = ("chromium", "chromium-browser", "google-chrome")
SERIOUS = ("serious", "critical")
"""Impacts of axe-core's findings that no page may have."""


@dataclass
class Watched:
    """A tab, with all that it complained about or asked the network for."""

    tab: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, address: str) -> None:
        self.tab.goto(address)
        self.tab.wait_for_selector("#rows tbody tr, #training svg", state="attached")

    def see_everything(self) -> None:
        """Scroll through the page, so that every section is drawn."""
        self.tab.evaluate(
            """async () => {
              for (let y = 0; y < document.documentElement.scrollHeight; y += 500) {
                window.scrollTo(0, y);
                await new Promise((done) => setTimeout(done, 60));
              }
              window.scrollTo(0, 0);
            }"""
        )
        self.tab.wait_for_timeout(300)

    def serious_findings(self) -> list[str]:
        """What axe-core finds that keeps people from using the page."""
        axe = pytest.importorskip(
            "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
        )
        source = (Path(axe.__file__).parent / "axe.min.js").read_text()
        self.tab.evaluate(source)  # not as a script of the page, which its policy refuses
        found = self.tab.evaluate("async () => (await axe.run({resultTypes: ['violations']})).violations")
        return [
            f"{finding['id']}: {finding['nodes'][0]['html'][:200]}" for finding in found if finding["impact"] in SERIOUS
        ]


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Context with a browser. Skips the test without playwright or Chromium, or if it does not start."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    command = next(filter(None, map(shutil.which, COMMANDS)), None)
    if command is None:
        pytest.skip(f"no browser: none of {', '.join(COMMANDS)} is installed")
    with playwright.sync_playwright() as driver:
        try:
            chromium = driver.chromium.launch(executable_path=command, args=["--no-sandbox", "--disable-dev-shm-usage"])
        except playwright.Error as error:
            pytest.skip(f"no browser: {command} does not start: {str(error).splitlines()[0]}")
        with contextlib.closing(chromium):
            yield chromium


@contextlib.contextmanager
def tab(chromium: Any, *, width: int = 1280, dark: bool = False, offline: bool = True) -> Iterator[Watched]:
    """Context with a new tab, 900 pixels high."""
    scheme = "dark" if dark else "light"
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=offline)
    watched = Watched(context.new_page())
    watched.tab.set_default_timeout(20_000)
    watched.tab.on("console", lambda message: watched.complaints.append(f"{message.type}: {message.text}"))
    watched.tab.on("pageerror", lambda error: watched.complaints.append(str(error)))
    watched.tab.on("request", lambda request: watched.requests.append(request.url))
    with contextlib.closing(context):
        yield watched
