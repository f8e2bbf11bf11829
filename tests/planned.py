"""What `voxloom init` makes of a folder, and what a recipe then reads."""
import json


def plan(voxloom, folder, *options, name="recipe.yaml"):
    recipe = folder.parent / name
    voxloom("init", folder, "--output", recipe, *options)
    return recipe


def cases_of(voxloom, recipe, *overrides):
    facts = json.loads(voxloom("inspect", recipe, *overrides, "--json").stdout)
    return {case["id"]: case for case in facts["cases"]}, facts
