"""What a vault of many rows takes: processor time, memory, bytes; one process beside several workers."""
