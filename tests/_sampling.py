"""Which tests an everyday run leaves out: most cases of exhaustive matrices, and tests marked slow.

`--all` leaves out nothing. A run that chooses its tests (by naming files or tests, with `-k` or `-m`) runs all cases of what it chose.
"""

import heapq
import random
from collections import Counter, defaultdict

MATRIX = 20  # a test with more cases than this is a matrix
SHARE = 10  # of a matrix one case in so many runs every day, but at least MATRIX // 2


def test_of(item) -> str:
    "The test that `item` is a case of."
    return item.nodeid.partition("[")[0]


def labels(item) -> list[str]:
    "What a case is about: the names in its identifier, such as an operation, a dtype and the number of a sample."
    case = getattr(item, "callspec", None)
    return case.id.split("-") if case else []


def quota(item, count: int) -> int:
    "How many of the `count` cases of a test run every day; the mark `sample(n)` says it of one test."
    mark = item.get_closest_marker("sample")
    if mark:
        return min(mark.args[0], count)
    return count if count <= MATRIX else max(MATRIX // 2, count // SHARE)


def chosen(items: list, seed: int) -> set[str]:
    """The identifiers of the cases that run every day, every case of a test that is no matrix among them.

    Of a matrix those cases are taken whose labels have been taken least, in this test and in its file: so every dtype meets every
    kind of check, and every operation is checked in some way. Chance decides between equals.
    """
    cases = defaultdict(list)
    for item in items:
        cases[test_of(item)].append(item)
    taken, files = set(), defaultdict(Counter)
    for test, members in cases.items():
        count = quota(members[0], len(members))
        if count >= len(members):
            taken.update(item.nodeid for item in members)
            continue
        rng, here, file = random.Random(f"{seed} {test}"), Counter(), files[test.partition("::")[0]]

        def price(item, here=here, file=file):
            names = labels(item)
            return -sum(1 / (1 + here[name]) + 1 / (1 + file[name]) + 4 * (not file[name]) for name in names) / max(len(names), 1)

        queue = [(price(item), rng.random(), number) for number, item in enumerate(members)]
        heapq.heapify(queue)
        while count:
            _, chance, number = heapq.heappop(queue)
            item = members[number]
            now = price(item)  # it may have risen since it was queued, and never fallen
            if queue and now > queue[0][0]:
                heapq.heappush(queue, (now, chance, number))
                continue
            taken.add(item.nodeid)
            here.update(labels(item))
            file.update(labels(item))
            count -= 1
    return taken


def shuffled(items: list, seed: int) -> list:
    "The tests in another order: files, the tests in each, and their cases. Files stay together, since they share fixtures."
    rng, files = random.Random(seed), defaultdict(list)
    for item in items:
        files[item.nodeid.partition("::")[0]].append(item)
    names = sorted(files)
    rng.shuffle(names)
    for name in names:
        rng.shuffle(files[name])
    return [item for name in names for item in files[name]]
