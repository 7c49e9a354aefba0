"""What is counted and timed, and the report that explains it."""
