import { readFile } from "node:fs/promises";
import { createSecureContext } from "node:tls";
import type { Clock } from "./clock.ts";
import type { Logger } from "./logger.ts";

export interface CertificateFiles {
  certFile: string;
  keyFile: string;
}

export interface KeyPair {
  cert: Buffer;
  key: Buffer;
}

/** How often the files are read again. Contents are compared, so that swapped links and equal times are no riddle. */
export const certificatePollMs = 5000;

const read = async (file: string): Promise<Buffer> => {
  try {
    return await readFile(file);
  } catch (error) {
    throw new Error(`cannot read ${file}: ${describe(error)}: mount the certificate there`, { cause: error });
  }
};

const describe = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Reads a pair that belongs together; throws one line that names the files otherwise. */
export const readKeyPair = async ({ certFile, keyFile }: CertificateFiles): Promise<KeyPair> => {
  const [cert, key] = await Promise.all([read(certFile), read(keyFile)]);
  try {
    createSecureContext({ cert, key });
  } catch (error) {
    throw new Error(`${certFile} and ${keyFile} are no certificate and key that fit: ${describe(error)}`, {
      cause: error,
    });
  }
  return { cert, key };
};

/**
 * Calls `use` with every new pair until the signal is aborted. A damaged one is logged once and changes nothing: the
 * pair in use stays until its successor is whole.
 */
export const followKeyPair = async (
  files: CertificateFiles,
  current: KeyPair,
  use: (pair: KeyPair) => void,
  deps: { clock: Clock; log: Logger },
  signal: AbortSignal,
): Promise<void> => {
  let inUse = current;
  let complaint: string | undefined;
  while (!signal.aborted) {
    await deps.clock.sleep(certificatePollMs, signal).catch(() => {});
    if (signal.aborted) return;
    try {
      const pair = await readKeyPair(files);
      complaint = undefined;
      if (pair.cert.equals(inUse.cert) && pair.key.equals(inUse.key)) continue;
      use(pair);
      inUse = pair;
      deps.log.info({ certFile: files.certFile }, "certificate reloaded");
    } catch (error) {
      if (complaint === describe(error)) continue;
      complaint = describe(error);
      deps.log.error({ error: complaint }, "new certificate is damaged: the old one stays in use");
    }
  }
};
