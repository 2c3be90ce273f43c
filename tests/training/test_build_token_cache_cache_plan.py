"""What fits where: views shrink before the level changes, and the reason is said."""

from __future__ import annotations

import pytest
import torch

from holotype.errors import InputError
from holotype.methods import Views
from holotype.models.token_cache import CacheViews, TokenShape
from holotype.training.build_token_cache import fit_to_needs, plan_cache, smaller_views
from holotype.utils.memory import Budget

SHAPE = TokenShape(images=100, width=100)  # 20 kB per view of all images
NEEDS = Views(weak=2, strong=1)
WANTED = CacheViews(16, 8)
VIEW = 100 * 10 * 10 * 2
CUDA, CPU = torch.device("cuda"), torch.device("cpu")


def plan(device=0, host=0, disk=0, on=CUDA, wanted=WANTED, fixed=False):
    return plan_cache(wanted, NEEDS, SHAPE, Budget(device * VIEW, host * VIEW, disk * VIEW), on, fixed)


def test_what_fits_on_the_device_goes_there_whole():
    found = plan(device=25)
    assert (found.views, found.level, found.reason) == (WANTED, "device", "")


def test_views_shrink_before_the_level_changes():
    found = plan(device=24, host=1000)
    assert (found.views, found.level) == (CacheViews(15, 8), "device")
    assert found.reason == "500.0 kB for 16+8 views do not fit the 480.0 kB of GPU memory"
    assert plan(device=13, host=1000).views == CacheViews(8, 4)
    assert plan(device=7, host=1000).views == CacheViews(4, 2)


def test_below_the_least_number_of_views_the_level_changes():
    found = plan(device=6, host=25)
    assert (found.views, found.level) == (WANTED, "host")
    assert "do not fit the 120.0 kB of GPU memory" in found.reason
    assert "host memory" not in found.reason
    found = plan(device=6, host=6, disk=20)
    assert found.level == "disk"
    assert found.views.weak < 16
    assert "GPU memory or the 120.0 kB of host memory or the 400.0 kB of disk space" in found.reason


def test_on_a_cpu_the_host_comes_first():
    found = plan(device=1000, host=25, on=CPU)
    assert (found.views, found.level, found.reason) == (WANTED, "host", "")
    assert plan(host=3, disk=1000, on=CPU).level == "disk"


def test_a_resumed_run_keeps_its_views_and_moves_down_instead():
    found = plan(device=24, host=24, disk=25, fixed=True)
    assert (found.views, found.level) == (WANTED, "disk")


def test_in_a_file_there_are_the_images_of_all_processes():
    """Each of four holds a quarter of 400 images in memory; the file serves them all, and holds every one."""
    budget = Budget(0, 6 * VIEW, 60 * VIEW)  # of 400 images a view takes four times as much
    found = plan_cache(WANTED, NEEDS, SHAPE, budget, CPU, whole=400)
    assert (found.views, found.level) == (CacheViews(9, 4), "disk")
    assert found.reason.startswith("2.0 MB for 16+8 views do not fit")
    with pytest.raises(InputError, match="400 images"):
        plan_cache(WANTED, NEEDS, SHAPE, Budget(0, 6 * VIEW, 26 * VIEW), CPU, whole=400)
    assert plan_cache(WANTED, NEEDS, SHAPE, Budget(0, 25 * VIEW, 0), CPU, whole=400).level == "host"


def test_nothing_fits_anywhere():
    with pytest.raises(InputError, match=r"100 images with 16\+8 views takes 500.0 kB.*--cache-views off"):
        plan(device=6, host=6, disk=6)


def test_a_small_wish_is_not_raised_to_the_least():
    assert plan(device=4, wanted=CacheViews(2, 1)).views == CacheViews(2, 1)
    assert list(smaller_views(CacheViews(3, 1), NEEDS, False)) == [CacheViews(3, 1)]


def test_views_shrink_one_by_one_in_proportion():
    steps = list(smaller_views(WANTED, NEEDS, False))
    assert [s.weak for s in steps] == list(range(16, 3, -1))
    assert all(abs(s.strong - s.weak / 2) <= 0.5 or s.strong == 2 for s in steps)
    assert steps[-1] == CacheViews(4, 2)


def test_strong_views_are_left_out_where_none_is_drawn():
    assert fit_to_needs(WANTED, Views(weak=2), fixed=False) == CacheViews(16, 0)
    assert fit_to_needs(WANTED, NEEDS, fixed=False) == WANTED
    assert fit_to_needs(WANTED, Views(weak=2), fixed=True) == WANTED


@pytest.mark.parametrize("wanted", [CacheViews(2, 0), CacheViews(1, 1)])
def test_fewer_views_than_a_step_draws_are_refused(wanted):
    with pytest.raises(InputError, match=r"a step draws 2 weak and 1 strong views .* use at least 2\+1"):
        fit_to_needs(wanted, NEEDS, fixed=False)
