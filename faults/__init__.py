"""What breaks: one fault a file, targets, schedules, fault files and the nemesis."""
