"""Make a first fault file from the evidence of an incident: broker logs, a timeline, or both."""
