from dataclasses import replace

import pytest

from tunnelmark.model.suites import DEFAULT_SUITE
from tunnelmark.model.suites import SUITES as NAMES
from tunnelmark.vmimage.recipe import RECIPE, Recipe
from tunnelmark.vmimage.suites import SUITES, absences

every = pytest.mark.parametrize("recipe", SUITES.values(), ids=SUITES)


def test_the_digest_changes_with_anything_in_the_recipe() -> None:
    changed = [
        replace(RECIPE, format=RECIPE.format + 1),
        replace(RECIPE, packages=RECIPE.packages[1:]),
        replace(RECIPE, init=RECIPE.init + "#"),
        replace(RECIPE, files={}),
        replace(RECIPE, backports=("openvpn",)),
        replace(RECIPE, own_kernel="0" * 64),
        replace(RECIPE, beside=()),
    ]
    digests = {recipe.digest() for recipe in (RECIPE, *changed)}
    assert len(digests) == len(changed) + 1
    assert RECIPE.digest() == replace(RECIPE).digest()


def test_each_suite_that_a_study_may_name_has_a_recipe() -> None:
    assert tuple(SUITES) == NAMES
    assert SUITES[DEFAULT_SUITE] is RECIPE
    assert len({recipe.digest() for recipe in SUITES.values()}) == len(SUITES)


def test_what_a_suite_lacks_has_a_reason_and_is_not_asked_for() -> None:
    for suite, recipe in SUITES.items():
        assert set(RECIPE.packages) - set(recipe.packages) == set(recipe.absent)
        assert all(recipe.absent.values())
        assert len(absences(suite)) == len(set(recipe.absent.values()))
    (words,) = absences("trixie")
    assert words == (
        "without softether-vpnclient, softether-vpncmd, softether-vpnserver: Debian has no such "
        "package since 13"
    )


@every
def test_lists_hold_nothing_twice(recipe: Recipe) -> None:
    for names in (recipe.packages, recipe.modules, recipe.boot_modules, recipe.left_out):
        assert len(set(names)) == len(names)


@every
def test_accounts_do_not_share_numbers(recipe: Recipe) -> None:
    assert len({account.uid for account in recipe.accounts}) == len(recipe.accounts)
    assert all(100 <= account.uid < 1000 for account in recipe.accounts)
