"""From a row to integers: bounds, scales, feature maps, codes, the slot of a row, and the encoder that ties them.

Slots, codes and feature maps are drawn without a look at any row.
"""
