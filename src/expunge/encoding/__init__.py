"""From a row to integers: bounds, feature maps, codes, the slot that a row gets, and the encoder that ties them."""
