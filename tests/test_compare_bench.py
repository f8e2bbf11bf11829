"""Comparing results of benchmarks, and the README's numbers."""
import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
HEADER = "benchmark,case,ours,peer,ratio,low,high,pairs,bar,verdict,commit,date,machine\n"


def row(case, ours="", ratio="", low="", high="", machine="m1", pairs=21):
    return f"b_peers,{case},{ours},9,{ratio},{low},{high},{pairs},,,abc,2026-01-01,{machine}\n"


def run(script, *arguments):
    return subprocess.run([sys.executable, REPOSITORY / "tools" / script, *map(str, arguments)],
                          capture_output=True, text=True)


@pytest.fixture
def compare(tmp_path):
    def both(old, new, *arguments):
        for name, rows in (("old", old), ("new", new)):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "r.csv").write_text(HEADER + "".join(rows))
        return run("compare_bench.py", tmp_path / "old", tmp_path / "new", *arguments)

    return both


def verdict(result, case):
    (line,) = [line for line in result.stdout.splitlines() if line.endswith(f": {case}")]
    return line.split("  ")[0].strip()


def test_a_change_is_one_beyond_both_intervals(compare):
    old = [row("a", 1, 4.0, 3.8, 4.2), row("b", 1, 4.0, 3.8, 4.2), row("c", 1, 4.0, 3.8, 4.2)]
    new = [row("a", 1, 3.0, 2.9, 3.1), row("b", 1, 3.9, 3.7, 4.1), row("c", 1, 5.0, 4.9, 5.1, machine="m2")]
    result = compare(old, new, "--all")
    assert result.returncode == 0, result.stderr
    assert [verdict(result, case) for case in "abc"] == ["SLOWER", "same", "faster"]
    assert "x 0.750" in result.stdout
    assert compare(old, new, "--fail-above", 20).returncode == 1
    assert compare(old, new, "--fail-above", 30).returncode == 0


def test_less_is_better_for_times_and_costs_more_for_rates(compare):
    cases = ["t (ms)", "r (patches/s)", "c (ms; ratio of costs)"]
    old = [row(cases[0], 10), row(cases[1], 10), row(cases[2], 1, 0.9, 0.88, 0.92)]
    new = [row(cases[0], 15), row(cases[1], 15), row(cases[2], 1, 1.2, 1.1, 1.3)]
    result = compare(old, new)
    assert [verdict(result, case) for case in cases] == ["SLOWER", "faster", "SLOWER"]
    same = compare(old, [row(cases[0], 10.5), row(cases[1], 9.7), row(cases[2], 1, 0.91, 0.89, 0.93)], "--all")
    assert [verdict(same, case) for case in cases] == ["same"] * 3


def test_plain_times_of_two_machines_are_not_compared(compare):
    result = compare([row("t (ms)", 10)], [row("t (ms)", 99, machine="m2")], "--fail-above", 1)
    assert verdict(result, "t (ms)") == "another machine"
    assert result.returncode == 0


def test_the_last_row_of_a_kind_counts_and_new_and_gone_are_named(compare):
    result = compare([row("a", 1, 9, 8, 10), row("a", 1, 2, 1.9, 2.1), row("x", 1)], [row("a", 1, 2, 1.9, 2.1), row("y", 1)],
                     "--all")
    assert verdict(result, "a") == "same"
    assert verdict(result, "x") == "gone" and verdict(result, "y") == "new"


def test_revisions_and_bad_input():
    in_git = subprocess.run(["git", "-C", REPOSITORY, "rev-parse", "HEAD"], capture_output=True).returncode == 0
    if in_git:
        result = run("compare_bench.py", "HEAD", "HEAD")
        assert result.returncode == 0 and "the same within" in result.stdout, result.stderr
    result = run("compare_bench.py", "no-such-thing")
    assert result.returncode != 0 and "neither a file" in result.stderr


def test_a_broken_row_is_named(tmp_path):
    (tmp_path / "r.csv").write_text(HEADER + "b,unquoted, comma,1,2,3,4,5,6,7,8,9,10,11\n")
    result = run("compare_bench.py", tmp_path, tmp_path)
    assert result.returncode != 0 and "r.csv:2: more than 13 fields" in result.stderr


def test_the_readme_has_the_numbers_of_the_results():
    result = run("readme_numbers.py", "--check")
    assert result.returncode == 0, result.stdout


def test_a_stale_readme_is_noticed_and_renewed(tmp_path):
    results, readme = tmp_path / "r.csv", tmp_path / "README.md"
    results.write_text(HEADER + row("a", 1, 4.0, 3.8, 4.2) + row("few", 1, 4.0, 3.8, 4.2, pairs=5))
    begin, end = "<!-- numbers: tools/readme_numbers.py writes these lines -->", "<!-- end of numbers -->"
    readme.write_text(f"Before\n{begin}\nold\n{end}\nAfter\n")
    arguments = ["--readme", readme, "--results", results]
    assert run("readme_numbers.py", "--check", *arguments).returncode == 1
    assert run("readme_numbers.py", *arguments).returncode == 0
    text = readme.read_text()
    assert text.startswith("Before\n") and text.endswith("\nAfter\n") and "old" not in text
    assert "4 (3.8 to 4.2)" in text and "few" not in text
    assert run("readme_numbers.py", "--check", *arguments).returncode == 0
    results.write_text(HEADER + row("a", 1, 5.0, 4.8, 5.2))
    assert run("readme_numbers.py", "--check", *arguments).returncode == 1
