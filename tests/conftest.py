"""Whole-program tests drive the built binary; the truth comes from the peers' libraries."""
import os
import pathlib
import random
import subprocess

import numpy as np
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = pathlib.Path(os.environ.get("VOXLOOM", REPOSITORY / "build" / "voxloom"))
SHARED = pathlib.Path(os.environ.get("VOXLOOM_SHARED", REPOSITORY.parent / "shared"))


@pytest.fixture
def voxloom():
    """Runs the program; with check (the default) a failure shows what it said."""

    def run(*arguments, check=True, timeout=300, env=None, **options):
        result = subprocess.run(
            [str(PROGRAM), *map(str, arguments)],
            capture_output=True, text=True, timeout=timeout, env={**os.environ, **(env or {})}, **options)
        if check and result.returncode != 0:
            pytest.fail(f"voxloom {' '.join(map(str, arguments))} exited with {result.returncode}\n"
                        f"{result.stdout}{result.stderr}")
        return result

    return run


@pytest.fixture
def draw(request):
    """A random source whose seed is drawn afresh and printed, so that a failure can be replayed with VOXLOOM_SEED."""
    seed = int(os.environ.get("VOXLOOM_SEED", random.SystemRandom().randrange(2**32)))
    print(f"VOXLOOM_SEED={seed} {request.node.name}")
    return random.Random(seed)


@pytest.fixture
def generator(draw):
    return np.random.default_rng(draw.randrange(2**32))


@pytest.fixture
def shared():
    """The folder of real data and golden values; users do not have it."""
    if not SHARED.is_dir():
        pytest.skip("the folder of real data is not here")
    return SHARED
