// What the search adds up for each page: Sphinx's own numbers, but pages for developers come last.
var FOR_DEVELOPERS = /^(decisions|developers|repository|how-it-works\/(architecture|threads))(\/|$)/;

var Scorer = {
  score: ([page, , , , score]) => (FOR_DEVELOPERS.test(page) ? score - 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
