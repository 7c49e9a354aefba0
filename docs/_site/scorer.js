// What the search adds up for each page: Sphinx's own numbers, but pages for developers come last, and those of single classes and
// of the original after the guides.
var FOR_DEVELOPERS = /^(decisions|developers|repository|how-it-works\/(architecture|threads))(\/|$)/;

var SELDOM_MEANT = /^(api\/service_streamer\.|from-0\.1\.2$)/;

var Scorer = {
  score: ([page, , , , score]) => score - 100 * FOR_DEVELOPERS.test(page) - 30 * SELDOM_MEANT.test(page),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
