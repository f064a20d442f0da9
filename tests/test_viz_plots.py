"Line charts: right numbers at right places, on every kind of input."

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from _pace import within

import autograd_nb as torch
from autograd_nb.viz import plot
from autograd_nb.viz.plots import log_ticks, thin, ticks

SVG = "{http://www.w3.org/2000/svg}"


def points(svg, k=0):
    "The points of line `k`, in pixels."
    d = ET.fromstring(svg).find(f"{SVG}path[@class='ag-s{k}']").get("d")
    return np.array([[float(v) for v in p.split()] for p in re.findall(r"[ML]([-\d.]+ [-\d.]+)", d)])


def test_points_stand_where_the_numbers_say():
    p = points(plot({"a": ([0, 1, 2], [0, 10, 20])}).svg)
    assert np.allclose(np.diff(p[:, 0]), np.diff(p[:, 0])[0], atol=0.2) and np.allclose(np.diff(p[:, 1]), np.diff(p[:, 1])[0], atol=0.2)
    assert p[0, 1] > p[2, 1], "larger is higher"


def test_logarithmic_axes_make_powers_equidistant():
    p = points(plot({"a": ([1, 10, 100], [1e-3, 1e-6, 1e-9])}, logx=True, logy=True).svg)
    assert np.allclose(np.diff(p[:, 0], 2), 0, atol=0.2) and np.allclose(np.diff(p[:, 1], 2), 0, atol=0.2)


@pytest.mark.parametrize("series", [[], [1.0], [float("nan")] * 3, [2.0, 2.0], {"a": [1, 2], "b": [2, 1]}, {"a": ([3, 1], [1, 2])},
                                    list(range(10**5)), {str(i): [i, 1] for i in range(7)}, [1e-300, 1e300], [float("inf"), 1, 2]])
@pytest.mark.parametrize("logy", [False, True])
def test_every_input_makes_a_valid_chart(series, logy):
    p = plot(series, logy=logy, title="a < b & c", xlabel="x", ylabel="y")
    ET.fromstring(p.svg)
    assert "nan" not in re.sub(r"<(title|desc)>.*?</\1>", "", p.svg) and str(p)


def test_gaps_where_there_is_no_number():
    d = ET.fromstring(plot([1.0, 2.0, float("nan"), 3.0, 4.0]).svg).find(f"{SVG}path[@class='ag-s0']").get("d")
    assert d.count("M") == 2


def test_lines_differ_in_more_than_colour():
    root = ET.fromstring(plot({"a": [1, 2], "b": [2, 1], "c": [0, 3]}).svg)
    lines = [root.find(f"{SVG}path[@class='ag-s{k}']") for k in range(3)]
    assert len({l.get("stroke-dasharray") for l in lines}) == 3
    texts = [t.text for t in root.iter(f"{SVG}text")]
    assert {"a", "b", "c"} <= set(texts)


def test_tensors_and_words():
    losses = [torch.tensor(1.0), torch.tensor(0.5)]
    p = plot({"loss": losses}, title="training", ylabel="loss", xlabel="step")
    assert "training" in str(p) and "from 1 at 0 to 0.5 at 1" in str(p)
    assert plot(torch.tensor([1.0, 2.0])).svg == plot([1.0, 2.0]).svg


def test_thinning_keeps_the_extremes():
    y = np.zeros(100_000)
    y[51_234], y[77_777] = 9, -9
    xs, ys = thin(np.arange(100_000.0), y)
    assert len(xs) <= 1000 and ys.max() == 9 and ys.min() == -9 and xs[np.argmax(ys)] == 51_234 and (np.diff(xs) >= 0).all()


def test_ticks_are_round_and_inside():
    for lo, hi in ((0, 1), (-3, 7), (1e-7, 3e-7), (999, 1001), (0, 1e6)):
        t = ticks(lo, hi)
        assert 2 <= len(t) <= 12 and all(lo - 1e-12 <= v <= hi + 1e-12 for v in t)
    assert log_ticks(1e-12, 1) == [1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1] and len(log_ticks(2, 7)) >= 1


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="2 x values and 1 y values"):
        plot({"a": ([1.0, 2.0], [1.0])})


def test_a_chart_is_small_and_quick():
    y = np.random.default_rng(0).normal(size=2000)
    plot(y)
    with within(1):
        for _ in range(10):
            p = plot(y)
    assert len(p.svg) < 30_000
