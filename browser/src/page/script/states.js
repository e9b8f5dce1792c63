// States: what a person sees of an element beyond its name, as ` key=value` words.

// Longest value of a field in an outline, in characters.
const VALUE_CHARS = 300;

const CHECKABLE = new Set('checkbox menuitemcheckbox menuitemradio radio switch'.split(' '));
const SELECTABLE = new Set('columnheader gridcell option row rowheader tab treeitem'.split(' '));
const CURRENT = new Set('date location page step time true'.split(' '));
const WITH_RANGE = new Set('meter progressbar scrollbar slider spinbutton'.split(' '));

// Whether a person could not operate `el` for now.
function isDisabled(el) {
  if (el.matches(':disabled')) return true;
  const state = el.closest('[aria-disabled]');
  return state !== null && state.getAttribute('aria-disabled') === 'true';
}

function checkedState(el, role) {
  if (el.localName === 'input' && (el.type === 'checkbox' || el.type === 'radio')) {
    return el.indeterminate ? 'mixed' : String(el.checked);
  }
  if (!CHECKABLE.has(role)) return null;
  const checked = el.getAttribute('aria-checked');
  return checked === 'mixed' || checked === 'true' ? checked : 'false';
}

function expandedState(el) {
  if (el.localName === 'summary' && el.parentElement?.localName === 'details') return String(el.parentElement.open);
  const expanded = el.getAttribute('aria-expanded');
  if (expanded === 'true' || expanded === 'false') return expanded;
  // A button may open a popover by attribute alone.
  const popover = el.popoverTargetElement;
  return popover ? String(popover.matches(':popover-open')) : null;
}

// What a field holds; null where there is nothing to tell. Passwords are never told.
function valueOf(el, role) {
  switch (el.localName) {
    case 'input':
      if (el.type === 'file') return Array.from(el.files, file => file.name).join(', ');
      if (el.type === 'password' || CHECKABLE.has(role)) return null;
      return role === 'button' && el.type !== 'color' ? null : el.value;
    case 'textarea':
      return el.value;
    case 'select':
      return Array.from(el.selectedOptions, option => option.label).join(', ');
    case 'progress':
      return el.position < 0 ? null : String(el.value);
    case 'meter':
      return String(el.value);
    default:
      if (WITH_RANGE.has(role)) return el.getAttribute('aria-valuetext') ?? el.getAttribute('aria-valuenow');
      if (FIELD_ROLES.has(role)) return el.isContentEditable ? el.innerText : textIfNotName(el);
      return null;
  }
}

// A combobox made of other elements shows its value as text, unless an input in it does.
function textIfNotName(el) {
  return el.querySelector('input, textarea, [contenteditable]') === null ? visibleText(el, null) : null;
}

// The states of `el`; `inert` says that a modal dialog or the inert attribute keeps it out of reach.
function statesOf(el, role, inert) {
  let states = '';
  const say = (key, value) => {
    states += ` ${key}=${value}`;
  };
  if (role === 'heading') {
    const level = el.getAttribute('aria-level') ?? /^h([1-6])$/.exec(el.localName)?.[1];
    if (level) say('level', Number.parseInt(level, 10) || 2);
  }
  if (el.localName === 'input' && TOLD_INPUT_TYPES.has(el.type)) say('type', el.type);
  const checked = checkedState(el, role);
  if (checked !== null) say('checked', checked);
  if (inert || isDisabled(el)) say('disabled', true);
  const expanded = expandedState(el);
  if (expanded !== null) say('expanded', expanded);
  if (SELECTABLE.has(role) && (el.localName === 'option' ? el.selected : el.getAttribute('aria-selected') === 'true')) {
    say('selected', true);
  }
  const pressed = el.getAttribute('aria-pressed');
  if (pressed === 'true' || pressed === 'false' || pressed === 'mixed') say('pressed', pressed);
  if (el.required === true || el.getAttribute('aria-required') === 'true') say('required', true);
  if (FIELD_ROLES.has(role) && ((el.readOnly === true && el.localName !== 'select') || el.getAttribute('aria-readonly') === 'true')) {
    say('readonly', true);
  }
  const current = el.getAttribute('aria-current');
  if (current !== null && current !== '' && current !== 'false') say('current', CURRENT.has(current) ? current : true);
  if (el.getAttribute('aria-invalid') === 'true') say('invalid', true);
  if (role === 'dialog' && el.localName === 'dialog' && el.matches(':modal')) say('modal', true);
  if (el.localName === 'canvas') say('size', `${el.width}x${el.height}`);
  const value = valueOf(el, role);
  if (value !== null && value !== undefined) {
    const told = shortened(value, VALUE_CHARS);
    if (told !== '') say('value', JSON.stringify(told));
  }
  if (isFocused(el)) say('focused', true);
  return states;
}

function isFocused(el) {
  return el.getRootNode().activeElement === el && el.localName !== 'body' && el.localName !== 'iframe';
}
