"""The scripts are played by `test_transcripts.py`; nothing in this folder is collected."""

collect_ignore_glob = ["*.py"]
