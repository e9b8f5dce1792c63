// Locators: the elements that fit a description. What is to be seen goes before what is not, since a person means that.

// Fields, which have labels and placeholders.
const FIELDS = 'input, textarea, select, [contenteditable], [role=textbox], [role=searchbox], [role=combobox], [role=listbox], [role=checkbox], [role=radio], [role=switch], [role=slider], [role=spinbutton]';
// Elements whose text nobody sees.
const WORDLESS = new Set('script style noscript template head title'.split(' '));
// Buttons that say their value.
const SPEAKING = 'input[type=submit], input[type=button], input[type=reset]';

// The document and all shadow roots in it, nested ones included; notes elements that may have a closed one.
function allRoots(hosts) {
  const roots = [document];
  for (let i = 0; i < roots.length; i++) {
    for (const el of roots[i].querySelectorAll('*')) {
      const shadow = shadowOf(el);
      if (shadow !== null) roots.push(shadow);
      else if (el.localName.includes('-') && hosts.length < HOSTS_MAX && !askedHosts.has(el) && el.matches(':defined')) {
        askedHosts.add(el);
        hosts.push(el);
      }
    }
  }
  return roots;
}

function matcher({ text, exact }) {
  if (exact) return words => collapse(words) === text;
  const needle = collapse(text).toLowerCase();
  return words => collapse(words).toLowerCase().includes(needle);
}

// Gathers the innermost elements below `parent` whose text fits; answers the text of `parent`.
function gatherByText(parent, fits, out, nesting) {
  let text = '';
  if (nesting > DOM_NESTING) return text;
  for (let node = parent.firstChild; node !== null; node = node.nextSibling) {
    if (node.nodeType === Node.TEXT_NODE) text += node.data;
    else if (node.nodeType === Node.ELEMENT_NODE && !WORDLESS.has(node.localName)) {
      if (node.matches(SPEAKING)) {
        if (fits(node.value)) out.push(node);
        continue;
      }
      const before = out.length;
      const inner = gatherByText(node, fits, out, nesting + 1);
      if (out.length === before && fits(inner)) out.push(node);
      text += inner;
    }
  }
  return text;
}

const allOf = (roots, selector) => roots.flatMap(root => Array.from(root.querySelectorAll(selector)));

const FINDERS = {
  __proto__: null,
  css: (roots, { text }) => allOf(roots, text),
  testid: (roots, { text }) => allOf(roots, `[data-testid=${CSS.escape(text)}]`),
  text: (roots, wanted) => {
    const found = [];
    const fits = matcher(wanted);
    for (const root of roots) gatherByText(root, fits, found, 0);
    return found;
  },
  label: (roots, wanted) => {
    const fits = matcher(wanted);
    return allOf(roots, FIELDS).filter(el => el.type !== 'hidden' && fits(nameOf(el, roleOf(el))));
  },
  placeholder: (roots, wanted) => {
    const fits = matcher(wanted);
    return allOf(roots, '[placeholder]').filter(el => fits(el.placeholder ?? el.getAttribute('placeholder')));
  },
  role: (roots, { text, name }) =>
    allOf(roots, '*').filter(el => roleOf(el) === text && (name === null || nameOf(el, text) === collapse(name))),
};

// The first `limit` elements that fit and how many there are; `hosts` are to be asked about closed shadow roots first.
function locate({ kind, text, exact, name, limit }) {
  const hosts = [];
  const roots = allRoots(hosts);
  let found;
  try {
    found = FINDERS[kind](roots, { text, exact, name });
  } catch (error) {
    if (error instanceof DOMException) return { invalid: shortened(error.message, 200) };
    throw error;
  }
  const seen = found.filter(isSeen);
  return {
    hosts: hosts.map(numberOf),
    total: seen.length > 0 ? seen.length : found.length,
    seen: seen.length > 0,
    first: (seen.length > 0 ? seen : found).slice(0, limit).map(el => [numberOf(el), describe(el)]),
  };
}
