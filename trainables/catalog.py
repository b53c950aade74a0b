"""METHODS: the only list of methods. A new method is one file in `trainables/methods/` and one entry here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from trainables.contract import Method
from trainables.methods.vje import VJE

METHODS: Mapping[str, type[Method]] = MappingProxyType({"vje": VJE})
