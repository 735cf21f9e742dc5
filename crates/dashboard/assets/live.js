// Keeps the parts of a page up to date that say so, by asking for the same page again. Without it the page works, too.

const EVERY_MS = 5000;
const SOON_MS = 1000;

const told = document.getElementById("live-state");
let timer = 0;

function tell(text) {
  if (told && told.textContent !== text) told.textContent = text;
}

// Nobody's cursor, selection or opened details are taken away.
function isInUse(part) {
  if (part.contains(document.activeElement) && document.activeElement !== document.body) return true;
  const selection = document.getSelection();
  return Boolean(selection && !selection.isCollapsed && selection.anchorNode && part.contains(selection.anchorNode));
}

async function refresh() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
  if (answer.redirected) {
    location.assign(answer.url);
    return;
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const parts = [...document.querySelectorAll("[data-live][id]")];
  // Another page came instead: the database is away, or is back.
  if (!parts.every((part) => page.getElementById(part.id)) || document.title !== page.title) {
    location.reload();
    return;
  }
  for (const part of parts) {
    const fresh = page.getElementById(part.id);
    if (fresh.isEqualNode(part) || isInUse(part)) continue;
    part.replaceWith(document.importNode(fresh, true));
  }
  tell("Up to date.");
}

async function again() {
  clearTimeout(timer);
  if (!document.hidden) {
    try {
      await refresh();
    } catch {
      tell("The dashboard does not answer; trying again.");
    }
  }
  const soon = document.querySelector("[data-again]");
  timer = setTimeout(again, soon ? SOON_MS : EVERY_MS);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) again();
});
tell("Up to date.");
timer = setTimeout(again, document.querySelector("[data-again]") ? SOON_MS : EVERY_MS);
