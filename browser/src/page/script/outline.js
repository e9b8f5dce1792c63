// The outline: one walk over what is rendered, one line for each element that means something.
// Generic wrappers have no line; what they hold moves up, so that levels count meaning.

// Elements that one walk looks at. A page beyond this is cut; it would take seconds.
const NODES_MAX = 300_000;
// Options of a closed or scrolling list that the outline shows before it tells their number. `find` sees all.
const OPTIONS_SHOWN = 25;
// Lines below the wanted depth that are counted; beyond, their number is not worth the time.
const DEEPER_MAX = 200;
// Frames with a side up to this many pixels are beacons, not content.
const BEACON_PIXELS = 2;

// Elements of one walk about whose closed shadow root the caller is asked.
const HOSTS_MAX = 100;

// Roles without a line of their own: they mark up text or group what stands for itself.
const TRANSPARENT = new Set(
  (
    'caption code deletion emphasis generic insertion mark none paragraph rowgroup separator strong ' +
    'subscript suggestion superscript time'
  ).split(' '),
);

// Elements whose text is the name of their parent.
const CAPTION_OF = { __proto__: null, legend: 'fieldset', caption: 'table', figcaption: 'figure' };

// What a walk knows of the elements above.
const QUIET = 1; // a name above tells this text already
const POINTER = 2; // the pointer shows a hand already
const INERT = 4; // out of reach

class Outline {
  // `depth` levels, `limit` lines; `boxes`: measure them.
  constructor({ depth, limit, boxes }) {
    this.depth = depth;
    this.limit = limit;
    this.boxes = boxes;
    this.lines = [];
    // Lines below `depth`, up to DEEPER_MAX.
    this.deeper = 0;
    // The limit is reached and there is more.
    this.over = false;
    // Elements looked at.
    this.nodes = 0;
    // Too many elements, or too deep.
    this.cut = false;
    this.text = '';
    this.textLevel = 0;
    // Elements that may have a closed shadow root.
    this.hosts = [];
    this.modal = modalDialog();
    this.lastPointer = { parent: null, tag: '', pointer: false };
  }

  walk(root) {
    const inert = root === document.documentElement ? this.modal !== null : isInert(root);
    this.element(root, 0, inert ? INERT : 0, 0);
    this.flush();
  }

  // Whether a line at `level` is not going to be told.
  full(level) {
    return level >= this.depth || this.lines.length >= this.limit;
  }

  // Adds `line`, or counts it; answers whether it was added.
  push(line) {
    if (line.level >= this.depth) this.deeper++;
    else if (this.lines.length >= this.limit) this.over = true;
    else {
      this.lines.push(line);
      return true;
    }
    return false;
  }

  // About how many lines there are beyond the limit: as many for an element as so far.
  more(root) {
    if (!this.over) return 0;
    const left = root.getElementsByTagName('*').length - this.nodes;
    return Math.max(1, Math.round((left * this.lines.length) / Math.max(1, this.nodes)));
  }

  addText(text, level) {
    if (this.text === '') this.textLevel = level;
    this.text += text;
  }

  // Ends the current run of text.
  flush() {
    if (this.text === '') return;
    const text = shortened(this.text, TEXT_CHARS);
    this.text = '';
    if (text !== '') this.push({ level: this.textLevel, el: null, role: 'text', name: text, states: '' });
  }

  children(el, level, flags, nesting, textShown) {
    if (el.localName === 'details' && !el.open) {
      const summary = el.querySelector(':scope > summary');
      if (summary !== null) this.element(summary, level, flags, nesting + 1);
      return;
    }
    const shadow = shadowOf(el);
    if (shadow === null && el.localName.includes('-')) this.noteHost(el);
    if (shadow === null && el.localName === 'slot') {
      const assigned = el.assignedNodes();
      if (assigned.length > 0) {
        for (const node of assigned) this.node(node, level, flags, nesting, textShown);
        return;
      }
    }
    for (let node = (shadow ?? el).firstChild; node !== null; node = node.nextSibling) {
      this.node(node, level, flags, nesting, textShown);
    }
  }

  // A custom element without an open shadow root may have a closed one, which the caller can find out.
  noteHost(el) {
    if (this.hosts.length >= HOSTS_MAX || askedHosts.has(el) || !el.matches(':defined')) return;
    askedHosts.add(el);
    this.hosts.push(el);
  }

  node(node, level, flags, nesting, textShown) {
    if (node.nodeType === Node.ELEMENT_NODE) {
      try {
        this.element(node, level, flags, nesting + 1);
      } catch {
        // A form whose fields are named like properties of elements hides these from us.
        this.flush();
        this.push({ level, el: null, role: 'text', name: '(this part of the page cannot be read)', states: '' });
      }
    } else if (node.nodeType === Node.TEXT_NODE && textShown) this.addText(node.data, level);
  }

