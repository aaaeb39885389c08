/** Makes and reads X.509 certificates: ECDSA P-256, nothing but what TLS peers ask for. */
import { type webcrypto, X509Certificate as NodeCertificate } from "node:crypto";
import { isIP } from "node:net";
import { type WallTime, wallTime } from "../core/time.ts";

/** A certificate and the key that belongs to it, as PEM. */
export interface Pair {
  cert: string;
  key: string;
}

/** From when until when a certificate counts: whole seconds. */
export interface Validity {
  from: WallTime;
  until: WallTime;
}

const dateOf = (time: WallTime): Date => new Date(Number(time / 1000n));

const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

/** Half a second and 20 MB that only who issues has to spend. */
const library = async () => {
  await import("reflect-metadata");
  return import("@peculiar/x509");
};
type Library = Awaited<ReturnType<typeof library>>;

const pairOf = async (
  x509: Library,
  certificate: { toString(format: "pem"): string },
  key: webcrypto.CryptoKey,
): Promise<Pair> => ({
  cert: `${certificate.toString("pem")}\n`,
  key: `${x509.PemConverter.encode(await crypto.subtle.exportKey("pkcs8", key), "PRIVATE KEY")}\n`,
});

const newKeys = () => crypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);

/** An authority of its own. Its name tells it from earlier ones, as what it signs names it. */
export const makeAuthority = async (name: string, { from, until }: Validity): Promise<Pair> => {
  const x509 = await library();
  const keys = await newKeys();
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    name: `CN=${name}`,
    keys,
    notBefore: dateOf(from),
    notAfter: dateOf(until),
    signingAlgorithm: algorithm,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return pairOf(x509, certificate, keys.privateKey);
};

/** A certificate for a server under these DNS names and addresses. */
export const signServing = async (
  authority: Pair,
  names: readonly string[],
  { from, until }: Validity,
): Promise<Pair> => {
  const x509 = await library();
  const issuer = new x509.X509Certificate(authority.cert);
  const signingKey = await crypto.subtle.importKey(
    "pkcs8",
    x509.PemConverter.decodeFirst(authority.key),
    algorithm,
    false,
    ["sign"],
  );
  const keys = await newKeys();
  const certificate = await x509.X509CertificateGenerator.create({
    subject: "CN=fenceline",
    issuer: issuer.subject,
    notBefore: dateOf(from),
    notAfter: dateOf(until),
    publicKey: keys.publicKey,
    signingKey,
    signingAlgorithm: algorithm,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage.serverAuth]),
      new x509.SubjectAlternativeNameExtension(
        names.map((value) => ({ type: isIP(value) === 0 ? "dns" : "ip", value })),
      ),
      await x509.AuthorityKeyIdentifierExtension.create(issuer),
    ],
  });
  return pairOf(x509, certificate, keys.privateKey);
};

/** What a certificate says of itself; undefined for text that is none. */
export interface Certificate extends Validity {
  subject: string;
  names: readonly string[];
  /** Whether this authority signed it. */
  signedBy(authority: string): boolean;
}

const microseconds = (date: Date): WallTime => wallTime(BigInt(date.getTime()) * 1000n);

export const readCertificate = (pem: string): Certificate | undefined => {
  try {
    const read = new NodeCertificate(pem);
    return {
      subject: read.subject,
      from: microseconds(read.validFromDate),
      until: microseconds(read.validToDate),
      names: (read.subjectAltName ?? "")
        .split(", ")
        .map((name) => name.replace(/^(DNS|IP Address):/, ""))
        .filter((name) => name !== ""),
      signedBy: (authority) => {
        try {
          return read.verify(new NodeCertificate(authority).publicKey);
        } catch {
          return false;
        }
      },
    };
  } catch {
    return undefined;
  }
};

/** The certificates of a bundle, each as PEM. */
export const splitBundle = (pem: string): string[] =>
  (pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? []).map((one) => `${one}\n`);
