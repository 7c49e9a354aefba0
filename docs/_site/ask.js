// node ask.js SITE QUESTION...: prints the page that the search of a built site finds first for each question.
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const FILES = ["documentation_options", "doctools", "sphinx_highlight", "searchtools", "base-stemmer", "english-stemmer", "language_data", "entries", "search"];

const [site, ...questions] = process.argv.slice(2);
const nothing = () => {};
const element = { children: [], dataset: {}, firstChild: null, setAttribute: nothing, addEventListener: nothing };
const document = { documentElement: element, body: element, readyState: "loading", addEventListener: nothing, getElementById: () => element, querySelectorAll: () => [] };
const window = { document, console, URLSearchParams, location: { search: "" }, localStorage: { getItem: nothing, setItem: nothing, removeItem: nothing }, addEventListener: nothing };
window.window = window;
const context = vm.createContext(window);
const run = (file) => vm.runInContext(fs.readFileSync(path.join(site, file), "utf8"), context);
for (const name of FILES) run(`_static/${name}.js`);
run("searchindex.js");
context.questions = questions;
const first = vm.runInContext(
  "questions.map((question) => Search._performSearch(...Search._parseQuery(question)).at(-1)?.[0] ?? '')",
  context,
);
console.log(first.join("\n"));
