"""Files on disk: a model as one file of plain arrays and JSON, and writing files safely. A file is untrusted input."""
