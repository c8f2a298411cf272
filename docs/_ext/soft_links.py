"""Make names in single backticks links where they are documented, and code where they
are not.
"""

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxRole

WORDS = {"bltin-boolean-values": "bool"}
"""Names of some of Python's pages in a text."""


class Soft(SphinxRole):
    """A name, or any other piece of code."""

    def run(self):
        """One reference that may stay unresolved."""
        code = nodes.literal(self.rawtext, self.text, classes=["soft"])
        if not all(part.isidentifier() for part in self.text.split(".")):
            return [code], []
        node = addnodes.pending_xref(
            self.rawtext, code, refdomain="py", reftype="obj", reftarget=self.text, refexplicit=False,
            refwarn=False, soft=True,
        )
        node["py:module"] = self.env.ref_context.get("py:module") or "dask_simjoin"
        node["refdoc"] = self.env.docname
        return [node], []


def unresolved(app, env, node, contnode):
    """Names without documentation are code; without a network Python's own types are
    words.
    """
    if node.get("soft"):
        return contnode
    _, python, name = node["reftarget"].rpartition("python:")
    return nodes.inline("", WORDS.get(name, name)) if python else None


def setup(app):
    """Register, after all who may resolve it."""
    app.add_role("soft", Soft())
    app.connect("missing-reference", unresolved, priority=900)
    return {"parallel_read_safe": True}
