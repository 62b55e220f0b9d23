"""Runs fault tests against a built gateway, one line each.

    python tests/faults/run.py [NAME…] [--binary PATH] [--seed N]

Each takes at most two minutes where the machine has nothing else to do. `power` and `full` mount small disks and need root and
loop devices: where there are none they fail, unless GEONCE_LEAVE_OUT_DISK_FAULTS=1 allows to leave them out. Those with shared
stores start servers of their own. A seed repeats a run as far as the clock allows.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys

# Each group runs at once: those that are together mostly wait.
GROUPS = [
    ["kill"],
    ["power"],
    ["full"],
    ["race"],
    ["poison"],
    ["slow"],
    ["receiver"],
    ["kill_shared"],
    ["commit"],
    ["race_shared"],
    ["versions"],
    ["cache"],
    ["load"],
    # Alone: what it measures is how soon a gateway acknowledges again.
    ["network"],
    ["freeze", "journal", "redis_store"],
]
TESTS = [name for group in GROUPS for name in group]
# Long enough for a machine that is busy with other things: this ends what hangs, and says nothing about speed.
SECONDS_MAX = 900
TIDY_SECONDS_MAX = 20


def finish(process: subprocess.Popen, name: str) -> int:
    """Waits for a test. One that takes too long may still tidy up; then it ends with all that it has started."""
    try:
        return process.wait(SECONDS_MAX)
    except subprocess.TimeoutExpired:
        print(f"{name} FAILED: not over after {SECONDS_MAX} s", file=sys.stderr)
    process.send_signal(signal.SIGINT)
    try:
        process.wait(TIDY_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    return 1


def start(name: str, given: argparse.Namespace) -> subprocess.Popen:
    script = pathlib.Path(__file__).with_name(f"{name}.py")
    command = [sys.executable, str(script), "--binary", given.binary, "--seed", str(given.seed)]
    return subprocess.Popen(command, start_new_session=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=" ".join(TESTS))
    parser.add_argument("--binary", default="target/debug/geonce")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if unknown := set(given.names) - set(TESTS):
        parser.error(f"no such test: {', '.join(sorted(unknown))}")
    wanted = set(given.names or TESTS)
    failed = []
    for group in GROUPS:
        running = {name: start(name, given) for name in group if name in wanted}
        failed += [name for name, process in running.items() if finish(process, name)]
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
