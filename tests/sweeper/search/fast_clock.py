"""An event loop that needs no time to wait: tests of timeouts end at once."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class FastClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps ahead instead of sleeping."""

    def __init__(self) -> None:
        super().__init__(_Selector(self))
        self.now = 0.0

    def time(self) -> float:
        return self.now


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: FastClockLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._loop.now += timeout or 0.0
        return super().select(0)


def play(scene: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on such a loop, for at most 60 seconds of its clock."""
    with asyncio.Runner(loop_factory=FastClockLoop) as runner:
        runner.run(asyncio.wait_for(scene, 60))
