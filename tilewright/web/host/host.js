// The host page: lets Python drive the engine in this browser.
// Input: the page's address, with a token.  Output: a session (host_protocol.js), and its state in the title.

import { serve } from './host_protocol.js';

/** @param {string} state */
function show(state) {
  document.title = `tilewright host: ${state}`;
  /** @type {HTMLOutputElement} */ (document.getElementById('state')).value = state;
}

if (new URLSearchParams(location.search).get('token')) serve(location.href, show);
else show('no token in the URL');
