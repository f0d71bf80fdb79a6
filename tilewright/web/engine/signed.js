// Verifies signatures by a site's key: of a bundle's manifest here, of candidates in tune/sources/signed.js.
// Input: the public key, a statement (tilewright/bundle/signing.py), its signature.  Output: nothing, or a `signature` error.
// It loads only for pages that name a key, and imports nothing: bundlers make no worker with shared parts.

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };

/** Rejects unless the key signed the manifest that the pointer names. @type {T.RequireSigned} */
export const requireSigned = (key, { manifest: { digest }, signature }, EngineError) =>
  requireSignature(key, `tilewright bundle ${digest}`, signature, EngineError, 'The bundle', 'Build it with --sign-with and this site\'s key', { digest });

/** Rejects with `input` for what is no key, with `signature` if it did not sign the statement. @type {T.RequireSignature} */
export async function requireSignature(key, statement, signature, EngineError, what, hint, facts) {
  const verifier = await crypto.subtle.importKey('raw', bytesOf(key), ALGORITHM, false, ['verify']).catch((cause) => {
    throw new EngineError('input', `The option key is not a public key: ${cause}`, 'Give the text that `tilewright keygen` printed', { key });
  });
  if (!signature) throw new EngineError('signature', `${what} has no signature`, hint, facts);
  if (await crypto.subtle.verify(ALGORITHM, verifier, bytesOf(signature), new TextEncoder().encode(statement))) return;
  throw new EngineError('signature', `${what} is not signed by this site's key`, hint, facts);
}

/** Bytes of base64url; of other text, none, which is neither a key nor a signature. @param {unknown} text */
function bytesOf(text) {
  try {
    return Uint8Array.from(atob(String(text).replaceAll('-', '+').replaceAll('_', '/')), (letter) => letter.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}
