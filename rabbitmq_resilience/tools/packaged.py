"""Programs that are the user's own, otherwise a package of the distribution unpacked into a folder of ``.tools/``.

Not every scenario needs them, so set-up goes on where one cannot be had.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.tools import debian
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed
from rabbitmq_resilience.tools.steps import Missing, Step, within_root

_MISSING = """\
{title} is needed for {needed_for}, and could not be had:
  {variable}: not set
  {package} on PATH: not there
  package of the distribution: {why}
How to provide it:
  Debian, Ubuntu   a package source that has {package} (it is only downloaded, never installed)
  macOS            brew install {package}
  elsewhere        put the program {package} on PATH, or name it in {variable}"""


@dataclass(frozen=True)
class Packaged:
    """A program and the ``package`` of that name. ``wanted`` matches the packages that are unpacked of it and what it
    depends on; ``program`` is its path in the unpacked folder, which ``prove`` starts (it raises ``Failed``).
    ``find(tools=...)`` is the one that a run would use, which ``variable`` may name."""

    title: str
    needed_for: str
    package: str
    variable: str
    wanted: str
    program: str
    find: Callable[..., Path]
    prove: Callable[[Path], None]

    @property
    def step(self) -> Step:
        return Step(self.title, self.found, self.make, optional=True)

    def found(self) -> str | None:
        """What a run would use by now. Raises ``Missing`` if a program is named that cannot be used."""
        try:
            return within_root(self.find(tools=TOOLS))
        except ToolMissingError as error:
            if os.environ.get(self.variable):
                raise Missing(str(error)) from error
            return None

    def make(self) -> str:
        """Unpack it. Raises ``Missing``."""
        if not debian.available():
            raise self._missing("there is no apt-get here")
        place = TOOLS / self.package
        try:
            debian.provide(self.package, wanted=self.wanted, place=place, prove=self.prove)
        except Failed as error:
            raise self._missing(str(error).replace("\n", "\n    ")) from error
        return within_root(place / self.program)

    def _missing(self, why: str) -> Missing:
        return Missing(_MISSING.format(why=why, **vars(self)))
