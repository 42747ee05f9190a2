"""Provide programs: the user's own, otherwise a package of the distribution, unpacked into a folder of ``.tools/``.

Not every scenario needs them, so set-up goes on if one cannot be provided.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.extensions.setup import debian
from rabbitmq_resilience.extensions.setup.setup_tasks import Missing, SetupTask, within_root
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed

_MISSING = """\
{title} is needed for {needed_for}, and could not be provided:
  {variable}: not set
  {package} on PATH: not found
  package of the distribution: {why}
How to provide it:
  Debian, Ubuntu   a package source that has {package} (it is only downloaded, never installed)
  macOS            brew install {package}
  elsewhere        put the program {package} on PATH, or name it in {variable}"""


@dataclass(frozen=True)
class Packaged:
    """A program and the ``package`` of that name.

    ``wanted``: a pattern of the names of the packages to unpack, out of the package and its dependencies. ``program``:
    the path of the program in the unpacked folder. ``prove`` starts it there, and raises ``Failed`` if it does not run.
    ``find(tools=...)`` returns the program that a run would use; the environment variable ``variable`` may name it."""

    title: str
    needed_for: str
    package: str
    variable: str
    wanted: str
    program: str
    find: Callable[..., Path]
    prove: Callable[[Path], None]

    @property
    def step(self) -> SetupTask:
        return SetupTask(self.title, self.found, self.make, optional=True)

    def found(self) -> str | None:
        """Return the program that a run would use now, or None if there is none.

        Raise ``Missing`` if the environment names a program that cannot be used."""
        try:
            return within_root(self.find(tools=TOOLS))
        except ToolMissingError as error:
            if os.environ.get(self.variable):
                raise Missing(str(error)) from error
            return None

    def make(self) -> str:
        """Unpack the package; return where its program is. Raise ``Missing`` if that fails."""
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
