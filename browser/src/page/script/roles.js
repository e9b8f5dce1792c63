// Roles: what an element is, by its `role` attribute or by what HTML says it means
// (WAI-ARIA 1.2, HTML-AAM 1.0). Not here: names and states.
//
// All files of this folder are parts of one function body (see `page/script.rs`), so that they share
// their declarations with each other and with nothing else.

// Roles that an author may name. Abstract ones are left out, as the standard says to ignore them.
const ROLES = new Set(
  (
    'alert alertdialog application article banner blockquote button caption cell checkbox code ' +
    'columnheader combobox complementary contentinfo definition deletion dialog directory document ' +
    'emphasis feed figure form generic grid gridcell group heading img insertion link list listbox ' +
    'listitem log main mark marquee math menu menubar menuitem menuitemcheckbox menuitemradio meter ' +
    'navigation none note option paragraph presentation progressbar radio radiogroup region row ' +
    'rowgroup rowheader scrollbar search searchbox separator slider spinbutton status strong ' +
    'subscript suggestion superscript switch tab table tablist tabpanel term textbox time timer ' +
    'toolbar tooltip tree treegrid treeitem'
  ).split(' '),
);

// Other spellings of a role, and the one that the outline uses.
const SAME_ROLE = { presentation: 'none', directory: 'list', image: 'img' };

// Elements whose role depends on nothing but their name. Those that only mark up a run of text
// (`em`, `code`, `p`) count as generic: their text says all that an outline needs.
const ROLE_OF_TAG = {
  __proto__: null,
  article: 'article',
  blockquote: 'blockquote',
  button: 'button',
  canvas: 'canvas',
  datalist: 'listbox',
  dd: 'definition',
  details: 'group',
  dialog: 'dialog',
  dt: 'term',
  fieldset: 'group',
  figure: 'figure',
  h1: 'heading',
  h2: 'heading',
  h3: 'heading',
  h4: 'heading',
  h5: 'heading',
  h6: 'heading',
  hgroup: 'group',
  hr: 'separator',
  iframe: 'iframe',
  frame: 'iframe',
  main: 'main',
  math: 'math',
  menu: 'list',
  meter: 'meter',
  nav: 'navigation',
  ol: 'list',
  optgroup: 'group',
  option: 'option',
  output: 'status',
  progress: 'progressbar',
  search: 'search',
  table: 'table',
  textarea: 'textbox',
  ul: 'list',
  video: 'video',
};

const ROLE_OF_INPUT = {
  __proto__: null,
  button: 'button',
  checkbox: 'checkbox',
  color: 'button',
  file: 'button',
  image: 'button',
  number: 'spinbutton',
  radio: 'radio',
  range: 'slider',
  reset: 'button',
  search: 'searchbox',
  submit: 'button',
};

// Input types of which a reader must know the form of the value, or that are not what they look like.
const TOLD_INPUT_TYPES = new Set(
  'color date datetime-local file month password time week'.split(' '),
);

// Roles that a person operates. They always get a ref.
const OPERABLE = new Set(
  (
    'button canvas checkbox combobox iframe link listbox menuitem menuitemcheckbox menuitemradio ' +
    'option radio scrollbar searchbox slider spinbutton switch tab textbox treeitem video'
  ).split(' '),
);

// Roles that hold a part of the page. They get a ref, so that a snapshot of that part can be asked for.
const PARTS = new Set(
  (
    'alertdialog article banner complementary contentinfo dialog feed figure form grid heading img ' +
    'list log main menu menubar navigation radiogroup region search table tablist tabpanel toolbar ' +
    'tree treegrid'
  ).split(' '),
);

// Roles whose name is the text that they hold (WAI-ARIA "name from: contents"). Cells and rows are not
// here: their content is outlined below them instead of being told twice.
const NAMED_BY_CONTENT = new Set(
  (
    'button checkbox heading link menuitem menuitemcheckbox menuitemradio option radio switch tab ' +
    'tooltip treeitem'
  ).split(' '),
);

// Roles whose content is presentation: only what can be operated is looked for in there.
const LEAVES = new Set(
  (
    'button checkbox img math menuitemcheckbox menuitemradio meter option progressbar radio ' +
    'scrollbar separator slider switch tab'
  ).split(' '),
);

// Roles that stand in the outline only for being named.
const NEED_NAME = new Set('form group region'.split(' '));

const FIELD_ROLES = new Set('combobox searchbox spinbutton textbox'.split(' '));

