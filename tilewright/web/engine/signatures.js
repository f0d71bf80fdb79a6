// Verifies signatures by a site's key: of a bundle's manifest here, of candidates in tune/sources/signed.js.
// Input: the public key, a statement (tilewright/bundle/signing.py), its signature.  Output: nothing, or a `signature` error. Loaded only
// for pages that name a key. It imports nothing, since bundlers cannot make workers with shared parts.

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };

/**
 * Rejects unless the key signed the pointer's manifest, under the expected name, and the bundle is not older than one of that name that
 * this origin has loaded before.
 * @type {T.RequireSigned}
 */
export async function requireSigned(key, { manifest: { digest }, name, serial, signature }, expected, store, EngineError) {
  const statement = `tilewright bundle ${JSON.stringify([name ?? null, serial ?? null, digest])}`;
  await requireSignature(key, statement, signature, EngineError, 'The bundle', 'Build it with --sign-with and this site\'s key', { digest });
  if (expected !== undefined && name !== expected) {
    throw new EngineError('signature', `The bundle is signed as ${name}, not as ${expected}`, 'Serve the bundle of that name here, or give its name', { name, expected });
  }
  const place = `serial-${await nameOf(`${key} ${name}`)}`;
  const seen = Number(new TextDecoder().decode(await store?.find(place) ?? undefined));
  if (Number(serial) < seen) {
    throw new EngineError('signature', `The bundle ${name} is older than one that this browser has loaded`, 'Serve the newest one; to go back to an older model, build and sign it again', { name, serial, seen });
  }
  if (Number(serial) > seen) await store?.keep(place, new TextEncoder().encode(String(serial)));
}

/** @param {string} text */
const nameOf = async (text) => [...new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text)))]
  .map((byte) => byte.toString(16).padStart(2, '0')).join('').slice(0, 32);

/** Rejects with `input` for an invalid key, and with `signature` if the key did not sign the statement. @type {T.RequireSignature} */
export async function requireSignature(key, statement, signature, EngineError, what, hint, facts) {
  const verifier = await crypto.subtle.importKey('raw', bytesOf(key), ALGORITHM, false, ['verify']).catch((cause) => {
    throw new EngineError('input', `The option key is not a public key: ${cause}`, 'Give the text that `tilewright keygen` printed', { key });
  });
  if (!signature) throw new EngineError('signature', `${what} has no signature`, hint, facts);
  if (await crypto.subtle.verify(ALGORITHM, verifier, bytesOf(signature), new TextEncoder().encode(statement))) return;
  throw new EngineError('signature', `${what} is not signed by this site's key`, hint, facts);
}

/** Decodes base64url; invalid text gives no bytes, which is neither a key nor a signature. @param {unknown} text */
function bytesOf(text) {
  try {
    return Uint8Array.from(atob(String(text).replaceAll('-', '+').replaceAll('_', '/')), (letter) => letter.charCodeAt(0));
  } catch {
    return new Uint8Array();
  }
}
