// What the caller can ask for. Everything else in this function is private.

// Whether the page shows `text`: as the browser would copy it, in open shadow roots too.
function showsText({ text }) {
  const body = document.body ?? document.documentElement;
  if (body === null) return false;
  if ((body.innerText ?? body.textContent).includes(text)) return true;
  const hosts = [body];
  while (hosts.length > 0) {
    for (const el of hosts.pop().querySelectorAll('*')) {
      const root = el.shadowRoot;
      if (root === null) continue;
      for (const child of root.children) if (child.innerText?.includes(text)) return true;
      hosts.push(root);
    }
  }
  return false;
}

// The box of an element in the viewport of this frame, after scrolling it into view.
async function boxOf({ number }) {
  let el = elementOf(number);
  if (el === null) return { state: 'gone' };
  if (!isSeen(el)) return { state: 'hidden' };
  el.scrollIntoView({ behavior: 'instant', block: 'nearest', inline: 'nearest' });
  await nextFrame();
  el = elementOf(number);
  if (el === null) return { state: 'gone' };
  let box = el.getBoundingClientRect();
  if (!hasArea(box)) {
    const boxes = boxesOf(el);
    if (boxes.length === 0) return { state: 'hidden' };
    box = boxes[0];
  }
  return { state: 'ready', x: box.x, y: box.y, width: box.width, height: box.height };
}

const methods = {
  __proto__: null,
  afterClick,
  beginFill,
  beginGuard,
  boxOf,
  checkFill,
  checkable,
  choose,
  dragBegun,
  dropTaken,
  fileField,
  hovered,
  isOption: ({ number }) => elementOf(number)?.localName === 'option',
  locate,
  loaded: () => document.readyState === 'complete',
  outline: outlineOf,
  readiness,
  scrolled,
  select,
  selected,
  showsText,
  tick,
  watchDrag,
  watchDrop,
  viewport: () => ({ width: innerWidth, height: innerHeight, scrollX, scrollY }),
};

return {
  __proto__: null,
  run: async (method, argument) => JSON.stringify((await methods[method](argument)) ?? null),
  element: elementOf,
  // Takes over the closed shadow root of the element with `number`.
  adopt: (number, root) => {
    const host = elementOf(number);
    if (host !== null) closedRoots.set(host, root);
  },
};
