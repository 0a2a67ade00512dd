"""From cells to floats, with pyarrow: arrays of Arrow (`arrow`), dates (`times`), cells of each kind (`by_kind`) and
ids (`ids`). A cell is read without a look at any other row.
"""
