"""What can be said: the model of a scenario, fault files, their schema and their documentation."""
