// Framing of the host protocol: one JSON text frame, then one binary frame per described tensor.
// Input: frames as they arrive, or a message to send.  Output: complete requests, or frames on the socket.
// It does not interpret requests.

/**
 * @typedef {{name: string, dtype: import('../engine/types.js').DType, shape: number[], bytes: number}} Description
 * @typedef {{id: number, method: string, params: any, parts: ArrayBuffer[]}} Request
 */

export class FrameReader {
  /** The request whose binary frames are still coming. @type {Request | null} */
  #open = null;

  /**
   * Takes one frame; throws if it breaks the protocol.
   * @param {string | ArrayBuffer} frame
   * @returns {Request | null} the request that it completes, if any
   */
  take(frame) {
    if (typeof frame === 'string') {
      if (this.#open) throw new Error('A text frame came where a binary frame was announced');
      this.#open = { params: {}, ...JSON.parse(frame), parts: [] };
    } else {
      if (!this.#open) throw new Error('A binary frame came that no message announced');
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
 * The binary frames that a request announces.
 * @param {Request} request
 * @returns {Description[]}
 */
const described = ({ params }) => params.inputs ?? [];

/**
 * Sends a message and its binary frames; drops it if the socket is closed.
 * @param {WebSocket} socket
 * @param {object} message
 * @param {ArrayBuffer[]} parts
 */
export function sendMessage(socket, message, parts) {
  // Python may have disconnected before the answer was ready.
  if (socket.readyState !== WebSocket.OPEN) return;
  socket.send(JSON.stringify(message));
  for (const part of parts) socket.send(part);
}
