// The page whose heading, option or message is the query comes first. Sphinx shows its results from the last to the first.
(() => {
  if (typeof Search === "undefined" || typeof ENTRIES === "undefined") return;

  const LEAST_WORDS = 3; // of a query that may be a message
  const ALIKE = 0.5; // share of words that a message and a query have in common
  const TOP = 1000; // score

  const plain = (text) => text.toLowerCase().replace(/[`()]/g, "").trim();
  const words = (text) =>
    new Set(plain(text).split(/[^\p{Letter}\p{Number}_]+/u).filter((word) => word && !/^\d+$/.test(word)));

  const result = ({ page, title, anchor }) => {
    const number = Search._index.docnames.indexOf(page);
    const name = `${Search._index.titles[number]} > ${title}`;
    return [page, name, `#${anchor}`, null, TOP, Search._index.filenames[number], "title"];
  };

  const likeness = (message, query) => {
    const common = [...query].filter((word) => message.has(word)).length;
    return (2 * common) / (message.size + query.size);
  };

  const messageFor = (query) => {
    const wanted = words(query);
    if (wanted.size < LEAST_WORDS) return [];
    const rated = ENTRIES.filter((entry) => entry.message).map((entry) => [likeness(words(entry.name), wanted), entry]);
    const [best] = rated.sort((a, b) => b[0] - a[0]);
    return best && best[0] >= ALIKE ? [best[1]] : [];
  };

  const named = (page) => page.split("/").pop().replace(/-/g, " ").replace(/s$/, "");

  // 0: any result; then a class or function in the reference, which all streamers have if ThreadedStreamer has it, a heading, the
  // title of a page, and the name of a page in the URL, except in the reference.
  const rank = ([page, title, anchor, about], wanted) => {
    if (FOR_DEVELOPERS.test(page)) return 0;
    if (!anchor && !page.startsWith("api/") && named(page) === wanted.replace(/s$/, "")) return 5;
    if (anchor === `#${title}`) {
      if (plain(title).split(".").pop() !== wanted || about?.includes("attribute")) return 0;
      return title.includes(".ThreadedStreamer.") ? 2 : 1;
    }
    if (plain(title.split(" > ").pop()) !== wanted) return 0;
    return SELDOM_MEANT.test(page) ? 0 : title.includes(" > ") ? 3 : 4;
  };

  const search = Search._performSearch;
  Search._performSearch = (query, ...terms) => {
    const wanted = plain(query);
    const found = search(query, ...terms);
    const ranked = [0, 1, 2, 3, 4, 5].flatMap((each) => found.filter((item) => rank(item, wanted) === each));
    const options = ENTRIES.filter((entry) => !entry.message && entry.name === wanted).reverse();
    const best = [...messageFor(query), ...options].map(result);
    const places = new Set(best.map((item) => item[0] + item[2]));
    return [...ranked.filter((item) => !places.has(item[0] + item[2])), ...best];
  };
})();
