"""The commands of `streak`, one file each, imported on demand by harness/cli.py."""
