"""Regression models that can forget: train on coded shards, delete any row in about a millisecond, prove it."""

from .encoding.codes import Code, random_code
from .encoding.features import Powers, RandomFourier
from .errors import ExpungeError
from .regressor import CodedRegressor, Report

__version__ = "0.1.0"

__all__ = ["Code", "CodedRegressor", "ExpungeError", "Powers", "RandomFourier", "Report", "random_code"]
