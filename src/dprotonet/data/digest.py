"""What a file or a split holds, in a few letters: equal content has equal digests, wherever it lies."""

from hashlib import blake2b


def content_digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def digest_of(*words: str) -> str:
    """Of words in their order, such as the fingerprints that a split is made of."""
    return blake2b("\0".join(words).encode(), digest_size=16).hexdigest()
