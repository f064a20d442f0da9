"""Which tests an everyday run takes: as many as fit into a few minutes, first those that concern what was changed.

`--all` leaves out nothing. A run that chooses its tests (by naming files or tests, with `-k` or `-m`) runs all cases of what it chose.

Every test gets the same allowance of seconds. What needs no more runs as it is; a test that needs more runs as many of its cases as fit, and one whose
single case needs more runs every few times. How long tests take is kept in durations.json, which `--note-durations` writes.
"""

import heapq
import json
import random
from collections import Counter, defaultdict
from pathlib import Path

BUDGET = 300  # seconds of one core for the tests of a day: on two cores half of that, and a minute more to find and to hand out tests
CONCERNED = 0.5  # the part of it that tests may take which concern what was changed
MATRIX = 20  # a test with more cases than this is a matrix
SHARE = 10  # of a matrix at most one case in so many runs every day, or else MATRIX // 2
UNKNOWN = 0.1  # seconds for a case of a test that nobody has measured
HANDLING = 0.01  # seconds that pytest takes for each case, in all its processes

DURATIONS = Path(__file__).with_name("durations.json")


def durations() -> dict[str, float]:
    "The seconds that a case of each test takes, as they were measured."
    return json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}


def note(seconds: dict[str, list[float]], keep: bool) -> None:
    "Write what was measured, of each test the mean of its cases; `keep` says whether tests that were not measured stay."
    found = (durations() if keep else {}) | {test: float(f"{sum(each) / len(each):.1g}") for test, each in seconds.items()}
    DURATIONS.write_text(json.dumps(dict(sorted(found.items())), indent=0) + "\n", encoding="utf-8")


def test_of(item) -> str:
    "The test that `item` is a case of."
    return item.nodeid.partition("[")[0]


def file_of(item) -> str:
    return item.nodeid.partition("::")[0]


def labels(item) -> list[str]:
    "What a case is about: the names in its identifier, such as an operation, a dtype and the number of a sample."
    case = getattr(item, "callspec", None)
    return case.id.split("-") if case else []


def quota(members: list) -> int:
    "How many of the cases of a test run every day at most."
    return len(members) if len(members) <= MATRIX else max(MATRIX // 2, len(members) // SHARE)


def allowance(needs: list[float], budget: float) -> float:
    "The seconds that each test may take, so that all together take the budget: the sum of min(need, allowance) is that, or every need is met."
    left = len(needs)
    for need in sorted(needs):
        if need * left > budget:
            return budget / left
        budget -= need
        left -= 1
    return float("inf")


class Sample:
    "The cases that have been taken, what they cost, and what they are about."

    def __init__(self, seed: int, seconds: dict[str, float]):
        self.seed, self.seconds, self.taken, self.cost, self.files = seed, seconds, set(), 0.0, defaultdict(Counter)

    def price(self, test: str) -> float:
        return self.seconds.get(test, UNKNOWN) + HANDLING

    def take(self, test: str, members: list, count: int) -> None:
        """Take `count` of the cases of a test.

        Those whose labels have been taken least, in this test and in its file: so every dtype meets every kind of check, and every
        operation is checked in some way. Chance decides between equals.
        """
        self.cost += self.price(test) * min(count, len(members))
        if count >= len(members):
            self.taken.update(item.nodeid for item in members)
            return
        rng, here, file = random.Random(f"{self.seed} {test}"), Counter(), self.files[file_of(members[0])]
        names = [labels(item) for item in members]

        def familiar(number):
            mine = names[number]
            return -sum(1 / (1 + here[name]) + 1 / (1 + file[name]) + 4 * (not file[name]) for name in mine) / max(len(mine), 1)

        queue = [(familiar(number), rng.random(), number) for number in range(len(members))]
        heapq.heapify(queue)
        while count:
            _, chance, number = heapq.heappop(queue)
            now = familiar(number)  # it may have risen since it was queued, and never fallen
            if queue and now > queue[0][0]:
                heapq.heappush(queue, (now, chance, number))
                continue
            self.taken.add(members[number].nodeid)
            here.update(names[number])
            file.update(names[number])
            count -= 1

    def fill(self, tests: dict[str, list], most, budget: float) -> None:
        "Take of each test up to `most(members)` cases, as many as the allowance permits that this budget gives to each."
        room = allowance([self.price(test) * most(members) for test, members in tests.items()], budget)
        for test, members in tests.items():
            fit = room / self.price(test)
            # Of a broken number the rest is a chance: a test of ten seconds with an allowance of one runs every tenth time.
            count = most(members) if fit >= most(members) else int(fit + random.Random(f"{self.seed} {test} fits").random())
            self.take(test, members, count)

    def left(self, items: list) -> dict[str, list]:
        "The cases that have not been taken, by their tests."
        tests = defaultdict(list)
        for item in items:
            if item.nodeid not in self.taken:
                tests[test_of(item)].append(item)
        return tests


def chosen(items: list, seed: int, budget: float = float("inf"), seconds: dict[str, float] | None = None, concerned=lambda item: False) -> set[str]:
    """The identifiers of the cases that run every day.

    What is `concerned` by a change comes first, and all of it where half of the budget suffices. Then a case of every file, and what
    a mark `sample(n)` asks for. What is left of the budget is for a sample of everything.
    """
    sample = Sample(seed, durations() if seconds is None else seconds)
    sample.fill(sample.left([item for item in items if concerned(item)]), len, budget * CONCERNED)
    seen, rest = {file_of(item) for item in items if item.nodeid in sample.taken}, sample.left(items)
    cheapest = {}
    for test, members in rest.items():
        best = cheapest.setdefault(file_of(members[0]), test)
        if sample.price(test) < sample.price(best):
            cheapest[file_of(members[0])] = test
    asked = {test: mark.args[0] for test, members in rest.items() if (mark := members[0].get_closest_marker("sample"))}
    for test, count in ({test: 1 for file, test in cheapest.items() if file not in seen} | asked).items():
        sample.take(test, rest[test], count)
    rest = sample.left([item for item in items if test_of(item) not in asked])
    sample.fill(rest, quota, max(budget - sample.cost, 0))
    return sample.taken


def shuffled(items: list, seed: int) -> list:
    "The tests in another order: files, the tests in each, and their cases. Files stay together, since they share fixtures."
    rng, files = random.Random(seed), defaultdict(list)
    for item in items:
        files[file_of(item)].append(item)
    names = sorted(files)
    rng.shuffle(names)
    for name in names:
        rng.shuffle(files[name])
    return [item for name in names for item in files[name]]
