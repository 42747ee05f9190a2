"""Turn errors of the container engine into sentences for people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from docker.errors import DockerException

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.docker_client import is_gone, reason


class EngineGoneError(ClusterError):
    """The container engine has ended: no program listens at its address."""


@contextmanager
def naming(failed: str) -> Iterator[None]:
    """Turn errors of the engine in the block into a ``ClusterError``: what ``failed``, and the engine's reason."""
    try:
        yield
    except (DockerException, OSError, ToolMissingError) as error:
        if is_gone(error):
            raise EngineGoneError(
                f"the container engine has ended during the session ({reason(error)}): start it, and play again. "
                f"Without it, {failed}"
            ) from error
        raise ClusterError(f"{failed}: {error if isinstance(error, ToolMissingError) else reason(error)}") from error
