// A source whose candidates must be signed by the site's key: for candidates that come from another origin.
// Input: any source, the public key.  Output: the same source; `next` rejects with `signature` for what the key did not sign.

import { EngineError } from '../../engine/errors.js';
import { sha256 } from '../../engine/files.js';

/** What a signature covers; in the order of tilewright/bundle/signing.py. @type {S.StatementOf} */
const statementOf = (bundle, { spec, candidate, checksum, schedule, tiles, grains, scratch }, digest) => {
  const byPlan = Object.entries(grains ?? {}).map(([plan, grain]) => [Number(plan), grain]).sort(([a], [b]) => a - b);
  return `tilewright candidate ${bundle} ${JSON.stringify([spec, candidate, checksum, schedule, digest, tiles, byPlan, scratch])}`;
};

/** The source, with verified candidates only.  A candidate with a wrong signature ends the session, since its server or connection is not
 * the one that the site trusts.  Candidates that the page compiles itself have no signature and must not pass here.
 * @param {Tune.Source} source
 * @param {string} key public key, as `tilewright keygen` printed it
 * @returns {Tune.Source}
 */
export function signedSource(source, key) {
  let bundle = '';
  return {
    ...source,
    signed: true,
    // Nothing is done with what is not verified yet.
    peek: undefined,

    open(hello) {
      bundle = hello.digest;
      return source.open(hello);
    },

    async next() {
      const sent = await source.next();
      if (!sent || 'done' in sent) return sent;
      const { spec, candidate, signature } = sent.header;
      // The digest of what came: a digest in the header proves nothing.
      const statement = statementOf(bundle, sent.header, await sha256(sent.module));
      // Most pages sign nothing: the engine's delivered files are without it.
      const { requireSignature } = await import('../../engine/signatures.js');
      await requireSignature(key, statement, signature, EngineError, 'A candidate', 'Let its server, or `build --static`, sign with --sign-with', { spec, candidate });
      return sent;
    },
  };
}
