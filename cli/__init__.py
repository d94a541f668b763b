"""The command line: verbs and rendering only."""
