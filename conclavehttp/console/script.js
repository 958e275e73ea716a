'use strict';
// Keeps the page up to date by the stream of events. A part that the reader is using, by a
// selection, the keyboard or an open form, is replaced when that has ended.
(() => {
  const live = document.getElementById('live');
  const pending = new Map();
  let source = null, retry = 0;

  const show = (state, text) => { live.className = state; live.textContent = text; };

  const inUse = (part) => {
    const selection = document.getSelection();
    return part.querySelector('details[open]') !== null
      || (part.contains(document.activeElement) && document.activeElement.matches(':focus-visible'))
      || (!selection.isCollapsed && selection.containsNode(part, true));
  };

  const replace = () => {
    for (const [id, html] of pending) {
      const part = document.getElementById(id);
      if (part !== null && inUse(part)) continue;
      pending.delete(id);
      if (part !== null) part.innerHTML = html;
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
    source.onopen = () => show('on', 'live');
    source.onerror = () => {
      show('off', 'not live');
      if (source.readyState === EventSource.CLOSED) retry = setTimeout(connect, 5000);
    };
    source.addEventListener('part', (event) => {
      const { id, html } = JSON.parse(event.data);
      pending.set(id, html);
      replace();
    });
  };

  // A browser opens few connections to a host: a page that is not seen needs none.
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) { disconnect(); show('off', 'paused'); } else connect();
  });
  setInterval(replace, 500);
  if (!document.hidden) connect();
})();
