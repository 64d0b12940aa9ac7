# SPDX-License-Identifier: Apache-2.0
"""A handler that computes for 20 ms, so that the other threads of its process wait for the interpreter lock."""
import time


def application(environ, start_response):
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end:
        pass
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "3")])
    return [b"ok\n"]
