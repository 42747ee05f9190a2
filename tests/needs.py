"""What some tests need of the machine, and others can do without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rabbitmq_resilience.tools.distributions import ToolMissingError


@contextmanager
def skipped_without() -> Iterator[None]:
    """Skips with what is missing."""
    try:
        yield
    except ToolMissingError as error:
        pytest.skip(str(error))
