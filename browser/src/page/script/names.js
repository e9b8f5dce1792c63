// Names: what an element is called (Accessible Name and Description Computation 1.2), and the text
// that a person sees in it.

// Longest name of an element, in characters.
const NAME_CHARS = 300;
// Longest line of plain text, in characters.
const TEXT_CHARS = 2000;

const collapse = text => text.replace(/\s+/g, ' ').trim();

// `text` with its white space collapsed, at most `limit` characters. The cut comes first, so that a
// book in one text node is not worked through for its first lines.
function shortened(text, limit) {
  const head = text.length > limit * 8 ? text.slice(0, limit * 8) : text;
  const flat = collapse(head);
  return flat.length > limit ? flat.slice(0, limit - 1).replace(/[\ud800-\udbff]$/, '') + '…' : flat;
}

// The shadow roots that script may not ask for; the caller hands them over (see `adopt` in api.js).
const closedRoots = new WeakMap();
// Elements about whose closed shadow root the caller was asked.
const askedHosts = new WeakSet();

const shadowOf = el => el.shadowRoot ?? closedRoots.get(el) ?? null;

// The children of `el` as they are rendered: those of its shadow root, or what a slot shows.
function renderedChildren(el) {
  const shadow = shadowOf(el);
  if (shadow !== null) return shadow.childNodes;
  if (el.localName === 'slot') {
    const assigned = el.assignedNodes();
    if (assigned.length > 0) return assigned;
  }
  return el.childNodes;
}

function byIds(el, ids) {
  const root = el.getRootNode();
  const found = [];
  for (const id of ids.split(/\s+/)) {
    const other = id === '' ? null : root.getElementById?.(id);
    if (other) found.push(other);
  }
  return found;
}

// The name of `el`, whose role is `role`; empty if it has none.
function nameOf(el, role) {
  const ids = el.getAttribute('aria-labelledby');
  if (ids !== null) {
    const text = byIds(el, ids).map(other => labelText(other, el)).join(' ');
    const name = shortened(text, NAME_CHARS);
    if (name !== '') return name;
  }
  const label = el.getAttribute('aria-label');
  if (label !== null && label.trim() !== '') return shortened(label, NAME_CHARS);
  let name = shortened(nativeName(el, role), NAME_CHARS);
  if (name === '' && NAMED_BY_CONTENT.has(role)) name = contentName(el, role);
  if (name === '') name = shortened(el.getAttribute('title') ?? '', NAME_CHARS);
  if (name === '' && FIELD_ROLES.has(role)) {
    name = shortened(el.getAttribute('placeholder') ?? el.getAttribute('aria-placeholder') ?? '', NAME_CHARS);
  }
  return name;
}

// The name that HTML gives by other means than ARIA.
function nativeName(el, role) {
  switch (el.localName) {
    case 'input':
      switch (el.type) {
        case 'button':
          return labelled(el) || el.value;
        case 'submit':
          return labelled(el) || (el.hasAttribute('value') ? el.value : 'Submit');
        case 'reset':
          return labelled(el) || (el.hasAttribute('value') ? el.value : 'Reset');
        case 'image':
          return labelled(el) || el.alt || el.title || 'Submit';
        default:
          return labelled(el);
      }
    case 'select':
    case 'textarea':
    case 'meter':
    case 'progress':
    case 'output':
      return labelled(el);
    case 'button':
      return labelled(el);
    case 'img':
    case 'area':
      return el.alt;
    case 'fieldset':
      return childText(el, 'legend');
    case 'figure':
      return childText(el, 'figcaption');
    case 'table':
      return childText(el, 'caption');
    case 'optgroup':
      return el.label;
    case 'option':
      return el.label || el.text;
    case 'svg':
      return el.querySelector(':scope > title')?.textContent ?? '';
    case 'details':
      return '';
    default:
      // A custom element that takes part in forms has labels too.
      return role !== 'generic' && el.localName.includes('-') ? labelled(el) : '';
  }
}

function labelled(el) {
  const labels = el.labels;
  if (!labels || labels.length === 0) return '';
  let text = '';
  for (const label of labels) text += ' ' + labelText(label, el);
  return text;
}

