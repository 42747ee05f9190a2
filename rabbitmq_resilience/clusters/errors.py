"""What goes wrong with clusters."""

from __future__ import annotations


class ClusterError(Exception):
    """The cluster could not be brought to the asked state; the text says which node, what was last
    seen, and which log to read."""
