"""From a row to integers: bounds, feature maps, codes, the slot that a row gets, and the encoder that ties them.

Slots, codes and feature maps are drawn without a look at any row.
"""
