// Print the pages that the search of a built site returns, best first:
// node site_search.js SITE < JSON list of queries > JSON list of lists of pages
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const site = process.argv[2];
const page = {
  location: { search: "" },
  document: { getElementById: () => null },
  DOCUMENTATION_OPTIONS: {},
  SPHINX_HIGHLIGHT_ENABLED: false,
  URLSearchParams,
  _: (text) => text,
  _ready: () => {},
};
page.window = page;
vm.createContext(page);

// in the order of search.html
for (const name of ["_static/searchtools.js", "_static/language_data.js", "searchindex.js"])
  vm.runInContext(fs.readFileSync(path.join(site, name), "utf8"), page);

const found = JSON.parse(fs.readFileSync(0, "utf8")).map((query) => {
  page.location.search = `?q=${encodeURIComponent(query)}`;
  page.query = query;
  const results = vm.runInContext("Search._performSearch(...Search._parseQuery(query))", page);
  return [...new Set(results.reverse().map((result) => result[0]))];
});
console.log(JSON.stringify(found));
