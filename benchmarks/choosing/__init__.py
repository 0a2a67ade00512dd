"""The measurements and pictures of docs/choosing.md: what each setting does to the error and to the time to forget.

They explain, they do not judge: every setting has its best penalty on the rows that it is measured on, as in a plan.
How good the plan's choice is on rows that nobody looked at is what ``make quality`` measures.
"""
