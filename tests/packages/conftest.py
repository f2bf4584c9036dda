"""Programs over packages that are installed elsewhere are not collected here."""

collect_ignore_glob = ["programs/*"]
