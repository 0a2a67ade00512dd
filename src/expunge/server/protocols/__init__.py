"""What systems out there speak, each in a module of its own with a router; all of them ask one `Service`."""
