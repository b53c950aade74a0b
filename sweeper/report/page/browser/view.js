/* Shows the page at this address, which the server answers to whoever has the token of the printed link: `/#token=...`.
   A tab keeps the token for this port alone, in sessionStorage, where `authorization` finds it. */

(async () => {
  const say = (text) => { document.getElementById("state").textContent = text; };
  const [, token] = /^#token=([\w-]+)$/.exec(window.location.hash) ?? [];
  if (token) {
    sessionStorage.setItem("token", token);
    history.replaceState(null, "", window.location.pathname);
  }
  try {
    const answer = await fetch(window.location.pathname, { cache: "no-store", headers: { Authorization: `Bearer ${sessionStorage.getItem("token") ?? ""}` } });
    const text = await answer.text();
    if (!answer.ok) return say(text);
    document.open();
    document.write(text); // the document keeps its address and the policy of its header
    document.close();
  } catch {
    say("The server has ended.");
  }
})();
