"""What a model keeps of its rows, their ids, and what a change of rows touches.

A store is overwritten only when a change is committed, after its outcome has been computed.
"""
