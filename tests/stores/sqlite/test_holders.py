"""Who is surely gone, and who may be there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from msgspec.structs import replace

from lockstitch.files import os_files
from lockstitch.stores import leases

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="what Linux tells of processes")


def test_i_am_there_and_each_holder_is_another() -> None:
    one, other = leases.myself(), leases.myself()
    assert not leases.is_gone(one)
    assert one.token != other.token
    assert replace(one, token="") == replace(other, token="")
    assert str(os.getpid()) in one.label


@LINUX
def test_a_process_that_ended_is_gone_waited_for_or_not() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        start = os_files.start_moment(process.pid)
        holder = replace(leases.myself(), pid=process.pid, start=start)
        assert not leases.is_gone(holder)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert leases.is_gone(holder)
    assert leases.is_gone(holder)


@LINUX
def test_a_process_with_the_number_of_another_is_not_it() -> None:
    assert leases.is_gone(replace(leases.myself(), start="1"))


@LINUX
def test_another_boot_of_this_machine_is_gone_of_another_machine_not() -> None:
    holder = replace(leases.myself(), boot="another", pid=1)
    assert leases.is_gone(holder)
    assert not leases.is_gone(replace(holder, host="elsewhere"))


@pytest.mark.parametrize("unknown", ["boot", "namespace", "start"])
def test_nothing_is_concluded_from_what_is_not_known(unknown: str) -> None:
    holder = replace(leases.myself(), pid=2**22 + 1, **{unknown: ""})
    assert not leases.is_gone(holder)
    assert not leases.is_gone(replace(leases.myself(), pid=2**22 + 1, namespace="pid:[1]"))


@LINUX
def test_the_clock_is_one_for_all_processes_whatever_the_time_of_day() -> None:
    command = [sys.executable, "-c", "from lockstitch.stores.leases import clock; print(clock())"]
    before = leases.clock()
    there = float(subprocess.run(command, capture_output=True, check=True).stdout)
    assert before < there < leases.clock()


@LINUX
@pytest.mark.skipif(
    not shutil.which("unshare") or os.geteuid() != 0, reason="time namespaces need root"
)
def test_the_clock_is_one_across_time_namespaces() -> None:
    command = [sys.executable, "-c", "from lockstitch.stores.leases import clock; print(clock())"]
    shifted = ["unshare", "--time", "--boottime", "100000", *command]
    before = leases.clock()
    done = subprocess.run(shifted, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT TESTED: {done.stderr.decode().strip()}")
    assert before < float(done.stdout) < leases.clock()
