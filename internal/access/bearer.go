package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/idemd/idemd/internal/reservation"
)

// maxCredentialBytes is more than any JWT that is meant for a header.
const maxCredentialBytes = 8 << 10

// Token is a bearer token as a configuration holds it: only its digest.
type Token struct {
	SHA256 [sha256.Size]byte
	// NotAfter is when it stops being good; zero = never.
	NotAfter time.Time
}

type tokenOf struct {
	Token
	identity *Identity
}

// ParseTokenHash reads the SHA-256 of a token from hex.
func ParseTokenHash(text string) (hash [sha256.Size]byte, err error) {
	decoded, err := hex.DecodeString(text)
	if err != nil || len(decoded) != len(hash) {
		return hash, errors.New("want the SHA-256 of the token as 64 hex digits")
	}
	copy(hash[:], decoded)
	if hash == sha256.Sum256(nil) {
		return hash, errors.New("this is the SHA-256 of nothing: was the token empty when it was digested?")
	}
	return hash, nil
}

// parseBearer is the credential in an authorization header (RFC 6750, section 2.1).
func parseBearer(headers []string) (string, *reservation.Error) {
	if len(headers) > 1 {
		return "", refuse("there is more than one authorization header")
	}
	scheme, credential, found := strings.Cut(headers[0], " ")
	credential = strings.TrimLeft(credential, " ")
	switch {
	case !found || !strings.EqualFold(scheme, "bearer"):
		return "", refuse("the authorization header is not of the form: Bearer TOKEN")
	case credential == "" || len(credential) > maxCredentialBytes || strings.ContainsFunc(credential, notTokenByte):
		return "", refuse("the bearer token must be 1 to %d bytes of A-Z a-z 0-9 - . _ ~ + / =", maxCredentialBytes)
	}
	return credential, nil
}

func notTokenByte(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~+/=", r)
}

// ofToken finds whose token it is; nil = nobody's. It looks at every token, in the same
// time each.
func (a *Authenticator) ofToken(credential string) (*Identity, *reservation.Error) {
	hash := sha256.Sum256([]byte(credential))
	at := -1
	for i := range a.tokens {
		at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(a.tokens[i].SHA256[:], hash[:]), i, at)
	}
	if at < 0 {
		return nil, nil
	}
	if end := a.tokens[at].NotAfter; !end.IsZero() && !a.now().Before(end) {
		return nil, refuse("the bearer token has expired")
	}
	return a.tokens[at].identity, nil
}
