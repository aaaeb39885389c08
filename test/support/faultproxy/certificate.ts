/**
 * Certificates for tests, made in the process: X.509 v3, ECDSA P-256, nothing but what TLS peers ask for.
 * Node reads certificates but makes none; a test level that needs no other program should not need openssl either.
 */
import { generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { isIP } from "node:net";

export interface Certificate {
  /** PEM. */
  cert: string;
  /** PEM, PKCS #8. */
  key: string;
  commonName: string;
  organizations: readonly string[];
}

export interface CertificateOptions {
  commonName: string;
  /** Groups, when Kubernetes reads it as a client certificate. */
  organizations?: readonly string[];
  /** DNS names and IPv4 addresses it stands for. */
  names?: readonly string[];
  /** Who signs. Default: itself, and it may sign others. */
  issuer?: Certificate;
  validFrom?: Date;
  validTo?: Date;
}

const der = (tag: number, ...parts: Buffer[]): Buffer => {
  const body = Buffer.concat(parts);
  const hex = body.length.toString(16);
  const size = Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, "hex");
  const length = body.length < 128 ? size : Buffer.concat([Buffer.from([0x80 | size.length]), size]);
  return Buffer.concat([Buffer.from([tag]), length, body]);
};
const sequence = (...parts: Buffer[]) => der(0x30, ...parts);
const bits = (value: Buffer, unused = 0) => der(0x03, Buffer.from([unused]), value);
const text = (value: string) => der(0x0c, Buffer.from(value));
/** An object identifier by its encoded content. */
const id = (hex: string) => der(0x06, Buffer.from(hex, "hex"));
const yes = der(0x01, Buffer.from([0xff]));
const time = (date: Date) =>
  der(
    0x17,
    Buffer.from(
      `${date
        .toISOString()
        .replaceAll(/[-:T]|\..*/g, "")
        .slice(2)}Z`,
    ),
  );

const ecdsaWithSha256 = sequence(id("2a8648ce3d040302"));
const nameOf = ({ commonName, organizations = [] }: CertificateOptions | Certificate) =>
  sequence(
    ...organizations.map((name) => der(0x31, sequence(id("55040a"), text(name)))),
    der(0x31, sequence(id("550403"), text(commonName))),
  );
const alternative = (name: string) =>
  isIP(name) === 4 ? der(0x87, Buffer.from(name.split(".").map(Number))) : der(0x82, Buffer.from(name));
const extension = (hex: string, value: Buffer, critical = false) =>
  sequence(id(hex), ...(critical ? [yes] : []), der(0x04, value));
const pem = (label: string, body: Buffer) =>
  `-----BEGIN ${label}-----\n${body.toString("base64").replaceAll(/.{64}(?=.)/g, "$&\n")}\n-----END ${label}-----\n`;

/** Valid from an hour ago until tomorrow, unless told otherwise (years 1950 … 2049). */
export const makeCertificate = (options: CertificateOptions): Certificate => {
  const { commonName, organizations = [], names = [], issuer } = options;
  const { publicKey, privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const now = Date.now();
  const key = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
  const extensions = [
    extension("551d13", sequence(...(issuer ? [] : [yes])), true),
    // Digital signature; and to sign certificates.
    extension("551d0f", bits(Buffer.from([issuer ? 0x80 : 0x84]), issuer ? 7 : 2), true),
    // TLS server and client.
    extension("551d25", sequence(id("2b06010505070301"), id("2b06010505070302"))),
    ...(names.length > 0 ? [extension("551d11", sequence(...names.map(alternative)))] : []),
  ];
  const body = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(15)])),
    ecdsaWithSha256,
    nameOf(issuer ?? options),
    sequence(
      time(options.validFrom ?? new Date(now - 3_600_000)),
      time(options.validTo ?? new Date(now + 86_400_000)),
    ),
    nameOf(options),
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, sequence(...extensions)),
  );
  const signature = sign("sha256", body, issuer?.key ?? key);
  return {
    cert: pem("CERTIFICATE", sequence(body, ecdsaWithSha256, bits(signature))),
    key,
    commonName,
    organizations,
  };
};
