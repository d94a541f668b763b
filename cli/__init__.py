"""The command line: verbs and rendering only. main.py is the app, one file per group of verbs beside it."""
