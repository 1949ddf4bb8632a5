"""Moved to zerocalc.evaluate; this shim goes once nothing imports it."""

from zerocalc.evaluate import *  # noqa: F403