  element(el, level, flags, nesting) {
    if (this.over || (level >= this.depth && this.deeper >= DEEPER_MAX)) return;
    const tag = el.localName;
    if (UNSEEN.has(tag)) return;
    if (++this.nodes > NODES_MAX || nesting > DOM_NESTING) {
      this.cut = true;
      return;
    }
    const style = getComputedStyle(el);
    const display = style.display;
    if (display === 'none') return;
    if (el.getAttribute('aria-hidden') === 'true' && tag !== 'body' && tag !== 'html') return;
    if (tag === 'br') {
      this.addText(' ', level);
      return;
    }
    if (el.inert === true) flags |= INERT;
    if (el === this.modal) flags &= ~INERT;
    const block = display !== 'inline' && display !== 'contents';
    const ownLine = block && !display.startsWith('inline') && !display.startsWith('ruby');
    if (ownLine) this.flush();
    else if (block) this.addText(' ', level);
    if (style.visibility === 'visible') this.shown(el, tag, style, level, flags, nesting);
    else this.children(el, level, flags, nesting, false);
    if (ownLine) this.flush();
    else if (block) this.addText(' ', level);
  }

  // A visible element.
  shown(el, tag, style, level, flags, nesting) {
    const role = tag === 'iframe' || tag === 'frame' ? 'iframe' : roleOf(el);
    const focusable = el.tabIndex >= 0;
    const pointer = focusable || this.hasPointer(el, tag, style);
    const below = pointer ? flags | POINTER : flags & ~POINTER;
    if (tag in CAPTION_OF && el.parentElement?.localName === CAPTION_OF[tag] && !isNamed(el.parentElement)) {
      // It is the name of the element around.
      this.children(el, level, below | QUIET, nesting, false);
      return;
    }
    if (tag === 'label' && this.label(el, level, flags, below, nesting)) return;
    const clickable = pointer && (flags & POINTER) === 0 && tag !== 'label' && !(flags & QUIET);
    let named = TRANSPARENT.has(role)
      ? focusable || clickable || (role === 'generic' && el.hasAttribute('aria-label'))
      : focusable || clickable || !NEED_NAME.has(role) || this.isNamedPart(el, role);
    const operable = focusable || clickable || OPERABLE.has(role);
    if ((flags & QUIET) !== 0 && !operable) named = false;
    if (!named) {
      if (!skipsContent(el, style)) this.children(el, level, below, nesting, (flags & QUIET) === 0);
      return;
    }
    if (role === 'iframe') {
      this.frame(el, level, flags);
      return;
    }
    this.flush();
    const line = {
      level,
      el: operable || PARTS.has(role) ? el : null,
      role: role === 'none' ? 'generic' : role,
      name: '',
      states: '',
    };
    if (!this.full(level)) {
      line.name = nameOf(el, role);
      line.states = statesOf(el, role, (flags & INERT) !== 0);
      line.measured = el;
    }
    const added = this.push(line);
    this.content(el, tag, role, line, below, nesting, style);
    if (added) this.fold(line);
  }

  // Whether the pointer shows a hand over `el`. Elements without attributes look like their like next
  // to them, which saves the style of most cells and items.
  hasPointer(el, tag, style) {
    if (el.hasAttributes()) return style.cursor === 'pointer';
    const known = this.lastPointer;
    if (known.parent !== el.parentNode || known.tag !== tag) {
      this.lastPointer = { parent: el.parentNode, tag, pointer: style.cursor === 'pointer' };
    }
    return this.lastPointer.pointer;
  }

  isNamedPart(el, role) {
    return isNamed(el) || (role === 'group' && nativeName(el, role).trim() !== '');
  }

  // What stands below the line of `el`.
  content(el, tag, role, line, flags, nesting, style) {
    if (skipsContent(el, style)) return;
    const level = line.level + 1;
    if (tag === 'select') {
      this.options(el, level, flags);
      return;
    }
    if (tag === 'input' || tag === 'textarea' || tag === 'canvas' || tag === 'video' || tag === 'progress' || tag === 'meter') {
      return;
    }
    if (el.isContentEditable === true && FIELD_ROLES.has(role)) return;
    if (LEAVES.has(role) && el.firstElementChild === null && shadowOf(el) === null) return;
    const told =
      NAMED_BY_CONTENT.has(role) || LEAVES.has(role) || (FIELD_ROLES.has(role) && line.states.includes(' value='));
    this.children(el, level, told ? flags | QUIET : flags & ~QUIET, nesting, !told);
    this.flush();
  }

  // Lets the only thing below `line` be its name, if that is a text: `[listitem] "Milk"`.
  fold(line) {
    const last = this.lines.length - 1;
    const only = this.lines[last];
    if (line.name === '' && last >= 1 && this.lines[last - 1] === line && only.role === 'text') {
      line.name = only.name;
      this.lines.pop();
    }
  }

