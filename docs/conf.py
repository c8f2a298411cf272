"""Build the site of the documentation: `sphinx-build -W -n -b html docs build/site`."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ["MPLBACKEND"] = "Agg"

from gallery import gallery_conf
from inventories import inventories

import dask_simjoin

project = "dask-simjoin"
author = "the authors of dask-simjoin"
copyright = author
version = release = dask_simjoin.__version__

extensions = [
    "api_pages",
    "links",
    "myst_parser",
    "numpydoc",
    "soft_links",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = ["_*", "**/README.md", "**.ipynb", "gallery/*.py"]
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore_regex = [
    # types in signatures that have no page: of modules that are not public, and of
    # Python
    ("py:class", r"dask_simjoin\.(catalog|disk_index|engine|graph|planning|reports|request)\..+"),
    ("py:class", r"dask_simjoin\.(sets|strings)\..+"),
    ("py:class", r"(collections\.abc|decimal|fractions|os|pathlib)\..+|dict\[str|PathLike|StorageOptions"),
]
default_role = "soft"

# anchors of headings as GitHub makes them, so that links work in both places
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autosummary_generate = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 72
python_display_short_literal_types = True
autodoc_member_order = "bysource"
add_module_names = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = {
    "DataFrame": "pandas.DataFrame",
    "Series": "pandas.Series",
    "Index": "pandas.Index",
    "csr_matrix": "scipy.sparse.csr_matrix",
    "csr_array": "scipy.sparse.csr_array",
    "ndarray": "numpy.ndarray",
    "Delayed": "dask.delayed.Delayed",
    "Axes": "matplotlib.axes.Axes",
}

intersphinx_mapping = inventories()
intersphinx_timeout = 5

sphinx_gallery_conf = gallery_conf()

linkcheck_anchors = False

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_context = {"default_mode": "auto"}
html_title = "dask-simjoin"
html_search_scorer = str(HERE / "_ext" / "search_scorer.js")
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
html_show_sourcelink = False
html_copy_source = False
html_sidebars = {"index": []}
html_theme_options = {
    "logo": {"text": "dask-simjoin"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "pygments_light_style": "default",
    "pygments_dark_style": "github-dark",
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "back_to_top_button": True,
}
