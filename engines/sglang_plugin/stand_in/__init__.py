"""A folder for PYTHONPATH: what lies in it takes the place of packages that cannot be imported on this machine."""
