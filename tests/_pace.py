"""Limits of time that hold on any machine: in processor time, and longer where the machine itself is slower."""

import contextlib
import os
import time

LOOP = 0.05  # seconds that `loop` takes on the machine for which limits are stated


def worked() -> float:
    "Seconds of processor time of this process and of those that it has waited for: other work on the machine does not lengthen them."
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def loop() -> float:
    "Seconds of processor time of a million turns of a loop."
    began, total = time.process_time(), 0
    for i in range(1_000_000):
        total += i * i
    return time.process_time() - began


def pace() -> float:
    "How many times slower this machine is at the moment, and at least 1."
    return max(1.0, max(loop() for _ in range(3)) / LOOP)


@contextlib.contextmanager
def within(seconds: float):
    "The block, and the programs that it waits for, work for fewer seconds than that. How slow the machine is only matters beyond them."
    began = worked()
    yield
    took = worked() - began
    assert took < seconds or took < seconds * pace(), f"{took:.2f} seconds of processor time, where {seconds} were expected"
