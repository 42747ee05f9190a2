"""Claim the folders and ports of a cluster on this machine, and release them even if the run crashes."""
