"""What people have of an incident (broker logs, a timeline), and how a first fault file is made of it."""
