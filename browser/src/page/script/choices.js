// Choices: lists, checkboxes, radio buttons and switches, and what they are set to afterwards.

// Options that an error names.
const OPTIONS_NAMED = 20;

// The options of `select` with these values or, where no value fits, labels; or why not.
function optionsOf(select, values) {
  const options = Array.from(select.options);
  const chosen = [];
  for (const value of values) {
    const option = options.find(o => o.value === value) ?? options.find(o => o.label.trim() === value.trim());
    if (option === undefined) {
      const there = options.slice(0, OPTIONS_NAMED).map(o => JSON.stringify(shortened(o.value, 40)));
      const more = options.length > OPTIONS_NAMED ? ` and ${options.length - OPTIONS_NAMED} more` : '';
      return { state: 'refused', why: `no option ${JSON.stringify(shortened(value, 40))}; its values are ${there.join(', ')}${more}` };
    }
    if (option.disabled || option.closest('optgroup')?.disabled === true) return { state: 'disabled' };
    chosen.push(option);
  }
  return { chosen };
}

// Selects options by value or label, as a person would in the open list.
function select({ number, values }) {
  const found = elementOf(number);
  if (found === null) return { state: 'gone' };
  const el = fieldOf(found);
  if (el.localName !== 'select') return { state: 'refused', why: 'it is not a list of options; click it, then click the option' };
  if (!isSeen(el)) return { state: 'hidden' };
  if (isDisabled(el)) return { state: 'disabled' };
  if (isInert(el)) return { state: 'inert' };
  if (!el.multiple && values.length > 1) return { state: 'refused', why: 'it takes one option' };
  const { chosen, ...refusal } = optionsOf(el, values);
  if (chosen === undefined) return refusal;
  el.scrollIntoView({ behavior: 'instant', block: 'nearest', inline: 'nearest' });
  el.focus();
  const wanted = new Set(chosen);
  const differs = Array.from(el.options).some(option => option.selected !== wanted.has(option));
  if (!differs) return { state: 'ready', x: 0, y: 0 };
  if (el.multiple) for (const option of el.options) option.selected = wanted.has(option);
  else chosen[0].selected = true;
  el.dispatchEvent(new Event('input', { bubbles: true, composed: true }));
  el.dispatchEvent(new Event('change', { bubbles: true }));
  return { state: 'ready', x: 0, y: 0 };
}

// What the list holds after the page had its say.
async function selected({ number, values }) {
  await tick();
  const found = elementOf(number);
  if (found === null) return { state: 'gone' };
  const el = fieldOf(found);
  const { chosen } = optionsOf(el, values);
  const now = Array.from(el.selectedOptions);
  const same = chosen !== undefined && now.length === new Set(chosen).size && chosen.every(option => option.selected);
  return same ? { state: 'same' } : { state: 'other', held: shortened(now.map(option => option.value).join(', '), VALUE_CHARS) };
}

// Whether the element can be checked, is, and what a person would click: itself, or the label that stands for it.
function checkable({ number }) {
  const found = elementOf(number);
  if (found === null) return { state: 'gone' };
  const el = fieldOf(found);
  const role = roleOf(el);
  const checked = checkedState(el, role);
  if (checked === null) return { state: 'refused', why: 'it is no checkbox, radio button or switch; click it' };
  const label = isSeen(el) && boxesOf(el).length > 0 ? null : Array.from(el.labels ?? []).find(isSeen);
  return {
    state: 'checkable',
    checked,
    radio: role === 'radio' || role === 'menuitemradio',
    click: numberOf(label ?? el),
  };
}

// Whether the element is a file field, or one stands behind it as its label's.
function fileField({ number, count }) {
  const found = elementOf(number);
  if (found === null) return { state: 'gone' };
  const el = fieldOf(found);
  if (el.localName !== 'input' || el.type !== 'file') return { state: 'button' };
  if (isDisabled(el)) return { state: 'disabled' };
  if (el.webkitdirectory) return { state: 'refused', why: 'it asks for a folder, and only files are given' };
  if (!el.multiple && count > 1) return { state: 'refused', why: 'it takes one file' };
  return { state: 'field', number: numberOf(el) };
}
