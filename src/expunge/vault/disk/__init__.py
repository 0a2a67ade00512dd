"""The files of a vault: which of them count, what they hold, and how rows and their owners are overwritten in place.

Everything that is read is checked: a damaged or foreign file is refused.
"""
