"""Draw random schedules, play them, and shrink those that fail."""
