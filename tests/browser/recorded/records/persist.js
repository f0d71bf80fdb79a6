// Stands in for tune/records/persist.js: remembers how often it was asked.

export const restore = async () => Number(localStorage.getItem('kept') ?? 0);

export async function forget() {
  localStorage.removeItem('kept');
}
