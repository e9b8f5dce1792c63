// Fields: which of them take text, how text gets in, and what they hold afterwards.

// Input types that hold a date or time, and the form of their value (HTML, "Dates and times").
const DATED = {
  __proto__: null,
  date: 'YYYY-MM-DD',
  'datetime-local': 'YYYY-MM-DDThh:mm',
  month: 'YYYY-MM',
  time: 'hh:mm',
  week: 'YYYY-Www',
};

const REFUSED_TYPES = {
  __proto__: null,
  button: 'a button is clicked',
  checkbox: 'a checkbox is clicked',
  color: 'a colour field is set with evaluate',
  file: 'a file field takes files, not text',
  hidden: 'a hidden field is not for people',
  image: 'a button is clicked',
  radio: 'a radio button is clicked',
  range: 'a slider is focused and moved with press ArrowRight and ArrowLeft',
  reset: 'a button is clicked',
  submit: 'a button is clicked',
};

// The element that a person means who types into `el`.
const fieldOf = el => (el.localName === 'label' && el.control !== null ? el.control : el);

// How `el` takes text: 'text', 'dated' or 'editable'; or why it does not.
function fieldKind(el) {
  switch (el.localName) {
    case 'textarea':
      return { kind: 'text' };
    case 'input':
      if (el.type in DATED) return { kind: 'dated' };
      return el.type in REFUSED_TYPES ? { refused: REFUSED_TYPES[el.type] } : { kind: 'text' };
    case 'select':
      return { refused: 'an option of a list is clicked' };
    default:
      return el.isContentEditable === true
        ? { kind: 'editable' }
        : { refused: 'it is not a field; click it and take a new snapshot to see whether one appears' };
  }
}

function activeElement() {
  let el = document.activeElement;
  while (el !== null) {
    const inner = shadowOf(el)?.activeElement ?? null;
    if (inner === null) break;
    el = inner;
  }
  return el;
}

// Makes the field ready to be typed into, its content selected; or sets a date. See `Begun` in actions/fill.rs.
function beginFill({ number, text }) {
  const found = elementOf(number);
  if (found === null) return { state: 'gone' };
  const el = fieldOf(found);
  const { kind, refused } = fieldKind(el);
  if (refused !== undefined) return { state: 'refused', why: refused };
  if (!isSeen(el)) return { state: 'hidden' };
  if (isDisabled(el)) return { state: 'disabled' };
  if (isInert(el)) return { state: 'inert' };
  if (el.readOnly === true || el.getAttribute('aria-readonly') === 'true') return { state: 'readonly' };
  if (el.localName === 'input' && /[\r\n]/.test(text)) {
    return { state: 'refused', why: 'it holds one line, and the text has line breaks' };
  }
  el.scrollIntoView({ behavior: 'instant', block: 'nearest', inline: 'nearest' });
  el.focus();
  if (kind === 'dated') return setDate(el, text);
  const active = activeElement();
  if (active !== el && !(kind === 'editable' && isInside(el, active))) return { state: 'unfocusable' };
  if (kind === 'text') el.select();
  else document.getSelection().selectAllChildren(el);
  return { state: 'focused', empty: heldBy(el) === '' };
}

function setDate(el, text) {
  if (text !== '') {
    // A field of its own tells whether the text is a date, and leaves the page's field alone.
    const probe = document.createElement('input');
    probe.type = el.type;
    probe.value = text;
    if (probe.value !== text) return { state: 'malformed', expected: DATED[el.type] };
  }
  el.value = text;
  el.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
  el.dispatchEvent(new Event('change', { bubbles: true }));
  return { state: 'set' };
}

function heldBy(el) {
  if (el.isContentEditable !== true || 'value' in el) return el.value;
  // What an editor adds to let the caret stand somewhere is not text.
  return el.innerText.replace(/\u00a0/g, ' ').replace(/\u200b|\ufeff/g, '').replace(/\n$/, '');
}

// Whether the field holds `text`, after the page had its say.
async function checkFill({ number, text }) {
  await tick();
  const found = elementOf(number);
  if (found === null) return { state: 'gone' };
  const el = fieldOf(found);
  const held = heldBy(el);
  const same = el.isContentEditable === true ? loose(held) === loose(text) : held === text;
  if (same) return { state: 'same' };
  return el.type === 'password'
    ? { state: 'other', held: null }
    : { state: 'other', held: shortened(held, VALUE_CHARS) };
}

// Editable regions turn line breaks into paragraphs, which read back as one or two.
const loose = text => text.replace(/\n+/g, '\n').replace(/[ \t]+(?=\n|$)/g, '');

// Chooses an option of a select element, as a click in its open list would.
function choose({ number, keepOthers }) {
  const option = elementOf(number);
  if (option === null) return { state: 'gone' };
  const select = option.closest('select');
  if (select === null || !isSeen(select)) return { state: 'hidden' };
  if (isDisabled(select) || option.disabled || option.closest('optgroup')?.disabled === true) return { state: 'disabled' };
  if (isInert(select)) return { state: 'inert' };
  select.scrollIntoView({ behavior: 'instant', block: 'nearest', inline: 'nearest' });
  select.focus();
  const before = Array.from(select.options, o => o.selected);
  if (select.multiple && keepOthers) option.selected = !option.selected;
  else {
    for (const other of select.options) if (other !== option && select.multiple) other.selected = false;
    option.selected = true;
  }
  if (Array.from(select.options, o => o.selected).some((selected, i) => selected !== before[i])) {
    select.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
    select.dispatchEvent(new Event('change', { bubbles: true }));
  }
  return { state: 'ready', x: 0, y: 0 };
}
