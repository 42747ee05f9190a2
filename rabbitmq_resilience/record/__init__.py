"""What was seen: histories of messages, events, metrics, and the directory of a run."""
