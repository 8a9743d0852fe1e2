"""A model server beside this process: its arguments, its life, and the requests that it answers over HTTP.

engines/sglang_engine.py puts the parts together. Nothing here imports the server's package.
"""
