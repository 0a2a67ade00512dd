"""The files of a vault: which of them count, what they hold, and how rows and owners are overwritten in place.

What is read is checked: a damaged or foreign file is refused.
"""
