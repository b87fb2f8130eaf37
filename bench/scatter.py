#!/usr/bin/env python3
"""Copies a file in writes of 4 KiB, in random order: it then lies in memory in small pages, each
somewhere else. Prints nothing."""
import os
import random
import sys

PAGE = 4096

source = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(source).st_size
out = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
os.ftruncate(out, size)
pages = list(range((size + PAGE - 1) // PAGE))
random.Random(1).shuffle(pages)
for page in pages:
    os.pwrite(out, os.pread(source, PAGE, page * PAGE), page * PAGE)
os.fsync(out)
