'use strict';
// Keeps the page up to date by the stream of events. A part that the reader is using, by a
// selection, the keyboard or an open form, is marked, and replaced when that has ended.
(() => {
  const live = document.getElementById('live');
  const pending = new Map();
  const silence = 10000; // milliseconds; the node sends something each second
  let source = null, retry = 0, heard = 0;

  const show = (state, text) => {
    if (live.className === state && live.textContent === text) return;
    live.className = state;
    live.textContent = text;
    document.body.classList.toggle('stale', state !== 'on');
  };

  const inUse = (part) => {
    const selection = document.getSelection();
    return part.querySelector('details[open]') !== null
      || (part.contains(document.activeElement) && document.activeElement.matches(':focus-visible'))
      || (!selection.isCollapsed && selection.containsNode(part, true));
  };

  const replace = () => {
    for (const [id, html] of pending) {
      const part = document.getElementById(id);
      const held = part !== null && inUse(part);
      if (part !== null) part.classList.toggle('held', held);
      if (held) continue;
      pending.delete(id);
      if (part !== null) part.innerHTML = html;
    }
  };

  // A node that is paused, or a network that drops packets, does not end the connection.
  const watch = () => {
    replace();
    if (source !== null && source.readyState === EventSource.OPEN && Date.now() - heard > silence) {
      show('off', 'not live');
      connect();
    } else if (live.className === 'on') {
      show('on', pending.size > 0 ? 'live, but for the part in use' : 'live');
    }
  };

  const disconnect = () => {
    clearTimeout(retry);
    if (source !== null) source.close();
    source = null;
  };

  const connect = () => {
    disconnect();
    source = new EventSource('events' + location.search);
    source.onopen = () => { heard = Date.now(); };
    source.onerror = () => {
      show('off', 'not live');
      if (source.readyState === EventSource.CLOSED) retry = setTimeout(connect, 5000);
    };
    source.addEventListener('part', (event) => {
      const { id, html } = JSON.parse(event.data);
      pending.set(id, html);
      heard = Date.now();
      if (live.className !== 'on') show('on', 'live');
      replace();
    });
  };

  // A browser opens few connections to a host: a page that is not seen needs none.
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) { disconnect(); show('off', 'paused'); } else connect();
  });
  setInterval(watch, 500);
  if (!document.hidden) connect();
})();
