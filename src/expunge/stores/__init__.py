"""What is kept of the rows, whose they are, and what a change of rows touches."""