// Elements that nobody sees.
const UNSEEN = new Set(
  'base head link meta noscript param script source style template title track'.split(' '),
);

// `header` and `footer` belong to the page only outside these.
const SECTIONS = 'article, aside, main, nav, section';

const isWithin = (el, selector) => el.parentElement !== null && el.parentElement.closest(selector) !== null;

// The nearest node of the flattened tree above `node`: through slots and out of shadow roots.
function parentOf(node) {
  const parent = node.assignedSlot ?? node.parentNode;
  return parent instanceof ShadowRoot ? parent.host : parent;
}

function isFocusable(el) {
  return el.tabIndex >= 0 || el.hasAttribute('tabindex');
}

// A role of nothing is not taken from elements that one can focus or that are named anyway
// (WAI-ARIA 1.2, section 8.5).
function keepsOwnRole(el) {
  return isFocusable(el) || el.hasAttribute('aria-label') || el.hasAttribute('aria-labelledby');
}

function roleOf(el) {
  const explicit = el.getAttribute('role');
  if (explicit !== null) {
    for (const token of explicit.toLowerCase().split(/\s+/)) {
      const role = SAME_ROLE[token] ?? token;
      if (!ROLES.has(role)) continue;
      if (role === 'none' && keepsOwnRole(el)) break;
      return role;
    }
  }
  return implicitRole(el);
}

function tableRole(el) {
  const table = el.closest('table');
  const role = table?.getAttribute('role');
  return role === 'none' || role === 'presentation' ? null : (role ?? 'table');
}

function implicitRole(el) {
  const tag = el.localName;
  const fixed = ROLE_OF_TAG[tag];
  if (fixed !== undefined) return fixed;
  switch (tag) {
    case 'a':
    case 'area':
      return el.hasAttribute('href') ? 'link' : generic(el);
    case 'input': {
      const role = ROLE_OF_INPUT[el.type] ?? 'textbox';
      return el.list !== null && (role === 'textbox' || role === 'searchbox') ? 'combobox' : role;
    }
    case 'select':
      return el.multiple || el.size > 1 ? 'listbox' : 'combobox';
    case 'img':
      return el.getAttribute('alt') === '' && !keepsOwnRole(el) ? 'none' : 'img';
    case 'svg':
      return isNamed(el) || el.querySelector(':scope > title') !== null ? 'img' : 'generic';
    case 'summary':
      return el.parentElement?.localName === 'details' ? 'button' : generic(el);
    case 'li': {
      const parent = el.parentElement;
      const list = parent !== null && /^(ul|ol|menu)$/.test(parent.localName);
      return list && roleOf(parent) === 'list' ? 'listitem' : generic(el);
    }
    case 'aside':
      return !isWithin(el, SECTIONS) || isNamed(el) ? 'complementary' : 'generic';
    case 'header':
      return isWithin(el, SECTIONS) ? generic(el) : 'banner';
    case 'footer':
      return isWithin(el, SECTIONS) ? generic(el) : 'contentinfo';
    case 'section':
      return isNamed(el) ? 'region' : generic(el);
    case 'form':
      return isNamed(el) ? 'form' : 'generic';
    case 'audio':
      return el.controls ? 'audio' : 'none';
    case 'tbody':
    case 'thead':
    case 'tfoot':
      return 'generic';
    case 'tr':
      return tableRole(el) === null ? 'generic' : 'row';
    case 'td': {
      const role = tableRole(el);
      if (role === null) return 'generic';
      return role === 'grid' || role === 'treegrid' ? 'gridcell' : 'cell';
    }
    case 'th': {
      if (tableRole(el) === null) return 'generic';
      const scope = el.getAttribute('scope');
      if (scope === 'row' || scope === 'rowgroup') return 'rowheader';
      if (scope === 'col' || scope === 'colgroup') return 'columnheader';
      const row = el.parentElement;
      return el.closest('thead') === null && row !== null && row.querySelector(':scope > td') !== null
        ? 'rowheader'
        : 'columnheader';
    }
    default:
      return generic(el);
  }
}

// The root of an editable region is a text field, whatever its element.
function generic(el) {
  return isEditingHost(el) ? 'textbox' : 'generic';
}

function isEditingHost(el) {
  return el.isContentEditable === true && el.parentElement?.isContentEditable !== true;
}

function isNamed(el) {
  return el.hasAttribute('aria-label') || el.hasAttribute('aria-labelledby') || el.hasAttribute('title');
}
