"""Show results to people: the page of a run, the page of all runs, and the lines at a terminal."""
