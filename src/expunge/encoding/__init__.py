"""From a row to integers: bounds, scales, feature maps, codes, slots, and the encoder that connects them.

Slots, codes and feature maps are drawn without looking at any row.
"""
