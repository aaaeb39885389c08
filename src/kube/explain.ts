import type { Access } from "./config.ts";
import type { KubeErrorCode } from "./errors.ts";

/** Codes of OpenSSL and Node for a certificate whose signer we do not know. */
const untrusted = [
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "CERT_SIGNATURE_FAILURE",
  "CERT_UNTRUSTED",
  "INVALID_CA",
];

const codeOf = (error: unknown): string => {
  if (!(error instanceof Error)) return "";
  if ("code" in error && typeof error.code === "string") return error.code;
  if (error instanceof AggregateError) return codeOf(error.errors[0]);
  return codeOf(error.cause);
};

/** Why there is no answer: a code, and one line that names what to look at. */
export const explain = (
  error: unknown,
  { server, names }: Access,
): { code: KubeErrorCode; message: string } => {
  const code = codeOf(error);
  const said = error instanceof Error ? error.message : String(error);
  const at = `API server ${server.origin}`;
  if (untrusted.includes(code))
    return {
      code: "bad_config",
      message: `${at} shows a certificate that is not signed by the trusted CA (${said}): check ${names.ca}`,
    };
  if (code === "CERT_HAS_EXPIRED" || code === "CERT_NOT_YET_VALID")
    return {
      code: "bad_config",
      message: `${at} shows a certificate out of its time (${said}): renew the server's certificate, or set the clock; ${names.server}`,
    };
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID")
    return {
      code: "bad_config",
      message: `${at} shows a certificate for another name (${said}): check ${names.server}, or set ${names.serverName}`,
    };
  if (
    code === "ERR_SSL_WRONG_VERSION_NUMBER" ||
    code === "ERR_SSL_PACKET_LENGTH_TOO_LONG" ||
    code === "EPROTO"
  )
    return {
      code: "bad_config",
      message: `${at} does not speak TLS, perhaps plain HTTP: check scheme and port in ${names.server}`,
    };
  if (code.startsWith("ERR_SSL_") && code.includes("ALERT"))
    return {
      code: "unauthorized",
      message: `${at} refuses the TLS handshake (${said}): check ${names.certificate}`,
    };
  if (error instanceof Error && error.name === "HTTPParserError")
    return {
      code: "bad_answer",
      message: `${at} does not speak HTTP as it should (${said}): check the port in ${names.server}`,
    };
  switch (code) {
    case "ECONNREFUSED":
      return {
        code: "unreachable",
        message: `${at}: nothing listens there: is it up, and is ${names.server} right?`,
      };
    case "ENOTFOUND":
    case "EAI_AGAIN":
      return {
        code: "unreachable",
        message: `${at}: the name ${server.hostname} does not resolve: check ${names.server}`,
      };
    case "UND_ERR_CONNECT_TIMEOUT":
      return {
        code: "unreachable",
        message: `${at}: no connection in time: check the network and ${names.server}`,
      };
    default:
      return { code: "unreachable", message: `${at}: ${said}` };
  }
};
