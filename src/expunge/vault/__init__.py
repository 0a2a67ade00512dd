"""The vault: a trained model that lives on disk. Here: how it reads tables."""
