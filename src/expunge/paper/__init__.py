"""The paper, reproduced: every experiment, figure and claim of *Coded Machine Unlearning*, by Aldaghri and others.

Experiments are descriptions (`experiments`), run by three runners (`tradeoff`, `influence`, `warmstart`) on real and
drawn data (`data`); `runs` spreads them over processes and keeps what is finished; `claims` judges the tables,
`figures` draws them and `report` puts it all on one page. The algorithms are the core's: none is written again here.
"""
