// The document: `h` describes an element, and `patch` makes the document so. Elements that stay are kept, so that focus,
// selection and open parts survive a refresh. Texts stay texts: nothing here parses HTML.
class Description {}
const h = (name, attributes, ...children) =>
  Object.assign(new Description(), {
    name,
    attributes: attributes ?? {},
    children: children
      .flat(9)
      .filter((child) => child != null && child !== "" && typeof child !== "boolean")
      // An object in a document of others is no element.
      .map((child) => (child instanceof Description ? child : String(child)))
  });
const byId = (id) => document.getElementById(id);

// Characters that nobody sees, or that reorder their neighbours, are shown by their numbers.
const visible = (text) =>
  String(text).replace(
    /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g,
    (character) => `⟨${character.charCodeAt(0).toString(16)}⟩`
  );

function patch(parent, wanted) {
  const keyed = new Map([...parent.childNodes].map((node) => [node.key, node]));
  const staying = new Set(wanted.map(({ attributes }) => attributes?.key !== undefined && keyed.get(attributes.key)));
  let at = parent.firstChild;
  const remove = () => {
    const next = at.nextSibling;
    at.remove();
    at = next;
  };
  for (const spec of wanted) {
    while (at?.key !== undefined && !staying.has(at)) remove();
    const { name, attributes } = spec,
      key = attributes?.key;
    let node = key !== undefined ? keyed.get(key) : at?.key === undefined ? at : null;
    if (!node || (name ? node.localName !== name : node.nodeType !== 3)) {
      node = name
        ? document.createElementNS(name === "svg" ? "http://www.w3.org/2000/svg" : parent.namespaceURI, name)
        : document.createTextNode("");
      node.key = key;
    }
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    if (name) update(node, spec);
    else if (node.data !== visible(spec)) node.data = visible(spec);
  }
  while (at) remove();
}

const fill = (id, ...content) => patch(byId(id), h("", null, content).children);

function update(node, { attributes, children }) {
  for (const name in { ...node.given, ...attributes }) {
    const value = attributes[name];
    if (name === "key" || value === node.given?.[name]) continue;
    if (name.startsWith("on")) node[name] = value;
    else if (value == null || value === false) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.given = attributes;
  patch(node, children);
}

// Only web addresses of others become links.
const link = (url) => (/^https?:/i.test(url) ? h("a", { href: url, rel: "noopener noreferrer" }, url) : url);
// Whoever has no token gets the pages of the gateway, which may be public.
const inside = (route, text) => h("a", { href: page.who === "nobody" ? route : `#/${route}` }, text);
const section = (title, ...content) => h("section", { key: title, "aria-label": title }, h("h2", null, title), content);
const bar = (...content) => h("div", { class: "bar" }, content);
const muted = (...text) => h("p", { class: "muted" }, text);
const code = (text) => h("code", null, text);
const json = (value) => h("pre", null, JSON.stringify(value, null, 2).slice(0, SHOWN_BODY));
// What is not open costs nothing.
const opened = {};
const fold = (key, summary, make) =>
  h(
    "details",
    {
      key,
      open: opened[key],
      ontoggle: ({ target }) => {
        opened[key] = target.open;
        render();
      }
    },
    h("summary", null, summary),
    opened[key] && make()
  );
// The first of a long list, and a button that shows more.
const limits = {};
function some(key, list, limit = 100) {
  limit = limits[key] ?? limit;
  const more = () => {
    limits[key] = limit + 100;
    render();
  };
  return [
    list.slice(0, limit),
    list.length > limit && h("button", { onclick: more }, `More of ${number(list.length)}`)
  ];
}
