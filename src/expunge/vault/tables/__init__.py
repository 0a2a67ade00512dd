"""Tables: schemas, the reading of rows, proposals, and predictions into files."""
