"""From settings to a blueprint, from a blueprint and rows to a trained state, and how a change of rows changes it."""
