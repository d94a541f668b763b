"""dlrmx trains deep-learning recommendation models that do not fit on one device."""

__version__ = "0.1.0"
