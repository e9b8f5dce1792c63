// The table of elements that were told to the caller. An element keeps its number as long as it lives.

// Deepest nesting of elements that is followed: far beyond real pages, below what the stack bears.
const DOM_NESTING = 1000;

const numbers = new WeakMap();
const elements = new Map();
const buried = new FinalizationRegistry(number => elements.delete(number));
let lastNumber = 0;

function numberOf(el) {
  let number = numbers.get(el);
  if (number === undefined) {
    number = ++lastNumber;
    numbers.set(el, number);
    elements.set(number, new WeakRef(el));
    buried.register(el, number);
  }
  return number;
}

// The element with `number`; null if it is gone or no longer part of the page.
function elementOf(number) {
  const el = elements.get(number)?.deref();
  return el !== undefined && el.isConnected ? el : null;
}

// Whether `node` is `ancestor` or lies in it, as rendered.
function isInside(node, ancestor) {
  for (let n = node; n !== null && n !== undefined; n = parentOf(n)) if (n === ancestor) return true;
  return false;
}

// `el` as a person who reads the page's source would point at it.
function describe(el) {
  let text = `<${el.localName}`;
  for (const attribute of ['id', 'class', 'role', 'aria-label']) {
    const value = el.getAttribute(attribute);
    if (value) text += ` ${attribute}=${JSON.stringify(shortened(value, 60))}`;
  }
  text += '>';
  const words = shortened(el.textContent ?? '', 40);
  return words === '' ? text : `${text} ${JSON.stringify(words)}`;
}

function modalDialog() {
  // The last one in the document stands for the topmost: script cannot ask for the order of the top layer.
  const modals = document.querySelectorAll('dialog:modal');
  return modals.length === 0 ? null : modals[modals.length - 1];
}

// Whether the inert attribute or a modal dialog keeps `el` out of a person's reach.
function isInert(el) {
  const modal = modalDialog();
  if (modal !== null && !isInside(el, modal)) return true;
  for (let n = el; n !== null; n = parentOf(n)) {
    if (n.inert === true) return true;
    if (n === modal) return false;
  }
  return false;
}
