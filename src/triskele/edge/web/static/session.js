"use strict";
const tell = (text) => {
  const state = document.getElementById("state");
  if (state) state.textContent = text;
  return Boolean(state);
};

const exchange = async (proof, refused) => {
  tell("Signing in …");
  try {
    const answer = await fetch("/ui/session", { method: "POST", body: proof, headers: { "HX-Request": "true" } });
    if (!answer.ok) return tell(answer.status === 401 ? refused : "The server cannot sign anybody in now. Try again.");
    if (document.getElementById("state")) location.reload();
  } catch {
    tell("The server does not answer.");
  }
};

// The code in the fragment never reaches a server by itself. It buys a session once and leaves the address at once.
const signInByCode = () => {
  const code = location.hash.slice(1);
  if (!/^[\w-]{20,100}$/.test(code)) return;
  history.replaceState(null, "", location.pathname + location.search);
  exchange(code, "This address was used already, or is too old.");
};

const form = document.getElementById("sign-in");
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  exchange(form.elements.key.value, "This key opens nothing: it is unknown, expired or revoked.");
});

// The same page with another code is no new page: only its fragment changes.
addEventListener("hashchange", signInByCode);
signInByCode();
