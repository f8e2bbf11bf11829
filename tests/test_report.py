"""What one sees of a run: status, stop and the HTML report, from run folders made here."""
import datetime
import html.parser
import json
import math
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import zlib

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
COLUMNS = ("step,epoch,split,loss,loss.bce,loss.dice,lr,grad_norm,step_ms,data_wait_ms,samples_per_s,gpu_util,gpu_mem_gb,"
           "gpu_temp_c,gpu_power_w,host_rss_gb,dice,iou,forward_ms,loss_ms,backward_ms,optimizer_ms,bce_ms,"
           "dice_ms").split(",")


def now(seconds_ago=0):
    moment = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=seconds_ago)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def start_ticks(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])


def png(width, height, channels, pixel):
    """A PNG file made without Voxloom."""
    rows = b"".join(b"\0" + bytes(value for x in range(width) for value in pixel(y, x)) for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def write_metrics(path, draw, steps, level):
    rows = [",".join(COLUMNS)]

    def row(values):
        rows.append(",".join(str(values.get(column, "")) for column in COLUMNS))

    for step in range(10, steps + 1, 10):
        fade = math.exp(-step / steps * 3)
        bce, dice = level * fade + draw.uniform(0, 0.1), 0.8 * fade + draw.uniform(0.05, 0.15)
        wait = draw.uniform(0.5, 3)
        row({"step": step, "epoch": (step + 99) // 100, "split": "train", "loss": bce + dice, "loss.bce": bce,
             "loss.dice": dice, "lr": 0.01 * (1 - step / (steps + 1)) ** 0.9, "grad_norm": draw.uniform(0.5, 2),
             "step_ms": 80 + wait, "data_wait_ms": wait, "samples_per_s": 24.5, "host_rss_gb": 2.5 + fade,
             "forward_ms": 22, "loss_ms": 5, "backward_ms": 44, "optimizer_ms": 6, "bce_ms": 3,
             "dice_ms": "" if step % 20 else 2})
        if step % 100 == 0:
            row({"step": step, "epoch": step // 100, "split": "val", "loss": 1.1 * fade + 0.2, "dice": 0.93 - 0.7 * fade,
                 "iou": 0.88 - 0.75 * fade})
    path.write_text("\n".join(rows) + "\n")


def write_slices(folder):
    folder.mkdir()

    def wave(y, x, shift):
        return abs(y - 32 - 12 * math.sin((x + shift) / 11)) < 4

    for epoch in (2, 10):
        for case, shift in (("scroll_03", 0), ("scroll_07", 20)):
            gray = png(96, 64, 1, lambda y, x: (min(255, 70 + 110 * wave(y, x, shift) + (7 * x + 13 * y) % 40),))
            label = png(96, 64, 4, lambda y, x: (230, 97, 0, 150) if wave(y, x, shift) else (0, 0, 0, 0))
            guess = png(96, 64, 4, lambda y, x: (230, 97, 0, 150) if wave(y, x, shift + 12 - epoch) else (0, 0, 0, 0))
            for kind, data in (("input", gray), ("label", label), ("prediction", guess)):
                (folder / f"image-{epoch:04d}-{case}-{kind}.png").write_bytes(data)


def make_run(folder, draw, steps=1000, level=1.0, state="finished", config="training:\n  seed: 7\n", **record):
    folder.mkdir(parents=True)
    (folder / "checkpoints").mkdir()
    (folder / "config.yaml").write_text(config)
    write_metrics(folder / "metrics.csv", draw, steps, level)
    write_slices(folder / "images")
    (folder / "log.txt").write_text(
        f"{now(200)} training begins\n{now(150)} warning: case <s12> is darker than the others & was kept\n"
        f"{now(140)} warning: step 40: the loss was not finite\n{now(130)} warning: step 40: the loss was not finite\n")
    process = {"pid": 999999, "host": socket.gethostname(), "started": now(200), "ended": now(10), "first_step": 1,
               "last_step": steps, "how": state, "start_ticks": 1}
    (folder / "run.json").write_text(json.dumps({
        "commit": "0123abc", "machine": "node7, 16 CPUs", "libraries": {"torch": "2.13.0"},
        "command": "voxloom train demo.yaml", "created": now(200), "state": state, "reason": "",
        "last_checkpoint": f"last.safetensors at step {steps}", "last_warning": "the loss was not finite",
        "processes": [process], **record}))
    return folder


class Page(html.parser.HTMLParser):
    """Checks that every element is closed, and collects what the tests ask for."""

    VOID = {"meta", "link", "img", "input", "line", "path", "circle", "rect", "br"}

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.addresses, self.curves, self.text = [], [], [], {}, []
        self.feed(text)
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.addresses += [attributes[name] for name in ("src", "href") if name in attributes]
        if tag == "path":
            self.curves.setdefault(self.plot(), []).append(attributes["d"])
        if tag not in self.VOID:
            self.open.append((tag, attributes.get("id")))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open[-1][0] == tag
            self.open.pop()

    def handle_data(self, data):
        self.text.append(data)

    def plot(self):
        return next((name for tag, name in reversed(self.open) if tag == "figure"), None)


SINGLE_PLOTS = {"plot-loss", "plot-terms", "plot-scores", "plot-lr", "plot-grad-norm", "plot-step-time", "plot-data-wait",
                "plot-memory", "plot-term-times"}


def test_report_is_one_file_with_every_part(voxloom, draw, tmp_path):
    run = make_run(tmp_path / "runs" / "demo-001", draw)
    assert voxloom("report", run).stdout.strip() == str(run / "report.html")
    page = Page((run / "report.html").read_text())
    assert SINGLE_PLOTS <= set(page.ids) and {"step-stages", "configuration", "warnings"} <= set(page.ids)
    assert all(address.startswith("data:") for address in page.addresses), "needs nothing but itself"
    text = " ".join(page.text)
    for words in ("training.seed", "case <s12> is darker than the others & was kept", "(2 times)", "waiting for data",
                  "optimizer", "scroll_07", "voxloom train demo.yaml", "finished"):
        assert words in text, words
    assert sum(address.startswith("data:image/png") for address in page.addresses) == 15  # three strips of 3 + 2 overlays


def trial(name, changes, verdict, samples_per_s, memory_gb):
    return {"name": name, "changes": changes, "verdict": verdict, "samples_per_s": samples_per_s, "memory_gb": memory_gb,
            "step_ms": samples_per_s and 2e3 / samples_per_s, "predicted_step_ms": None, "data_wait_ms": 3.5, "gain": 1.4,
            "loss_difference": 0, "losses": [1.0], "note": "it <waits>", "seconds": 2}


def write_measured(folder):
    folder.mkdir(exist_ok=True)
    step = [{"name": "data_wait", "ms": 30}, {"name": "forward", "ms": 20}, {"name": "backward", "ms": 50}]
    (folder / "profile.json").write_text(json.dumps({
        "step_ms": 100, "samples_per_s": 20, "data_wait_ms": 30, "device": "cpu",
        "waterfall": {"step": step, "data": [{"name": "gather", "ms": 44}]},
        "bottleneck": {"name": "augment", "evidence": "samples take 44 ms & the threads are busy"},
        "suggestions": [{"change": "data.num_workers=4", "predicted_step_ms": 70, "why": "more <threads>",
                         "same_result": True}],
        "slowest_operations": [{"name": "aten::<conv>", "calls": 12, "ms": 33.5}],
        "forward_stages": [{"name": "encoder.0", "ms": 12}, {"name": "a.very.long.name.of.a.stage.encoder.1", "ms": 8}],
        "memory": {"by_kind_gb": {"activations": 0.625}}}))
    (folder / "tune.json").write_text(json.dumps({
        "trials": [trial("as it is", [], "start", 20, 1.5),
                   trial("data.num_workers=4", ["data.num_workers=4"], "kept", 28, 1.75),
                   trial("data.batch_size=64", ["data.batch_size=64"], "out of memory", None, 0)],
        "chosen": ["data.num_workers=4"], "evidence": [""], "speedup": 1.4, "compared": {"ratio": 0.7}, "yaml": ""}))
    return folder


def bars_and_marks(text):
    bars = [tuple(map(float, bar)) for bar in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', text)]
    marks = [tuple(map(float, mark)) for mark in
             re.findall(r'class="trial" r="\d" cx="([\d.]+)" cy="([\d.]+)"', text)]
    return bars, marks


def test_a_profile_and_a_search_stand_in_the_report(voxloom, draw, tmp_path):
    run = write_measured(make_run(tmp_path / "demo-001", draw))
    alone = write_measured(tmp_path / "alone")
    for folder in (run, alone):
        voxloom("report", folder)
        text = (folder / "report.html").read_text()
        page = Page(text)
        assert {"profile", "tune", "tune-scatter"} <= set(page.ids)
        assert ("plot-loss" in page.ids) == (folder == run)
        bars, marks = bars_and_marks(text)
        (wait, gap), (forward, run_), (backward, back) = bars[:3]
        assert forward == pytest.approx(wait + gap, abs=0.2) and backward == pytest.approx(forward + run_, abs=0.2)
        assert gap / run_ == pytest.approx(1.5, abs=0.01) and back / run_ == pytest.approx(2.5, abs=0.01)
        assert len(marks) == 2 and marks[1][0] > marks[0][0] and marks[1][1] < marks[0][1], "more memory, more speed"
        words = " ".join(page.text)
        assert bars[4][1] / bars[5][1] == pytest.approx(1.5, abs=0.01)
        for expected in ("samples take 44 ms & the threads are busy", "aten::<conv>", "33.5 ms", ".stage.encoder.1",
                         "0.6250 GB", "more <threads>", "70.0 ms", "1.43", "it <waits>", "out of memory",
                         "1.40 times the samples a second"):
            assert expected in words, expected
    (alone / "profile.json").write_text('{"step_ms": "fast"}')
    broken = voxloom("report", alone, check=False)
    assert broken.returncode == 1 and "alone/profile.json" in broken.stderr


def test_curves_lie_where_the_numbers_say(voxloom, draw, tmp_path):
    run = make_run(tmp_path / "demo-001", draw)
    voxloom("report", run)
    text = (run / "report.html").read_text()
    figure = text[text.index('id="plot-scores"'):]
    axes = json.loads(figure[figure.index("data-axes='") + 11:].split("'")[0])
    path = Page(text).curves["plot-scores"][0]
    points = [tuple(map(float, point.split())) for point in path.replace("L", "M").split("M")[1:]]
    rows = [line.split(",") for line in (run / "metrics.csv").read_text().splitlines()[1:]]
    expected = [(int(row[0]), float(row[COLUMNS.index("dice")])) for row in rows if row[2] == "val"]
    assert len(points) == len(expected)
    for (x, y), (step, dice) in zip(points, expected):
        assert abs(axes["first"] + (x - axes["left"]) / (axes["right"] - axes["left"]) * (axes["last"] - axes["first"])
                   - step) < 0.1
        assert abs(axes["low"] + (axes["bottom"] - y) / (axes["bottom"] - axes["top"]) * (axes["high"] - axes["low"])
                   - dice) < 1e-3


def test_a_long_run_is_thinned_and_keeps_its_spikes(voxloom, draw, tmp_path):
    run = make_run(tmp_path / "long-001", draw, steps=1000)
    rows = ["step,epoch,split,loss"]
    spike = draw.randrange(1000, 99000)
    rows += [f"{step},1,train,{50 if step == spike else draw.uniform(1, 2)}" for step in range(1, 100001)]
    (run / "metrics.csv").write_text("\n".join(rows) + "\nsomething torn")
    voxloom("report", run)
    raw, mean = Page((run / "report.html").read_text()).curves["plot-loss"]
    heights = [float(point.split()[1]) for point in raw.replace("L", "M").split("M")[1:]]
    assert len(heights) <= 2000 and mean.count("L") < 2000
    assert min(heights) < 30 and sum(height < 100 for height in heights) == 1, "one spike, at the top"


def test_runs_side_by_side(voxloom, draw, tmp_path):
    first = make_run(tmp_path / "a-001", draw)
    second = make_run(tmp_path / "b-001", draw, level=2.0, state="failed", reason="out of memory",
                      config="training:\n  seed: 7\ndata:\n  batch_size: 3\n")
    output = tmp_path / "both.html"
    voxloom("report", first, second, "--output", output)
    page = Page(output.read_text())
    assert {"plot-loss", "plot-terms-bce", "plot-terms-dice", "plot-term-times-dice", "plot-scores-dice"} <= set(page.ids)
    assert len(page.curves["plot-scores-dice"]) == 2
    text = " ".join(page.text)
    assert "data.batch_size" in text and "out of memory" in text
    assert "training.seed" not in text.split("The whole configuration")[0], "the same in both runs"


def test_runs_of_one_name_go_by_their_paths(voxloom, draw, tmp_path):
    for fold in ("fold0", "fold1"):
        make_run(tmp_path / fold / "run", draw, steps=100)
    voxloom("report", "fold0/run", "fold1/run", "--output", "both.html", cwd=tmp_path)
    text = " ".join(Page((tmp_path / "both.html").read_text()).text)
    assert "fold0/run" in text and "fold1/run" in text


def test_what_is_no_run_is_refused(voxloom, tmp_path):
    for command in ("report", "status", "stop"):
        result = voxloom(command, tmp_path / "missing", check=False)
        assert result.returncode == 1 and "missing" in result.stderr and result.stdout == ""


@pytest.mark.parametrize("look", [[], ["--window-size=400,900"], ["--blink-settings=preferredColorScheme=0"]],
                         ids=["desktop", "phone", "dark"])
def test_chromium_draws_it_without_a_complaint(voxloom, draw, tmp_path, look):
    if not CHROMIUM:
        pytest.skip("chromium is not installed")
    run = write_measured(make_run(tmp_path / "demo-001", draw))
    voxloom("report", run)
    result = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile",
         "--enable-logging=stderr", "--virtual-time-budget=2000", *look, "--dump-dom", f"file://{run}/report.html"],
        capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in result.stderr, result.stderr
    assert '<html lang="en" class="js">' in result.stdout, "the script ran to its end"
    page = Page(result.stdout[result.stdout.index("<html"):])
    assert SINGLE_PLOTS <= set(page.curves)


@pytest.fixture
def living_run(draw, tmp_path):
    """A run whose process is this test."""
    process = {"pid": os.getpid(), "host": socket.gethostname(), "started": now(60), "ended": None, "first_step": 1,
               "last_step": 300, "how": None, "start_ticks": start_ticks(os.getpid())}
    run = make_run(tmp_path / "runs" / "live-002", draw, state="running", processes=[process])
    (run / "status.json").write_text(json.dumps({
        "step": 321, "total_steps": 1000, "epoch": 4, "total_epochs": 10, "phase": "training", "loss": 0.5,
        "step_ms": 81.5, "samples_per_s": 24.5, "data_wait": 0.021, "host_rss_gb": 3.1, "gpu_mem_gb": None,
        "gpu_util": None, "eta_s": 3725, "last_checkpoint": "last.safetensors at step 300",
        "last_warning": "case s12 is dark", "heartbeat": now()}))
    return run


def test_status_of_all_runs_here(voxloom, draw, living_run):
    killed = make_run(living_run.parent / "dead-001", draw, state="running")
    folder = living_run.parent.parent
    listed = {pathlib.Path(view["run"]).name: view for view in json.loads(voxloom("status", "--json", cwd=folder).stdout)}
    live = listed["live-002"]
    assert live["alive"] and live["state"] == "running" and live["ended"] is None
    assert (live["step"], live["total_steps"], live["epoch"], live["eta_s"]) == (321, 1000, 4, 3725)
    assert live["data_wait"] == 0.021 and live["gpu_mem_gb"] is None
    assert live["last_warning"] == "case s12 is dark"
    assert not listed["dead-001"]["alive"] and listed["dead-001"]["state"] == "killed"
    text = voxloom("status", cwd=folder).stdout
    for words in ("live-002: training", "step 321/1000 (32 %)", "data wait 2.1 %", "1 h 2 min", "3.1 GB", "dead-001: killed"):
        assert words in text, words
    assert killed.name in text


def test_a_killed_run_was_at_work_until_its_last_heartbeat(voxloom, living_run):
    record = json.loads((living_run / "run.json").read_text())
    record["processes"][0].update(started=now(3 * 86400), start_ticks=1)
    (living_run / "run.json").write_text(json.dumps(record))
    status = json.loads((living_run / "status.json").read_text())
    (living_run / "status.json").write_text(json.dumps({**status, "heartbeat": now(3 * 86400 - 300)}))
    voxloom("report", living_run, "--output", living_run / "r.html")
    assert "5 min 0 s" in (living_run / "r.html").read_text()


def test_a_process_with_a_reused_number_is_not_alive(voxloom, living_run):
    record = json.loads((living_run / "run.json").read_text())
    record["processes"][0]["start_ticks"] += 1
    (living_run / "run.json").write_text(json.dumps(record))
    assert not json.loads(voxloom("status", living_run, "--json").stdout)[0]["alive"]


def test_status_without_any_run(voxloom, tmp_path):
    assert json.loads(voxloom("status", "--json", cwd=tmp_path).stdout) == []
    assert "no run" in voxloom("status", cwd=tmp_path).stdout


def test_watch_ends_with_the_run(voxloom, draw, living_run):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(2)"])
    record = json.loads((living_run / "run.json").read_text())
    record["processes"][0].update(pid=child.pid, start_ticks=start_ticks(child.pid))
    (living_run / "run.json").write_text(json.dumps(record))
    text = voxloom("status", living_run, "--watch", timeout=60).stdout
    child.wait()
    assert "live-002: training" in text and text.count("live-002: killed") == 1
    (view,) = json.loads(voxloom("status", living_run, "--watch", "--json", timeout=60).stdout)
    assert view["state"] == "killed" and not view["alive"]


@pytest.mark.parametrize("at", ["step", "epoch"])
def test_stop_leaves_a_request_for_a_living_run_only(voxloom, draw, living_run, at):
    assert at in voxloom("stop", living_run, "--at", at).stdout
    assert (living_run / ".stop").read_text().strip() == at
    finished = make_run(living_run.parent / "done-001", draw)
    result = voxloom("stop", finished, check=False)
    assert result.returncode == 1 and "finished" in result.stderr and not (finished / ".stop").exists()
