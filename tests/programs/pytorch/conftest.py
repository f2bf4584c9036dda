"""The programs are run by `test_pytorch_programs.py`; nothing in this folder is collected."""

collect_ignore_glob = ["*.py"]