function childText(el, tag) {
  const child = el.querySelector(`:scope > ${tag}`);
  return child === null ? '' : labelText(child, el);
}

// The text of `el` in its role as label of `target`. A hidden label counts in full, since it was named on purpose.
function labelText(el, target) {
  const label = el.getAttribute('aria-label');
  if (label !== null && label.trim() !== '' && el !== target) return label;
  if (el.childElementCount === 0 && shadowOf(el) === null && !('value' in el)) return el.textContent;
  if (el === target) return visibleText(el, null);
  if (getComputedStyle(el).display === 'none') return el.textContent;
  if (el.localName !== 'label' && 'value' in el) return embeddedValue(el) ?? el.textContent;
  return visibleText(el, target);
}

// What an item of a tree or menu holds below itself is not its name.
const SUBMENU = '[role=group], [role=menu], [role=tree], ul, ol';

function contentName(el, role) {
  const plain = el.childElementCount === 0 && shadowOf(el) === null;
  const below = !plain && (role === 'treeitem' || role === 'menuitem') ? el.querySelector(SUBMENU) : null;
  const name = shortened(plain ? el.textContent : visibleText(el, below), NAME_CHARS);
  return name === '' ? generatedText(el) : name;
}

// Text that a style sheet puts there. Asked for only where there is no other text: it is slow.
function generatedText(el) {
  let text = '';
  for (const place of ['::before', '::after']) {
    const content = getComputedStyle(el, place).content;
    if (content.startsWith('"')) {
      // Icon fonts draw with characters of the private use area, which say nothing.
      text += content.slice(1, content.lastIndexOf('"')).replace(/[\ue000-\uf8ff]/g, '');
    }
  }
  return shortened(text, NAME_CHARS);
}

// The text in `el` as it is seen, with spaces where blocks part it and with the values of fields
// in it; `without` is left out. Stops when there is more than enough for a name.
function visibleText(el, without) {
  const out = { text: '' };
  gatherText(el, without, out, 0);
  return out.text;
}

function gatherText(el, without, out, nesting) {
  if (nesting > DOM_NESTING) return;
  for (const node of renderedChildren(el)) {
    if (out.text.length > NAME_CHARS * 4) return;
    if (node.nodeType === Node.TEXT_NODE) {
      out.text += node.data;
      continue;
    }
    if (node.nodeType !== Node.ELEMENT_NODE || node === without || UNSEEN.has(node.localName)) continue;
    if (node.localName === 'br') {
      out.text += ' ';
      continue;
    }
    const style = getComputedStyle(node);
    if (style.display === 'none' || style.visibility !== 'visible') continue;
    if (node.getAttribute('aria-hidden') === 'true') continue;
    const inline = style.display === 'inline' || style.display === 'contents';
    if (!inline) out.text += ' ';
    const own = ownText(node);
    if (own !== null) out.text += ` ${own} `;
    else gatherText(node, without, out, nesting + 1);
    if (!inline) out.text += ' ';
  }
}

// What `el` says as part of a longer text, if that is not its content.
function ownText(el) {
  const ids = el.getAttribute('aria-labelledby');
  if (ids !== null) {
    const text = byIds(el, ids).map(other => other.textContent).join(' ');
    if (text.trim() !== '') return text;
  }
  const label = el.getAttribute('aria-label');
  if (label !== null && label.trim() !== '') return label;
  switch (el.localName) {
    case 'img':
      return el.alt || el.title;
    case 'svg':
      return isNamed(el) ? el.getAttribute('title') : (el.querySelector(':scope > title')?.textContent ?? null);
    case 'iframe':
    case 'canvas':
    case 'video':
    case 'audio':
      return el.title;
    default:
      return embeddedValue(el);
  }
}

// The value of a field inside a label ("remind me [3] days before"); null for anything else.
function embeddedValue(el) {
  switch (el.localName) {
    case 'input':
      return /^(checkbox|radio|password|hidden|file|image)$/.test(el.type) ? '' : el.value;
    case 'textarea':
      return el.value;
    case 'select':
      return Array.from(el.selectedOptions, option => option.label).join(' ');
    default:
      return null;
  }
}
