"""Every benchmark with a peer that needs no GPU, one after the other; each prints its own table and whether its bars hold."""
import pathlib
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent


def main():
    with tempfile.TemporaryDirectory() as scratch:
        extra = {"store_ratio.py": ["--folder", scratch]}
        failed = []
        peers = [script for script in sorted(FOLDER.glob("*_peers.py")) if not script.name.startswith("gpu_")]
        for script in [FOLDER / "kernels.py", *peers, FOLDER / "store_ratio.py"]:
            print(f"==== {script.name}", flush=True)
            if subprocess.run([sys.executable, script, *extra.get(script.name, [])]).returncode != 0:
                failed.append(script.name)
    print(f"{len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
