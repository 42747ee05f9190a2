"""Tables that are made from the directories of many runs."""
