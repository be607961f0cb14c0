"""Prints how far Sphinx is: a line for each tenth of the pages that it reads and writes."""


def connect(app):
    """Follow a build from its first page to its last."""
    app.connect("env-before-read-docs", lambda app, env, names: app.connect("source-read", _Steps("read", len(names))))
    app.connect("html-page-context", _Steps("written", None))


class _Steps:
    """Counts calls, and prints a line at each tenth of them. total: None for all pages that the build knows."""

    def __init__(self, done, total):
        self.done, self.total, self.count = done, total, 0

    def __call__(self, app, page, *_):
        total = self.total or len(app.env.found_docs)
        if page not in app.env.found_docs:  # the index and the search
            return
        self.count += 1
        if self.count * 10 // total > (self.count - 1) * 10 // total:
            print(f"make docs: {self.count} of {total} pages {self.done}", flush=True)
