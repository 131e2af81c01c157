"""Which bytes a file holds, in a few letters: equal files have equal digests, wherever they lie."""

from hashlib import blake2b


def content_digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
