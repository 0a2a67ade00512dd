"""Evaluation: the quality of predictions, with intervals, beside simple predictions; and a page that shows it.

It is given arrays, and knows nothing of vaults, models and tables. `scores` computes, `evaluation` is the result, and
`report` draws the charts of its page.
"""
