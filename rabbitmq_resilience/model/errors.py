"""Define the error that clusters raise."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster could not be brought to the requested state. The text names the node, its last observed state, and
    the log to read."""


class WrongClusterError(ClusterError):
    """The cluster is not the one that the file means, or not as the file says; nothing was done."""


class NotWholeError(WrongClusterError):
    """A node does not run, or reports a partition; the text says what mends it."""


class NotPlayableError(Exception):
    """The cluster cannot play the scenario, or does not permit it; the text says why."""
