// Order of search results: pages for users come before research, and pages whose
// title and headings have the words of the query before other pages.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,

  weights: [
    [/^(explanation|benchmarks|decisions)\b|^(architecture|changes|contributing|methods|project|research)$/, 0.2],
    [/^gallery\/|^reference\/(api|glossary)|(^|\/)index$/, 0.6],
  ],

  // share of the query's words among other words
  share(words, others) {
    return words.filter((word) => others(word)).length / Math.max(words.length, 1);
  },

  score([docname, title, anchor, descr, score]) {
    const query = new URLSearchParams(window.location.search).get("q") || "";
    const words = [...Search._parseQuery(query)[1]];
    const index = Search._index;
    const page = index.docnames.indexOf(docname);
    const stemmer = new Stemmer();
    const ownTitle = splitQuery(index.titles[page].toLowerCase()).map((word) => stemmer.stemWord(word));
    const inHeadings = (word) => [index.titleterms[word] ?? []].flat().includes(page);
    const named = Scorer.share(words, inHeadings) + Scorer.share(words, (word) => ownTitle.includes(word));
    const [, weight] = Scorer.weights.find(([pages]) => pages.test(docname)) ?? [null, 1];
    return weight * (score + 10 * named);
  },
};
