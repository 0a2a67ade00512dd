"""What is kept of the rows, whose they are, and what a change of rows touches.

A store is overwritten only when a change is committed, after all that it leads to was computed.
"""
