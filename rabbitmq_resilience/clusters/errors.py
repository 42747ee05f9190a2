"""Define the error that clusters raise."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster could not be brought to the requested state. The text names the node, its last observed state, and
    the log to read."""
