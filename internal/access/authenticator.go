package access

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idemd/idemd/internal/reservation"
)

// MaxTokens bounds the tokens of all identities: each call is compared with every one.
const MaxTokens = 1000

// Config is what an Authenticator knows.
type Config struct {
	Members []Member
	Issuers []Issuer
	// Now is the clock by which credentials expire; nil = the machine's.
	Now func() time.Time
}

// Member is an identity and what proves it.
type Member struct {
	Identity
	Tokens       []Token
	Certificates []CertificateName
}

// Credentials are what a call carries.
type Credentials struct {
	// Authorization are all values of the header of that name.
	Authorization []string
	// Certificate is the client's, its chain verified; nil = there is none.
	Certificate *x509.Certificate
}

// Authenticator tells who calls. It is safe for use by many goroutines.
type Authenticator struct {
	tokens       []tokenOf
	certificates map[CertificateName]*Identity
	issuers      []*issuer
	algorithms   []algorithm // of any issuer
	now          func() time.Time
}

// New makes an authenticator and reads the issuers' key files. The error names all that
// is wrong.
func New(c Config) (*Authenticator, error) {
	a := &Authenticator{certificates: make(map[CertificateName]*Identity), now: c.Now}
	if a.now == nil {
		a.now = time.Now
	}
	var errs []error
	byName := make(map[string]*Identity, len(c.Members))
	seen := make(map[[32]byte]string)
	for _, m := range c.Members {
		identity := &m.Identity
		if byName[m.Name] != nil {
			errs = append(errs, fmt.Errorf("identity %q is there twice", m.Name))
		}
		byName[m.Name] = identity
		for _, token := range m.Tokens {
			if of, twice := seen[token.SHA256]; twice {
				errs = append(errs, fmt.Errorf("identities %q and %q have a token in common", of, m.Name))
			}
			seen[token.SHA256] = m.Name
			a.tokens = append(a.tokens, tokenOf{token, identity})
		}
		for _, name := range m.Certificates {
			if of := a.certificates[name]; of != nil {
				errs = append(errs, fmt.Errorf("identities %q and %q have the certificate name %q in common", of.Name, m.Name, name.Value))
			}
			a.certificates[name] = identity
		}
	}
	if len(a.tokens) > MaxTokens {
		errs = append(errs, fmt.Errorf("there are %d tokens, at most %d", len(a.tokens), MaxTokens))
	}
	for _, configured := range c.Issuers {
		i, err := newIssuer(configured, byName)
		errs = append(errs, err)
		a.issuers = append(a.issuers, i)
		a.algorithms = append(a.algorithms, configured.algorithms()...)
	}
	return a, errors.Join(errs...)
}

// Identify tells who calls. The refusal is UNAUTHENTICATED: without a credential, with
// one that proves nothing, and with two that prove different identities. A credential
// that is not good is refused beside one that is: it was meant to be looked at. Only a
// client certificate that belongs to no identity is passed over where there is a token:
// meshes present one of their own.
func (a *Authenticator) Identify(c Credentials) (*Identity, *reservation.Error) {
	holder, refusal := a.ofCertificate(c.Certificate)
	if refusal != nil {
		return nil, refusal
	}
	if len(c.Authorization) == 0 {
		switch {
		case holder != nil:
			return holder, nil
		case c.Certificate != nil:
			return nil, refuse("the client certificate belongs to no identity here")
		}
		return nil, refuse("no credential: send authorization: Bearer …, or a client certificate")
	}
	bearer, refusal := a.ofBearer(c.Authorization)
	switch {
	case refusal != nil:
		return nil, refusal
	case holder != nil && !holder.equal(bearer):
		return nil, refuse("the client certificate and the bearer token prove different identities: send one of them")
	}
	return bearer, nil
}

// ofBearer is whose token an authorization header holds.
func (a *Authenticator) ofBearer(headers []string) (*Identity, *reservation.Error) {
	credential, refusal := parseBearer(headers)
	if refusal != nil {
		return nil, refusal
	}
	identity, refusal := a.ofToken(credential)
	if identity != nil || refusal != nil {
		return identity, refusal
	}
	if len(a.issuers) > 0 && strings.Count(credential, ".") == 2 {
		return a.ofJWT(credential)
	}
	return nil, refuse("the bearer token is not known here")
}
