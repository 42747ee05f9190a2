"""Attach to existing clusters, and act on them within what their owners allow."""
