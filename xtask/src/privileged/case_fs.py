"""A file system that shows a folder and ignores case in names: `case_fs.py FOLDER MOUNT_POINT`, as root. Speaks the protocol of /dev/fuse.

For kernels without a file system of this kind. It ends when it is unmounted.
"""

import ctypes
import errno
import os
import stat
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
NOW = (1 << 30) - 1


class Files:
    """The nodes that the kernel knows, by number."""

    def __init__(self, root):
        self.paths = {1: root}
        self.nodes = {}
        self.last = 1

    def find(self, node, name):
        """Returns the path of a name in a folder: as it is there, if it is there."""
        folder = self.paths[node]
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            return path
        wanted = name.decode("utf-8", "surrogateescape").casefold()
        for other in os.listdir(folder):
            if other.decode("utf-8", "surrogateescape").casefold() == wanted:
                return os.path.join(folder, other)
        return path

    def node(self, path, found):
        key = found.st_ino
        if key not in self.nodes:
            self.last += 1
            self.nodes[key] = self.last
        self.paths[self.nodes[key]] = path
        return self.nodes[key]

    def gone(self, found):
        if found.st_nlink < 2 or stat.S_ISDIR(found.st_mode):
            self.nodes.pop(found.st_ino, None)

    def moved(self, old, new):
        inside = old + b"/"
        for node, path in self.paths.items():
            if path == old or path.startswith(inside):
                self.paths[node] = new + path[len(old):]


