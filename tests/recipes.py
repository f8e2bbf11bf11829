"""Small recipes and data for the whole-program tests."""
import numpy as np

RECIPE = """
data:
  root: {root}
  cache_dir: {root}/cache
  images: ["images/*.{suffix}"]
  label: "labels/{{id}}.{suffix}"
  split: none
  patch_size: [{patch}]
  batch_size: {batch}
  ignore_label: 2
augmentation:
  flip: {{enabled: true}}
  rotate: {{enabled: true}}
  scale: {{enabled: true}}
  noise: {{enabled: true}}
"""


def random_balls(folder, count, size, generator, radius):
    """The masks of so many cases, each with a number; makes their folders."""
    grid = np.stack(np.meshgrid(*[np.arange(n) for n in size], indexing="ij"))
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        centre = np.array([generator.uniform(0.3 * n, 0.7 * n) for n in size]).reshape(3, 1, 1, 1)
        yield number, ((grid - centre) ** 2).sum(0) < radius**2


def write_volumes(folder, count, size, source, write=np.save, suffix="npy"):
    """Random images with a bright ball, which is the label; 2 marks a corner nobody labelled."""
    generator = np.random.default_rng(source.randrange(2**32))
    for number, ball in random_balls(folder, count, size, generator, min(size) / 4):
        image = np.clip(generator.normal(90, 25, size) + 60 * ball, 0, 255).astype(np.uint8)
        label = ball.astype(np.uint8)
        label[: size[0] // 6, : size[1] // 6] = 2
        write(folder / "images" / f"case_{number:03d}.{suffix}", image)
        write(folder / "labels" / f"case_{number:03d}.{suffix}", label)


def write_recipe(folder, patch=(16, 20, 24), batch=2, suffix="npy", extra=""):
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.format(root=folder, patch=", ".join(map(str, patch)), batch=batch, suffix=suffix) + extra)
    return path
