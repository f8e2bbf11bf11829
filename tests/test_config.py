"""`voxloom list`, and the reference pages that it writes."""
import json
from concurrent.futures import ThreadPoolExecutor

from conftest import REPOSITORY

REFERENCE = REPOSITORY / "docs" / "reference"


def names(voxloom):
    return [row["name"] for row in json.loads(voxloom("list", "--json").stdout)]


def test_reference_pages_are_what_the_program_says(voxloom):
    known = names(voxloom)
    stale = [what for what in known
             if not (REFERENCE / f"{what}.md").is_file()
             or (REFERENCE / f"{what}.md").read_text() != voxloom("list", what, "--markdown").stdout]
    assert not stale, (
        f"docs/reference is stale: {', '.join(stale)}. Write it anew with\n"
        f"  for what in {' '.join(known)}; do build/voxloom list $what --markdown > docs/reference/$what.md; done")
    assert {page.stem for page in REFERENCE.glob("*.md")} == set(known), "a page of docs/reference is of nothing"


def test_every_list_prints_in_every_form(voxloom):
    for what in names(voxloom):
        rows = json.loads(voxloom("list", what, "--json").stdout)
        assert rows, what
        plain, page = voxloom("list", what).stdout, voxloom("list", what, "--markdown").stdout
        first_column = next(iter(rows[0]))
        for row in rows:
            assert row[first_column] in plain and f"`{row[first_column]}`" in page
            assert all(isinstance(value, str) for value in row.values())
        assert page.startswith("# ") and "| --" not in page


def test_options_name_type_default_range_unit_and_meaning(voxloom):
    rows = {row["key"]: row for row in json.loads(voxloom("list", "options", "--json").stdout)}
    assert rows["training.lr"] == {
        "key": "training.lr", "type": "number", "default": "0.001", "range": "above 0 to 1e+06", "unit": "",
        "meaning": rows["training.lr"]["meaning"]}
    assert rows["data.num_workers"]["default"] == "auto"
    assert rows["model.filters"]["default"] == "[]"  # the architecture's own
    assert "bf16-mixed" in rows["training.precision"]["range"]
    assert all(row["meaning"] for row in rows.values())
    # Names that DESIGN.md's contract promises to others.
    for section, keys in {
            "model": "architecture in_channels out_channels filters deep_supervision use_checkpoint mednext_size",
            "data": "root patch_size batch_size num_workers prefetch_factor cache_gb placement",
            "training": "max_epochs iterations_per_epoch accumulate precision deterministic seed",
            "system": "num_gpus num_cpus compute_threads",
            "inference": "window overlap blend memory_gb",
            "augmentation": "enabled flip.prob rotate.enabled elastic.enabled noise.prob"}.items():
        for key in keys.split():
            assert f"{section}.{key}" in rows


def test_aliases_lead_to_options(voxloom):
    options = {row["key"] for row in json.loads(voxloom("list", "options", "--json").stdout)}
    aliases = {row["alias"]: row for row in json.loads(voxloom("list", "aliases", "--json").stdout)}
    assert aliases["training.workers"]["canonical"] == "data.num_workers"
    assert all(row["canonical"].split(":")[0] in options or row["note"] for row in aliases.values())
    assert not set(aliases) & options
    page = (REFERENCE / "options.md").read_text()
    assert all(f"`{alias}`" in page for alias in aliases)


def test_an_unknown_list_names_the_known_ones(voxloom):
    result = voxloom("list", "nettworks", check=False)
    assert result.returncode == 2 and result.stdout == ""
    assert all(what in result.stderr for what in names(voxloom))
    assert voxloom("list", "options", "--json", "--markdown", check=False).returncode == 2


def test_what_the_guides_of_the_field_print_loads_on_top_of_a_recipe(voxloom, shared, tmp_path):
    def load(fragment):
        recipe = tmp_path / fragment.name
        recipe.write_text(f"extends: [{REPOSITORY}/recipes/demo/train.yaml, {fragment}]\n")
        voxloom("train", recipe, "--dry-run")  # on whatever machine: two of them ask for GPUs

    with ThreadPoolExecutor(2) as pool:
        assert len(list(pool.map(load, (shared / "data" / "configs").glob("*.yaml")))) > 20


def test_a_recipe_for_another_machines_gpus_is_shown_and_not_run(voxloom, tmp_path):
    words = [REPOSITORY / "recipes/demo/train.yaml", f"data.root={tmp_path}/data", "system.num_gpus=1000"]
    shown = voxloom("train", *words, "--dry-run")
    assert "num_gpus: 1000" in shown.stdout and "on this machine the run would be refused" in shown.stderr
    run = voxloom("train", *words, "--run", tmp_path / "run", check=False)
    assert run.returncode == 1 and "system.num_gpus is 1000, but" in run.stderr
    assert not list(tmp_path.iterdir()), "refused before the data is made"
