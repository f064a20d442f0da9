"Samples of a matrix that is too large for every run: the same ones on every machine, however fast it is."

import os
import random

EXHAUSTIVE = os.environ.get("AUTOGRAD_NB_EXHAUSTIVE")
_given = os.environ.get("AUTOGRAD_NB_SEED", "1")
SEED = random.randrange(10**6) if _given == "fresh" else int(_given)


def generator(salt=""):
    "The random numbers of one test."
    return random.Random(f"{salt}{SEED}")


def some(things, count, salt=""):
    "`count` of the things, in the order of the seed; all of them in an exhaustive run."
    things = list(things)
    generator(salt).shuffle(things)
    return things if EXHAUSTIVE else things[:count]
