"""From cells to floats, with pyarrow: arrays of Arrow (`arrow`), dates (`times`), a cell of each kind (`reading`), ids
(`ids`), and whole record batches (`encode`). A cell is read without a look at any other row.
"""
