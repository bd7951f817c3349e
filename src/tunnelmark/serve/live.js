"use strict";
// Renews the part of a page that changes, every two seconds, until it says that it has ended.
(function () {
  const part = document.querySelector("[data-live]");
  if (!part) return;
  async function renew() {
    try {
      const got = await fetch(part.dataset.live, {credentials: "same-origin"});
      if (got.ok) part.innerHTML = await got.text();
    } catch (error) {
      // The server may be away for a moment: the next attempt tells.
    }
    if (!part.querySelector("[data-ended]")) setTimeout(renew, 2000);
  }
  setTimeout(renew, 2000);
})();
