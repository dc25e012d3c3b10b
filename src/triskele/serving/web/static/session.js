"use strict";
// The code in the fragment never reaches a server by itself. It buys a session once and leaves the address at once.
const signIn = async () => {
  const code = location.hash.slice(1);
  if (!/^[\w-]{20,100}$/.test(code)) return;
  history.replaceState(null, "", location.pathname + location.search);
  const state = document.getElementById("state");
  if (state) state.textContent = "Signing in …";
  try {
    const answer = await fetch("/ui/session", { method: "POST", body: code, headers: { "HX-Request": "true" } });
    if (answer.ok && state) location.reload();
    else if (state) state.textContent = "This address was used already, or is too old.";
  } catch {
    if (state) state.textContent = "The server does not answer.";
  }
};
// The same page with another code is no new page: only its fragment changes.
addEventListener("hashchange", signIn);
signIn();
