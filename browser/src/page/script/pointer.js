// Acting with the pointer: is the element there, seen, still, enabled, and the one that would be hit?

// Movement between two looks, in CSS pixels, up to which an element counts as still. A button that
// breathes in an endless animation can be clicked; one that slides cannot.
const STILL_PIXELS = 0.5;
// Time over which the movement of an animated element is measured, in milliseconds.
const ANIMATED_MS = 40;
// A hidden page has no animation frames, and a busy one few. Milliseconds to wait for one.
const HIDDEN_FRAME_MS = 50;
const FRAME_LIMIT_MS = 1000;
// The guard of a click ends by itself, in case that the caller is gone. Milliseconds.
const GUARD_MS = 2000;
const GUARDED = 'pointerdown mousedown pointerup mouseup click dblclick auxclick contextmenu'.split(' ');

// Sandboxed frames may run no script. Then no timer, no listener and no animation frame of ours runs
// either, which this one finds out; and no script of the page is there to be waited for.
let runsScript = false;
setTimeout(() => {
  runsScript = true;
}, 0);

// Waits for the next frame; answers whether there was none though the page is to be seen.
function nextFrame() {
  if (!runsScript) return Promise.resolve(false);
  return new Promise(resolve => {
    const timer = setTimeout(() => resolve(!document.hidden), document.hidden ? HIDDEN_FRAME_MS : FRAME_LIMIT_MS);
    requestAnimationFrame(() => {
      clearTimeout(timer);
      resolve(false);
    });
  });
}

// Whether a style animation runs on `el` or around it.
function isAnimated(el) {
  for (let n = el; n !== null; n = parentOf(n)) {
    if (n instanceof Element && n.getAnimations().some(animation => animation.playState === 'running')) return true;
  }
  return false;
}

const hasArea = box => box.width > 0 && box.height > 0;

// The boxes of `el`; if it has none of its own, those of its content.
function boxesOf(el) {
  const own = Array.from(el.getClientRects()).filter(hasArea);
  if (own.length > 0) return own;
  const range = document.createRange();
  range.selectNodeContents(el);
  return Array.from(range.getClientRects()).filter(hasArea);
}

const isSeen = el => el.checkVisibility({ visibilityProperty: true });

// The innermost element at a point of the viewport.
function hitAt(x, y) {
  let root = document;
  let el = null;
  for (;;) {
    const next = root.elementFromPoint(x, y);
    if (next === null || next === el) return el;
    el = next;
    root = shadowOf(el);
    if (root === null) return el;
  }
}

const WRAPPING = 'a, button, label, summary, [role=button], [role=link], [role=option], [role=menuitem], [role=tab]';

// Whether a click that hits `hit` is a click on `el`.
function receives(hit, el) {
  if (isInside(hit, el)) return true;
  // Closed shadow roots show their host instead of what is in them.
  if (closedRoots.has(hit) && isInside(el, hit)) return true;
  for (let n = hit; n instanceof Element; n = parentOf(n)) {
    if (n.localName === 'label' && n.control === el) return true;
  }
  // Part of a button that lets the pointer through to the button.
  const wrapper = el.closest(WRAPPING);
  return wrapper !== null && wrapper !== el && isInside(hit, wrapper);
}

// Points to try, as parts of the visible box: the middle first, as a person would.
const POINTS = [
  [0.5, 0.5],
  [0.25, 0.5],
  [0.75, 0.5],
  [0.5, 0.25],
  [0.5, 0.75],
];

// A point of `el` that the pointer hits, or what is in the way.
function findPoint(el) {
  let cover = null;
  for (const box of boxesOf(el)) {
    const left = Math.max(box.left, 0);
    const top = Math.max(box.top, 0);
    const right = Math.min(box.right, innerWidth);
    const bottom = Math.min(box.bottom, innerHeight);
    if (right - left < 1 || bottom - top < 1) continue;
    for (const [across, down] of POINTS) {
      const x = left + (right - left) * across;
      const y = top + (bottom - top) * down;
      const hit = hitAt(x, y);
      if (hit === null) continue;
      if (receives(hit, el)) return { x, y };
      cover ??= hit;
    }
  }
  return { cover };
}

