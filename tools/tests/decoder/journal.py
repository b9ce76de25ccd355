#!/usr/bin/env python3
"""Prints the frames of a journal directory. Written from WIRE.md alone, with the standard library alone.

    journal.py DIRECTORY

One line a frame: seq timestamp stream_id kind payload, the last as hexadecimal, or - where it is empty. Exits with 1,
and a word on stderr, where acknowledged data is damaged or missing; the frames before it are printed all the same.
"""

import os
import struct
import sys

SEQ_MAX = 2**63 - 1
PAYLOAD_BYTES_MAX = 67_108_864
COMMIT_BYTES_MAX = 67_117_056
BLOCKS = (512, 1024, 2048, 4096)
EVIDENCE_OFFSETS = (512, 1024, 2048, 4096)
KINDS = {0x0001, 0x0002, 0x0003, 0x0010, 0x0011, 0x0012, 0x0013, 0x0020, 0x0030, 0x00FF}
NEVER_JOURNALED = {0x0002, 0x00FF}
VERSION_1_ONLY = {0x0013}

FRAME = struct.Struct("<QQHHII")
HEADER_1 = struct.Struct("<4sIQQI")
HEADER_2 = struct.Struct("<4sIQQQQIII8sI")
MARK = struct.Struct("<4sIQQII")
COMMIT = struct.Struct("<4sIQQQQIII4sQ")
SEAL_2 = struct.Struct("<4sIQI")
SEAL_3 = struct.Struct("<4sIQQI")


def make_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = make_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


class Refused(Exception):
    """The directory is not read, or not read to its end."""


def padded(size):
    return (size + 7) & ~7


def read_frame(data, at, end):
    """The frame at `at`, and its size; None where there is no sound one before `end`."""
    if end - at < 32:
        return None
    seq, timestamp, stream, kind, length = FRAME.unpack_from(data, at)[:5]
    if FRAME.size != 28 or crc32c(data[at : at + 24]) != FRAME.unpack_from(data, at)[5]:
        return None
    size = 32 + length
    if length > PAYLOAD_BYTES_MAX or end - at < size or kind not in KINDS or not 1 <= seq <= SEQ_MAX:
        return None
    payload = data[at + 28 : at + 28 + length]
    if crc32c(payload) != struct.unpack_from("<I", data, at + 28 + length)[0]:
        return None
    return (seq, timestamp, stream, kind, payload), size


