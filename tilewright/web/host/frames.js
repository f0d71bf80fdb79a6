// Messages of the host protocol: one JSON text frame, then one binary frame per described tensor.
// Input: frames as they arrive, or a message to send.  Output: whole requests, or frames on the socket.
// What a request means is not known here.

/**
 * @typedef {{name: string, dtype: import('../engine/types.js').DType, shape: number[], bytes: number}} Description
 * @typedef {{id: number, method: string, params: any, parts: ArrayBuffer[]}} Request
 */

export class FrameReader {
  /** The request whose binary frames are still coming. @type {Request | null} */
  #open = null;

  /**
   * Takes one frame; returns the request that it completes, if it does.
   * @param {string | ArrayBuffer} frame
   * @returns {Request | null}
   */
  take(frame) {
    if (typeof frame === 'string') {
      if (this.#open) throw new Error('A text frame came where a binary frame was described');
      this.#open = { params: {}, ...JSON.parse(frame), parts: [] };
    } else {
      if (!this.#open) throw new Error('A binary frame came that no message described');
      const expected = described(this.#open)[this.#open.parts.length].bytes;
      if (frame.byteLength !== expected) {
        throw new Error(`A binary frame has ${frame.byteLength} bytes, its description says ${expected}`);
      }
      this.#open.parts.push(frame);
    }
    const request = /** @type {Request} */ (this.#open);
    if (request.parts.length < described(request).length) return null;
    this.#open = null;
    return request;
  }
}

/**
 * @param {Request} request
 * @returns {Description[]}
 */
const described = ({ params }) => params.inputs ?? [];

/**
 * @param {WebSocket} socket
 * @param {object} message
 * @param {ArrayBuffer[]} parts
 */
export function sendMessage(socket, message, parts) {
  // Answers may be ready after Python went away.
  if (socket.readyState !== WebSocket.OPEN) return;
  socket.send(JSON.stringify(message));
  for (const part of parts) socket.send(part);
}
