// The wheel and the hand: what scrolls, what is hovered, what is dragged.

// Frames without movement after which scrolling is over, and frames that are waited for at most.
const STILL_FRAMES = 3;
const SCROLL_FRAMES_MAX = 120;

function scrollPlaces(x, y) {
  const places = [];
  for (let n = hitAt(x, y); n !== null; n = parentOf(n)) {
    if (n instanceof Element) places.push(n.scrollLeft, n.scrollTop);
  }
  places.push(scrollX, scrollY);
  return places.join();
}

// Waits until what is below a point does not scroll any more.
async function scrolled({ x, y }) {
  let before = scrollPlaces(x, y);
  let still = 0;
  for (let frame = 0; frame < SCROLL_FRAMES_MAX && still < STILL_FRAMES; frame++) {
    await nextFrame();
    const now = scrollPlaces(x, y);
    still = now === before ? still + 1 : 0;
    before = now;
  }
}

function hovered({ number }) {
  const el = elementOf(number);
  if (el === null) return { state: 'gone' };
  if (el.matches(':hover') || el.control?.matches(':hover')) return { state: 'ready', x: 0, y: 0 };
  const hit = document.querySelectorAll(':hover');
  return { state: 'covered', by: hit.length > 0 ? describe(hit[hit.length - 1]) : 'something outside of the page' };
}

let dragEvent = null;

const noteDrag = event => {
  dragEvent = event;
};

// Notes whether the page lets something be dragged in the way of HTML (HTML, "Drag and drop").
function watchDrag() {
  dragEvent = null;
  addEventListener('dragstart', noteDrag, true);
}

// Answers whether it did, and stops noting.
async function dragBegun() {
  await tick();
  removeEventListener('dragstart', noteDrag, true);
  return dragEvent !== null && !dragEvent.defaultPrevented;
}

let overEvent = null;

const noteOver = event => {
  overEvent = event;
};

// Notes whether the page takes what is held over it.
function watchDrop() {
  overEvent = null;
  addEventListener('dragover', noteOver, true);
}

// Answers whether it did at the last move, and stops noting.
async function dropTaken() {
  await tick();
  removeEventListener('dragover', noteOver, true);
  return overEvent !== null && overEvent.defaultPrevented;
}