class Commit:
    """A sound commit; `read` gives None where there is none."""

    @staticmethod
    def read(data, at, block):
        if len(data) - at < COMMIT.size:
            return None
        fields = COMMIT.unpack_from(data, at)
        magic, checksum, salt, epoch, base, durable, count, length, previous, reserved, next_salt = fields
        size = -(-(64 + length) // block) * block
        if magic != b"TKTC" or length % 8 or size > COMMIT_BYTES_MAX or at + size > len(data):
            return None
        if crc32c(data[at + 8 : at + size]) != checksum:
            return None
        if any(reserved) or base < 1 or base + count > SEQ_MAX or durable >= base:
            return None
        if 32 * count > length or (count == 0) != (length == 0):
            return None
        commit = Commit()
        commit.at, commit.size, commit.length = at, size, length
        commit.checksum, commit.salt, commit.epoch, commit.base = checksum, salt, epoch, base
        commit.durable, commit.count, commit.previous, commit.next_salt = durable, count, previous, next_salt
        return commit

    def frames(self, data):
        at, end = self.at + 64, self.at + 64 + self.length
        for index in range(self.count):
            found = read_frame(data, at, end)
            if found is None or found[0][0] != self.base + index:
                raise Refused(f"offset {at}: a sound commit holds no frame {self.base + index}")
            if found[0][3] in NEVER_JOURNALED | VERSION_1_ONLY:
                raise Refused(f"offset {at}: a frame of kind {found[0][3]:#06x} never stands here")
            yield found[0]
            at += padded(found[1])
        if at != end:
            raise Refused(f"offset {at}: the commit's frames don't fill it")


class Segment:
    def __init__(self, path, data, first_seq, epoch, salt, previous, block, header_crc):
        self.path, self.data, self.first_seq, self.epoch = path, data, first_seq, epoch
        self.salt, self.previous, self.block, self.header_crc = salt, previous, block, header_crc

    def walk(self):
        return self.walk_commits() if self.block else self.walk_frames()

    def walk_frames(self):
        frames, at, seq, durable = [], 28, self.first_seq, 0
        while found := read_frame(self.data, at, len(self.data)):
            if found[0][0] != seq:
                break
            if found[0][3] in NEVER_JOURNALED:
                durable = seq
                break
            frames.append(found[0])
            seq, at = seq + 1, at + found[1]
        for behind in range(at, len(self.data) - 31):
            found = read_frame(self.data, behind, len(self.data))
            if found and found[0][0] > seq:
                durable = max(durable, found[0][0] - 1)
                break
        return Walk(frames, seq, durable, at, self.epoch, 0, None, 0)

    def walk_commits(self):
        frames, durable, next_salt = [], 0, 0
        chain = Chain(self.data, self.block, self.salt, self.header_crc, self.first_seq, self.epoch)
        refused = None
        for commit in chain:
            durable, next_salt = max(durable, commit.durable), commit.next_salt
            try:
                frames.extend([] if refused else list(commit.frames(self.data)))
            except Refused as reason:
                refused = Refused(f"{self.path}, {reason}")
        for commit in commits_behind(self.data, chain.at, self.block, self.salt):
            durable, next_salt = max(durable, commit.durable), next_salt or commit.next_salt
        durable = max(durable, chain.epoch_fell_at)
        return Walk(frames, chain.seq, durable, chain.at, chain.epoch, chain.previous, refused, next_salt)

    def follows(self, before, walk):
        """Whether the log goes on here where the walk of the segment before ended."""
        linked = self.previous == (before.salt, walk.checksum) and self.epoch >= walk.epoch
        return linked and self.first_seq == walk.end


class Walk:
    """What a segment holds: its frames, the seq after the last, the durable seq that is proven, the offset where it
    ends, the epoch and checksum of the last commit there, what is wrong in a sound commit, if anything is, and the salt
    that its commits announce."""

    def __init__(self, frames, end, durable, at, epoch, checksum, refused, next_salt):
        self.frames, self.end, self.durable, self.at = frames, end, durable, at
        self.epoch, self.checksum, self.refused, self.next_salt = epoch, checksum, refused, next_salt


class Chain:
    """Iterates over the commits that continue the chain; then tells where and with what it ended. `previous` None fits any."""

    def __init__(self, data, block, salt, previous, seq, epoch):
        self.data, self.block, self.salt, self.at = data, block, salt, block
        self.previous, self.seq, self.epoch, self.epoch_fell_at = previous, seq, epoch, 0

    def __iter__(self):
        while commit := Commit.read(self.data, self.at, self.block):
            if commit.salt != self.salt or commit.base != self.seq:
                return
            if self.previous is not None and commit.previous != self.previous:
                return
            if commit.epoch < self.epoch:
                self.epoch_fell_at = self.seq
                return
            self.at, self.seq = self.at + commit.size, self.seq + commit.count
            self.previous, self.epoch = commit.checksum, commit.epoch
            yield commit


def commits_behind(data, at, block, salt):
    while at < len(data):
        if data[at : at + 4] == b"TKTC":
            commit = Commit.read(data, at, block)
            if commit and commit.salt == salt:
                yield commit
        at += block


def behind_chain(data, at, block, salt):
    return max([0] + [commit.durable for commit in commits_behind(data, at, block, salt)])


def evidence_of_announced(data, salts):
    heads = [at for at in range(0, len(data), 512) if salts and data[at : at + 4] == b"TKTC"]
    found = [Commit.read(data, at, block) for at in heads for block in BLOCKS]
    return max([0] + [commit.durable for commit in found if commit and commit.salt in salts])


def evidence_without_header(data):
    durable = 0
    for block in EVIDENCE_OFFSETS:
        first = Commit.read(data, block, block)
        if not first:
            continue
        same_salt = struct.unpack_from("<Q", data, 24)[0] == first.salt
        same_checksum = struct.unpack_from("<I", data, 60)[0] == first.previous
        if not same_salt and not same_checksum and any(data[512:block]):
            continue
        chain = Chain(data, block, first.salt, None, first.base, 0)
        durable = max(durable, *(commit.durable for commit in chain))
        durable = max(durable, behind_chain(data, chain.at, block, first.salt))
    return durable


def read_mark(data):
    """Salt and block size of the use that ended; None where there is no sound recycle mark."""
    if len(data) < MARK.size:
        return None
    magic, version, _, salt, block, crc = MARK.unpack_from(data)
    sound = magic == b"TKTR" and version == 2 and crc32c(data[:28]) == crc
    return (salt, block) if sound else None


def evidence_behind_mark(data, salt, block):
    """Where the header of a later use was lost, that use's first seq, and what it proves to have been durable."""
    first = Commit.read(data, block, block) if block in BLOCKS else None
    if not first or first.salt == salt:
        return None
    chain = Chain(data, block, first.salt, None, first.base, 0)
    durable = max([0] + [commit.durable for commit in chain])
    durable = max(durable, behind_chain(data, chain.at, block, first.salt))
    return (first.base, durable) if durable >= first.base else None


def read_header(path, data):
    """The segment in a file, or None where its header is not sound."""
    if len(data) < HEADER_1.size or data[:4] != b"TKTJ":
        return None
    version = struct.unpack_from("<I", data, 4)[0]
    if version == 1:
        _, _, first_seq, epoch, crc = HEADER_1.unpack_from(data)
        sound = crc32c(data[:24]) == crc
        salt, previous, block = 0, (0, 0), 0
    elif version == 2:
        if len(data) < HEADER_2.size:
            return None
        fields = HEADER_2.unpack_from(data)
        _, _, first_seq, epoch, salt, previous_salt, previous_checksum, block, recycled, _log_id, crc = fields
        previous = (previous_salt, previous_checksum)
        sound = crc32c(data[:60]) == crc and block in BLOCKS and salt != 0
        sound = sound and recycled <= 1 and not any(data[64:block])
    else:
        raise Refused(f"{path}: version {version}")
    if not sound or not 1 <= first_seq <= SEQ_MAX:
        return None
    return Segment(path, data, first_seq, epoch, salt, previous, block, crc)


def read_sealed(path):
    """What was durable, and the salt that is announced; 0 each where nothing says so."""
    try:
        data = open(path, "rb").read()
    except FileNotFoundError:
        return 0, 0
    if len(data) >= SEAL_2.size and data[:8] == b"TKTS\x02\0\0\0":
        _, _, durable, crc = SEAL_2.unpack_from(data)
        return (durable, 0) if crc32c(data[:16]) == crc else (0, 0)
    if len(data) >= SEAL_3.size and data[:8] == b"TKTS\x03\0\0\0":
        _, _, durable, next_salt, crc = SEAL_3.unpack_from(data)
        return (durable, next_salt) if crc32c(data[:24]) == crc else (0, 0)
    return 0, 0


def read_journal(directory):
    """Yields every frame; raises `Refused` at damage."""
    segments, lost, suspects = [], [], []
    sealed, sealed_salt = read_sealed(os.path.join(directory, "sealed"))
    durable = sealed
    for name in sorted(os.listdir(directory)):
        if not name.endswith((".seg", ".spare")):
            continue
        path = os.path.join(directory, name)
        data = open(path, "rb").read()
        segment = read_header(path, data)
        if not segment or name != f"{segment.first_seq:020}.seg":
            suspects.append(data)
        if segment:
            segments.append(segment)
        elif mark := read_mark(data):
            if hidden := evidence_behind_mark(data, *mark):
                durable = max(durable, hidden[1])
                lost.append((hidden[0], path))
        else:
            durable = max(durable, evidence_without_header(data))
            stem, extension = os.path.splitext(name)
            if any(data) and extension == ".seg" and stem.isdigit():
                lost.append((int(stem), path))
    segments.sort(key=lambda segment: segment.first_seq)
    for before, after in zip(segments, segments[1:]):
        if before.first_seq == after.first_seq:
            raise Refused(f"{after.path} begins where {before.path} does")
        if before.salt == 0:
            durable = max(durable, after.first_seq - 1)

    walks = [segment.walk() for segment in segments]
    durable = max([durable] + [walk.durable for walk in walks])
    announced = {sealed_salt} if not segments else set()
    for index, (segment, walk) in enumerate(zip(segments, walks)):
        if index + 1 == len(segments) or not segments[index + 1].follows(segment, walk):
            announced |= {walk.next_salt} | ({sealed_salt} if walk.end == sealed + 1 else set())
    announced -= {0} | {segment.salt for segment in segments}
    durable = max([durable] + [evidence_of_announced(data, announced) for data in suspects])
    for first_seq, path in lost:
        if segments and first_seq < segments[0].first_seq and first_seq <= durable:
            raise Refused(f"{path}: its header is damaged, and the journal began there")

    frames, end, where, broken = [], 1, directory, False
    for index, (segment, walk) in enumerate(zip(segments, walks)):
        if broken:
            continue
        frames.extend(walk.frames)
        if walk.refused:
            yield from frames
            raise walk.refused
        end, where = walk.end, f"{segment.path} at {walk.at}"
        after = segments[index + 1] if index + 1 < len(segments) else None
        broken = after is None or not after.follows(segment, walk)
    yield from frames
    if durable >= end:
        raise Refused(f"{where}: frame {end} is damaged or missing, though {durable} was durable")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        for seq, timestamp, stream, kind, payload in read_journal(sys.argv[1]):
            print(seq, timestamp, stream, kind, payload.hex() or "-")
    except Refused as refused:
        sys.stdout.flush()
        sys.exit(f"refused: {refused}")


if __name__ == "__main__":
    main()
