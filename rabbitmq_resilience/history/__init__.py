"""The record of a run: histories of messages, events, metrics, and the run directory."""
