"""The protocols that clients speak. Each module has a router and translates between its protocol and `Service`."""
