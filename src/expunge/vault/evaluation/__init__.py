"""Evaluation: how good predictions are, with what spread, beside simple ones; and a page that shows it.

It is given arrays, and knows nothing of vaults, models and tables. `scores` computes, `evaluation` is the answer,
`svg` and `plots` draw, `page` writes HTML.
"""
