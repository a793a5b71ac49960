// The API reference in the browser: opens the endpoint or the event that the address names.

function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!(target instanceof HTMLDetailsElement)) return;
  target.open = true;
  target.scrollIntoView();
}

addEventListener('hashchange', openTarget);
openTarget();
