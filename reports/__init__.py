"""What was seen: the history store, run directories and the report pages."""
