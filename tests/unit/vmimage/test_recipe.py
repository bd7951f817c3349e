from dataclasses import replace

from tunnelmark.vmimage.recipe import RECIPE


def test_the_digest_changes_with_anything_in_the_recipe() -> None:
    changed = [
        replace(RECIPE, format=RECIPE.format + 1),
        replace(RECIPE, packages=RECIPE.packages[1:]),
        replace(RECIPE, init=RECIPE.init + "#"),
        replace(RECIPE, files={}),
    ]
    digests = {recipe.digest() for recipe in (RECIPE, *changed)}
    assert len(digests) == len(changed) + 1
    assert RECIPE.digest() == replace(RECIPE).digest()


def test_lists_hold_nothing_twice() -> None:
    for names in (RECIPE.packages, RECIPE.modules, RECIPE.boot_modules, RECIPE.left_out):
        assert len(set(names)) == len(names)


def test_accounts_do_not_share_numbers() -> None:
    assert len({account.uid for account in RECIPE.accounts}) == len(RECIPE.accounts)
    assert all(100 <= account.uid < 1000 for account in RECIPE.accounts)
