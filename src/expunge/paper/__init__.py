"""A reproduction of *Coded Machine Unlearning* by Aldaghri and others: every experiment, figure and claim.

`experiments` describes the experiments, `runners` runs them on real and drawn data (`data`), `runs` distributes them
over processes and keeps finished results, `claims` checks the tables, `figures` draws them, and `report` puts
everything on one page. The algorithms are those of the package: none is implemented again here.
"""