def attributes(found):
    nano = [time % 1_000_000_000 for time in (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)]
    whole = [time // 1_000_000_000 for time in (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)]
    return struct.pack("<QQQQQQ10I", found.st_ino, found.st_size, found.st_blocks, *whole, *nano, found.st_mode,
                       found.st_nlink, found.st_uid, found.st_gid, found.st_rdev, 4096, 0)


class Server:
    def __init__(self, root):
        self.files = Files(root)
        self.lists = {}

    def entry(self, path):
        found = os.lstat(path)
        return struct.pack("<QQQQII", self.files.node(path, found), 0, 0, 0, 0, 0) + attributes(found)

    def answer(self, code, node, body):
        files = self.files
        path = files.paths.get(node)
        name = body.split(b"\0")[0]
        if code == 26:
            return struct.pack("<IIIIHHIIHHI7I", 7, 31, 1 << 17, 1 << 5, 12, 9, 1 << 17, 1, 32, 0, 0, *[0] * 7)
        if code == 1:
            return self.entry(files.find(node, name))
        if code == 3:
            flags, _, handle = struct.unpack("<IIQ", body[:16])
            found = os.fstat(handle) if flags & 1 else os.lstat(path)
            return struct.pack("<QII", 0, 0, 0) + attributes(found)
        if code == 4:
            return self.set_attributes(path, body)
        if code == 5:
            return os.readlink(path)
        if code == 6:
            name, target = body.split(b"\0")[:2]
            made = files.find(node, name)
            os.symlink(target, made)
            return self.entry(made)
        if code in (8, 9):
            made = files.find(node, body[16 if code == 8 else 8:].split(b"\0")[0])
            mode, = struct.unpack("<I", body[:4])
            os.mknod(made, mode) if code == 8 else os.mkdir(made, mode)
            os.chmod(made, mode & 0o7777)
            return self.entry(made)
        if code in (10, 11):
            gone = files.find(node, name)
            found = os.lstat(gone)
            (os.unlink if code == 10 else os.rmdir)(gone)
            files.gone(found)
            return b""
        if code in (12, 45):
            return self.rename(code, node, body)
        if code == 13:
            old, = struct.unpack("<Q", body[:8])
            made = files.find(node, body[8:].split(b"\0")[0])
            os.link(files.paths[old], made, follow_symlinks=False)
            return self.entry(made)
        if code == 14:
            flags, = struct.unpack("<I", body[:4])
            return struct.pack("<QII", os.open(path, flags & ~(os.O_APPEND | os.O_NOFOLLOW | os.O_CREAT)), 0, 0)
        if code == 15:
            handle, offset, size = struct.unpack("<QQI", body[:20])
            return os.pread(handle, size, offset)
        if code == 16:
            handle, offset, size = struct.unpack("<QQI", body[:20])
            return struct.pack("<II", os.pwrite(handle, body[40:40 + size], offset), 0)
        if code == 17:
            found = os.statvfs(files.paths[1])
            return struct.pack("<QQQQQIIII6I", found.f_blocks, found.f_bfree, found.f_bavail, found.f_files,
                               found.f_ffree, found.f_bsize, 255, found.f_frsize, 0, *[0] * 6)
        if code == 18:
            os.close(struct.unpack("<Q", body[:8])[0])
            return b""
        if code in (20, 25, 29, 30, 34):
            return b""
        if code == 27:
            self.lists[node] = [b".", b".."] + sorted(os.listdir(path))
            return struct.pack("<QII", 0, 0, 0)
        if code == 28:
            return self.read_folder(node, path, body)
        if code == 35:
            flags, mode = struct.unpack("<II", body[:8])
            made = files.find(node, body[16:].split(b"\0")[0])
            handle = os.open(made, (flags & ~os.O_APPEND) | os.O_CREAT, mode & 0o7777)
            return self.entry(made) + struct.pack("<QII", handle, 0, 0)
        raise OSError(errno.ENOSYS, "")

    def set_attributes(self, path, body):
        valid, _, handle, size, _, atime, mtime, _, atimens, mtimens, _, mode, _, uid, gid, _ = struct.unpack(
            "<IIQQQQQQIIIIIIII", body[:88])
        if valid & 1:
            os.chmod(path, mode & 0o7777)
        if valid & 6:
            os.chown(path, uid if valid & 2 else -1, gid if valid & 4 else -1, follow_symlinks=False)
        if valid & 8:
            os.truncate(handle if valid & 64 else path, size)
        if valid & 48:
            found = os.lstat(path)
            times = [found.st_atime_ns, found.st_mtime_ns]
            if valid & 16:
                times[0] = atime * 1_000_000_000 + atimens
            if valid & 32:
                times[1] = mtime * 1_000_000_000 + mtimens
            os.utime(path, ns=tuple(times), follow_symlinks=False)
        found = os.fstat(handle) if valid & 64 else os.lstat(path)
        return struct.pack("<QII", 0, 0, 0) + attributes(found)

    def rename(self, code, node, body):
        files = self.files
        to, = struct.unpack("<Q", body[:8])
        flags, start = (struct.unpack("<I", body[8:12])[0], 16) if code == 45 else (0, 8)
        old_name, new_name = body[start:].split(b"\0")[:2]
        old, new = files.find(node, old_name), files.find(to, new_name)
        if new == old:
            # By case alone.
            new = os.path.join(files.paths[to], new_name)
        elif os.path.lexists(new):
            if flags & 1:
                raise OSError(errno.EEXIST, "")
            found = os.lstat(new)
            os.rename(old, new)
            files.gone(found)
            if os.path.basename(new) != new_name:
                os.rename(new, os.path.join(files.paths[to], new_name))
                new = os.path.join(files.paths[to], new_name)
            files.moved(old, new)
            return b""
        os.rename(old, new)
        files.moved(old, new)
        return b""

    def read_folder(self, node, path, body):
        _, offset, size = struct.unpack("<QQI", body[:20])
        out = b""
        for place, name in list(enumerate(self.lists[node]))[offset:]:
            try:
                found = os.lstat(os.path.join(path, name))
            except FileNotFoundError:
                continue
            record = struct.pack("<QQII", found.st_ino, place + 1, len(name), stat.S_IFMT(found.st_mode) >> 12) + name
            record += b"\0" * (-len(record) % 8)
            if len(out) + len(record) > size:
                break
            out += record
        return out


def main():
    root, point = (os.path.realpath(os.fsencode(argument)) for argument in sys.argv[1:3])
    os.umask(0)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if LIBC.mount(b"case_fs", point, b"fuse", 6, options) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    server = Server(root)
    print("ready", flush=True)
    while True:
        try:
            request = os.read(device, 1 << 18)
        except OSError as error:
            if error.errno in (errno.ENODEV, errno.EBADF):
                return
            continue
        _, code, unique, node = struct.unpack("<IIQQ", request[:24])
        if code in (2, 36, 42):
            continue
        try:
            error, out = 0, server.answer(code, node, request[40:])
        except OSError as failed:
            error, out = -failed.errno, b""
        except (KeyError, TypeError):
            error, out = -errno.ENOENT, b""
        try:
            os.write(device, struct.pack("<IiQ", 16 + len(out), error, unique) + out)
        except OSError:
            # The request was interrupted.
            pass


main()
