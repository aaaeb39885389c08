import { readFile } from "node:fs/promises";
import { createSecureContext } from "node:tls";
import type { Clock } from "./clock.ts";
import type { Logger } from "./logger.ts";

export interface KeyPair {
  cert: Buffer;
  key: Buffer;
}

/** Where a server's certificate comes from, and how often it is read again. */
export interface CertificateSource {
  /** Names both halves, for messages. */
  name: string;
  pollMs: number;
  /** Rejects with one line that says what cannot be read. */
  read(): Promise<KeyPair>;
}

const describe = (error: unknown): string => (error instanceof Error ? error.message : String(error));

const readMounted = async (file: string): Promise<Buffer> => {
  try {
    return await readFile(file);
  } catch (error) {
    throw new Error(`cannot read ${file}: ${describe(error)}: mount the certificate there`, { cause: error });
  }
};

/** Contents are compared, so that swapped links and equal times are no riddle. */
export const certificateFiles = (certFile: string, keyFile: string): CertificateSource => ({
  name: `${certFile} and ${keyFile}`,
  pollMs: 5000,
  async read() {
    const [cert, key] = await Promise.all([readMounted(certFile), readMounted(keyFile)]);
    return { cert, key };
  },
});

/** Reads a pair that belongs together; throws one line that names the source otherwise. */
export const readKeyPair = async (source: CertificateSource): Promise<KeyPair> => {
  const pair = await source.read();
  try {
    createSecureContext(pair);
  } catch (error) {
    throw new Error(`${source.name} are no certificate and key that fit: ${describe(error)}`, {
      cause: error,
    });
  }
  return pair;
};

/**
 * Calls `use` with every new pair until the signal is aborted. A damaged one is logged once and changes nothing: the
 * pair in use stays until its successor is whole.
 */
export const followKeyPair = async (
  source: CertificateSource,
  current: KeyPair,
  use: (pair: KeyPair) => void,
  deps: { clock: Clock; log: Logger },
  signal: AbortSignal,
): Promise<void> => {
  let inUse = current;
  let complaint: string | undefined;
  while (!signal.aborted) {
    await deps.clock.sleep(source.pollMs, signal).catch(() => {});
    if (signal.aborted) return;
    try {
      const pair = await readKeyPair(source);
      complaint = undefined;
      if (pair.cert.equals(inUse.cert) && pair.key.equals(inUse.key)) continue;
      use(pair);
      inUse = pair;
      deps.log.info({ source: source.name }, "certificate reloaded");
    } catch (error) {
      if (complaint === describe(error)) continue;
      complaint = describe(error);
      deps.log.error({ error: complaint }, "new certificate is damaged: the old one stays in use");
    }
  }
};
