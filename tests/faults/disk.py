"""A small disk of our own: an ext4 file system in a file, mounted through a loop device.

The power is cut with ext4's shutdown call, without flushing its journal: from that instant nothing more reaches the
device, and everything that was only in memory is gone. Copying the image of a frozen system would show the same bytes,
but takes time, and the kernel goes on writing meanwhile: such a copy is a state no disk was ever in.
Not modelled: a drive that loses writes it has taken but was not told to flush.
"""

import fcntl
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import time

EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_LOG_FLUSH = 2
LEAVE_OUT = "GEONCE_LEAVE_OUT_DISK_FAULTS"


def obstacle() -> str | None:
    """Why there can be no such disk here."""
    if os.geteuid() != 0:
        return "mounting needs root"
    missing = [tool for tool in ("mkfs.ext4", "mount", "umount", "losetup") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    if subprocess.run(["losetup", "--find"], capture_output=True, check=False).returncode:
        return "there is no free loop device"
    return None


def leave_out(name: str) -> int | None:
    """The exit code where there can be no such disk: a failure, unless somebody has allowed to leave the test out."""
    reason = obstacle()
    if reason is None:
        return None
    if os.environ.get(LEAVE_OUT) == "1":
        print(f"{name} left out: {reason}; {LEAVE_OUT}=1 allows it, and nothing was tested")
        return 0
    print(
        f"{name} FAILED: {reason}. Run it where loop devices can be mounted; {LEAVE_OUT}=1 leaves it out.",
        file=sys.stderr,
    )
    return 1


class Disk:
    """Use it in a `with`: what was mounted is unmounted."""

    def __init__(self, folder: str, megabytes: int):
        self.image, self.mount_point = pathlib.Path(folder, "disk.img"), pathlib.Path(folder, "disk")
        self.megabytes = megabytes

    def __enter__(self) -> "Disk":
        with open(self.image, "wb") as file:
            file.truncate(self.megabytes << 20)
        # No blocks are kept back for root, or root could write to a full disk.
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(self.image)], check=True)
        self.mount_point.mkdir()
        self.mount()
        return self

    def __exit__(self, *_) -> None:
        if os.path.ismount(self.mount_point):
            self.unmount()

    def mount(self) -> None:
        # The kernel's own commits are far apart: what is not synced on purpose stays in memory.
        subprocess.run(["mount", "-o", "loop,commit=300", str(self.image), str(self.mount_point)], check=True)

    def unmount(self) -> None:
        for _ in range(50):
            if subprocess.run(["umount", str(self.mount_point)], capture_output=True, check=False).returncode == 0:
                return
            time.sleep(0.1)
        subprocess.run(["umount", str(self.mount_point)], check=True)

    def cut_power(self) -> None:
        handle = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, EXT4_IOC_SHUTDOWN, struct.pack("I", WITHOUT_LOG_FLUSH))
        finally:
            os.close(handle)

    def power_on(self) -> None:
        self.unmount()
        self.mount()

    def fill(self, leave_bytes: int = 0) -> pathlib.Path:
        """Takes all room but so much; the file that takes it."""
        filler = self.mount_point / "filler"
        with open(filler, "wb", buffering=0) as file:
            free = os.statvfs(self.mount_point)
            try:
                os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - leave_bytes))
            except OSError:
                pass
            file.seek(0, os.SEEK_END)
            for size in () if leave_bytes else (1 << 20, 4096):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError:
                    pass
            os.fsync(file.fileno())
        return filler