// Whether a person can operate the element with `number`; see `Verdict` in page/element.rs.
// `pointer`: it must be hit by the pointer, at the answered point. `attempt` counts calls.
async function readiness({ number, pointer, attempt }) {
  let el = elementOf(number);
  if (el === null) return { state: 'gone' };
  if (!isSeen(el) || boxesOf(el).length === 0) return { state: 'hidden' };
  if (isDisabled(el)) return { state: 'disabled' };
  if (isInert(el)) return { state: 'inert' };
  if (!pointer) return { state: 'ready', x: 0, y: 0 };
  let point = findPoint(el);
  if (point.x === undefined) {
    el.scrollIntoView({
      behavior: 'instant',
      // Where something stays in the way at one place, another may be free of it.
      block: ['center', 'end', 'start'][attempt % 3],
      inline: 'center',
    });
  }
  // Between two frames the browser computes animations for the time of the next one, so that only
  // places of two frames tell whether an animated element moves; and frames may come close together.
  const animated = isAnimated(el);
  if (animated && (await nextFrame())) return { state: 'undrawn' };
  const before = el.getBoundingClientRect();
  const since = performance.now();
  do {
    if (await nextFrame()) return { state: 'undrawn' };
  } while (animated && performance.now() - since < ANIMATED_MS);
  el = elementOf(number);
  if (el === null) return { state: 'gone' };
  const after = el.getBoundingClientRect();
  const moved = Math.max(
    Math.abs(after.x - before.x),
    Math.abs(after.y - before.y),
    Math.abs(after.width - before.width),
    Math.abs(after.height - before.height),
  );
  if (moved > STILL_PIXELS) return { state: 'moving' };
  point = findPoint(el);
  if (point.x !== undefined) return { state: 'ready', x: point.x, y: point.y };
  if (getComputedStyle(el).pointerEvents === 'none') return { state: 'untouchable' };
  if (point.cover === null) return { state: 'offscreen' };
  return { state: 'covered', by: describe(point.cover) };
}

let guard = null;

function endGuard() {
  const ended = guard;
  guard = null;
  if (ended === null) return { blocked: null, missed: false };
  clearTimeout(ended.timer);
  for (const type of GUARDED) removeEventListener(type, ended.listener, true);
  return { blocked: ended.blocked, missed: ended.tells && !ended.begun && ended.blocked === null };
}

// Checks once more that the point hits the element, and lets no click through that begins elsewhere.
function beginGuard({ number, x, y }) {
  endGuard();
  const el = elementOf(number);
  if (el === null) return { state: 'gone' };
  const hit = hitAt(x, y);
  if (hit === null) return { state: 'offscreen' };
  if (!receives(hit, el)) return { state: 'covered', by: describe(hit) };
  const started = {
    // Events in a frame go to its document, and without script there is nobody to tell.
    tells: runsScript && !/^(iframe|frame|object|embed)$/.test(el.localName),
    begun: false,
    blocked: null,
    timer: setTimeout(endGuard, GUARD_MS),
    listener: null,
  };
  started.listener = event => {
    if (!event.isTrusted || started.begun) return;
    const target = event.composedPath()[0];
    if (started.blocked === null && target instanceof Element && receives(target, el)) {
      // From here on the page sees what a person's click would show it.
      started.begun = true;
      return;
    }
    started.blocked ??= target instanceof Element ? describe(target) : 'the document';
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  guard = started;
  for (const type of GUARDED) addEventListener(type, started.listener, true);
  return { state: 'ready', x, y };
}

// Lets the tasks that are queued now run first.
function tick() {
  if (!runsScript) return Promise.resolve();
  return new Promise(resolve => {
    setTimeout(resolve, 0);
  });
}

// Ends the guard after a click, when the tasks that the click queued have run.
async function afterClick() {
  await tick();
  return endGuard();
}
