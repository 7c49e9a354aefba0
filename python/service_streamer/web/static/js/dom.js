// Small helpers for elements. Text is only ever set as text, never parsed as HTML.

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") made.className = value;
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Leaves the node alone if nothing has changed, so that a screen reader is not disturbed.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Makes the children of a node those of a list of keys; reuses what is there.
export function keyed(parent, keys, make) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const wanted = keys.map((key) => {
    const child = before.get(String(key)) ?? make(key);
    child.dataset.key = key;
    return child;
  });
  if (wanted.length !== parent.children.length || wanted.some((child, i) => parent.children[i] !== child)) {
    parent.replaceChildren(...wanted);
  }
  return wanted;
}

// The pill of a streamer or hub. `ready` is null if the server does not answer: then `why` is the
// time of its last answer.
export function showHealth(root, ready, why) {
  const health = root.querySelector(".health");
  health.dataset.state = ready === null ? "unknown" : ready ? "ready" : "unready";
  setText(health, ready === null ? `Not known: no answer since ${why}` : ready ? "Ready" : `Not ready: ${why.split("\n")[0]}`);
}
