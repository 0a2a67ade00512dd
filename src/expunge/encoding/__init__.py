"""From a row to integers: bounds, feature maps, codes, randomness, and the slot that a row gets."""
