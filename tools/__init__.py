"""Programs that make files of the repository, and that check releases."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