  // A label. Its text is the name of its field, which tells it; if that is not rendered (a drawn
  // checkbox), the label stands for it. Answers whether the label is done.
  label(el, level, flags, below, nesting) {
    const control = el.control;
    if (control === null) return false;
    if (control.checkVisibility({ visibilityProperty: true })) {
      if (control.hasAttribute('aria-label') || control.hasAttribute('aria-labelledby')) return false;
      this.children(el, level, below | QUIET, nesting, false);
      return true;
    }
    if (control.localName !== 'input' || !/^(checkbox|radio|file)$/.test(control.type)) return false;
    this.flush();
    const role = roleOf(control);
    this.push({
      level,
      el,
      role,
      name: nameOf(control, role),
      states: statesOf(control, role, (flags & INERT) !== 0),
      measured: el,
    });
    return true;
  }

  frame(el, level, flags) {
    const box = el.getBoundingClientRect();
    if (box.width <= BEACON_PIXELS || box.height <= BEACON_PIXELS) return;
    this.flush();
    const name = nameOf(el, 'iframe') || shortened(el.getAttribute('name') ?? '', NAME_CHARS);
    this.push({
      level,
      el,
      role: 'iframe',
      name,
      states: (flags & INERT) !== 0 ? ' disabled=true' : '',
      measured: el,
      frame: true,
    });
  }

  options(select, level, flags) {
    const all = this.limit === Infinity;
    let shown = 0;
    let hidden = 0;
    for (const option of select.options) {
      if (option.hidden) continue;
      if (!all && shown >= OPTIONS_SHOWN && !option.selected) {
        hidden++;
        continue;
      }
      shown++;
      const line = { level, el: option, role: 'option', name: '', states: '' };
      if (!this.full(level)) {
        line.name = nameOf(option, 'option');
        line.states = statesOf(option, 'option', (flags & INERT) !== 0);
      }
      this.push(line);
    }
    if (hidden > 0) {
      this.push({ level, el: null, role: 'text', name: `${hidden} more options; find shows them`, states: '' });
    }
  }
}

// Whether the content of `el` is not rendered though `el` is (`hidden=until-found`, content-visibility).
const skipsContent = (el, style) => el.hasAttributes() && style.contentVisibility === 'hidden';

function rounded(box) {
  return [Math.round(box.x), Math.round(box.y), Math.round(box.width), Math.round(box.height)];
}

// Where the document of frame `el` begins, in the coordinates of this one.
function frameOrigin(el) {
  const box = el.getBoundingClientRect();
  const style = getComputedStyle(el);
  return [
    Math.round(box.x + el.clientLeft + Number.parseFloat(style.paddingLeft)),
    Math.round(box.y + el.clientTop + Number.parseFloat(style.paddingTop)),
  ];
}

function textOf(line) {
  if (line.role === 'text') return `text ${JSON.stringify(line.name)}`;
  return `[${line.role}]${line.name === '' ? '' : ' ' + JSON.stringify(line.name)}${line.states}`;
}

// Whether `line` holds `needle` (in lower case): as it is told, or without the quoting.
function holds(line, needle) {
  return (
    `${line.role} ${line.name}${line.states}`.toLowerCase().includes(needle) ||
    textOf(line).toLowerCase().includes(needle)
  );
}

// The form in which lines travel: [level, number or 0, text, box or null, origin or null].
function packed(line, boxes) {
  return [
    line.level,
    line.el === null ? 0 : numberOf(line.el),
    textOf(line),
    boxes && line.measured ? rounded(line.measured.getBoundingClientRect()) : null,
    line.frame ? frameOrigin(line.el) : null,
  ];
}

// The outline of the element with number `root` (0: of the document), see `Walk` in page/outline.rs.
function outlineOf({ root, depth, limit, boxes, needle }) {
  const top = root === 0 ? document.documentElement : elementOf(root);
  if (top === null) return root === 0 ? { lines: [], more: 0, deeper: 0, cut: false, hosts: [] } : null;
  const searching = needle !== null;
  const outline = new Outline({
    depth: searching ? Infinity : depth,
    limit: searching ? Infinity : limit,
    boxes,
  });
  outline.walk(top);
  let lines = outline.lines;
  let more = outline.more(top);
  if (searching) {
    const wanted = needle.toLowerCase();
    // Frames stay, so that the caller can join what was found in them.
    lines = lines.filter(line => line.frame || holds(line, wanted));
    more = Math.max(0, lines.length - limit);
    lines = lines.slice(0, limit);
  }
  return {
    lines: lines.map(line => packed(line, boxes)),
    more,
    deeper: outline.deeper,
    cut: outline.cut,
    hosts: outline.hosts.map(numberOf),
  };
}
