package idemhttp

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"path"
	"strings"

	"github.com/idemd/idemd/clients/go/fingerprint"
)

// check looks at what is HTTP's own.
func (c *Config) check() error {
	var wrong []error
	refuse := func(is bool, format string, values ...any) {
		if is {
			wrong = append(wrong, fmt.Errorf("idemhttp: "+format, values...))
		}
	}
	refuse(c.Profile < ProfileDefault || c.Profile > ProfileIETF, "there is no profile %d", c.Profile)
	refuse(c.Methods != nil && len(c.Methods) == 0, "no methods are guarded: nil is POST and PATCH")
	for _, m := range c.Methods {
		refuse(m == "" || !isToken(m) || m != strings.ToUpper(m) || m == http.MethodConnect, "%q is no method to guard", m)
	}
	for _, name := range c.Fingerprint.Headers {
		refuse(!counts(name), "%q can't be a header that counts: it is no name, or may change on the way", name)
	}
	refuse(c.MaxBodyBytes < 0 || c.MaxBodyBytes > fingerprint.MaxBytes, "the largest body is %d bytes; 1 to %d, or 0 for that", c.MaxBodyBytes, fingerprint.MaxBytes)
	refuse(c.StatusPath != "" && !isStatusPath(c.StatusPath), `the status path %q is not one absolute path with a slash at either end, like "/idempotency/"`, c.StatusPath)
	refuse(len(c.StatusSecret) > 0 && len(c.StatusSecret) < 16, "the status secret is shorter than 16 bytes")
	refuse(c.StatusPath != "" && c.Subject != nil && len(c.StatusSecret) == 0, "a status path needs a status secret where there are subjects: else one could read another's")
	return errors.Join(wrong...)
}

// isStatusPath: what stands in a Location is this path and nothing else, on this host and
// for every client. So it is made of characters that need no escape.
func isStatusPath(p string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:@/"
	return p == "/" || strings.HasPrefix(p, "/") && path.Clean(p)+"/" == p && strings.Trim(p, plain) == ""
}

// checkHeader refuses names that are none, those that frame an answer or belong to its
// connection, and those that this package writes.
func checkHeader(name string) error {
	switch name {
	case KeyHeader, ReplayedHeader, ExpiresHeader, ReasonHeader, "Content-Type", "Date", "Proxy-Authenticate":
		return fmt.Errorf("idemhttp: %s can't be a header to replay", name)
	}
	if isFraming(name) {
		return fmt.Errorf("idemhttp: %s can't be a header to replay", name)
	}
	if name == "" || !isToken(name) {
		return fmt.Errorf("idemhttp: %q is no header", name)
	}
	return nil
}

// counts: a repetition can have the same header. The key is none that counts: it is sent in
// quotes or without. Host and no name at all are fingerprint's to refuse.
func counts(name string) bool {
	canonical := textproto.CanonicalMIMEHeaderKey(name)
	return isToken(name) && !isFraming(canonical) && canonical != KeyHeader && canonical != "Expect"
}

// isFraming: it frames a message, or belongs to its connection.
func isFraming(canonical string) bool {
	switch canonical {
	case "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "Trailer", "Te", "Proxy-Connection":
		return true
	}
	return false
}

// isToken: of RFC 9110's characters for names.
func isToken(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}
