package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/idemd/idemd/internal/reservation"
)

type algorithm = jose.SignatureAlgorithm

// Algorithms are the names of the signature algorithms that an issuer may use. All are
// asymmetric: whoever checks a signature can make none.
func Algorithms() []string {
	return []string{"EdDSA", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"}
}

// Issuer is who signs JWTs that are believed.
type Issuer struct {
	// Name stands before the subject in the name of an identity that claims make.
	Name string
	// URL is what the claim iss must be, Audience what aud must hold.
	URL, Audience string
	// KeyFile holds the issuer's public keys as a JWK set.
	KeyFile string
	// Algorithms are those allowed, of Algorithms; none = RS256 and ES256.
	Algorithms []string
	// Leeway is by how much clocks may differ.
	Leeway time.Duration

	// Claim and Members map a claim's value to the member of that name: who is not
	// there is nobody. Empty = an identity is made from claims.
	Claim   string
	Members map[string]string

	// TenantsClaim names the claim that holds the tenants, RolesClaim the one with the
	// roles; where RolesClaim is empty, Roles are everybody's.
	TenantsClaim, RolesClaim string
	Roles                    Roles
}

func (i Issuer) algorithms() []algorithm {
	if len(i.Algorithms) == 0 {
		return []algorithm{jose.RS256, jose.ES256}
	}
	algorithms := make([]algorithm, len(i.Algorithms))
	for n, name := range i.Algorithms {
		algorithms[n] = algorithm(name)
	}
	return algorithms
}

// ofJWT is whom a JWT speaks of. Why it is not believed is told only as far as it helps
// its holder.
func (a *Authenticator) ofJWT(credential string) (*Identity, *reservation.Error) {
	token, err := jwt.ParseSigned(credential, a.algorithms)
	if err != nil || len(token.Headers) != 1 {
		return nil, refuse("the JWT can't be read, or is signed with an algorithm that is not allowed")
	}
	var unverified jwt.Claims
	if err := token.UnsafeClaimsWithoutVerification(&unverified); err != nil {
		return nil, refuse("the JWT's claims can't be read")
	}
	at := slices.IndexFunc(a.issuers, func(i *issuer) bool { return i.URL == unverified.Issuer })
	if at < 0 || !slices.Contains(a.issuers[at].Issuer.algorithms(), algorithm(token.Headers[0].Algorithm)) {
		return nil, refuse("the JWT is of an issuer that is not known here, or signed with an algorithm that is not allowed")
	}
	return a.issuers[at].identify(token, a.now())
}

// identify verifies a JWT and says whom it speaks of.
func (i *issuer) identify(token *jwt.JSONWebToken, now time.Time) (*Identity, *reservation.Error) {
	key, found := i.keyFor(token.Headers[0])
	if !found {
		return nil, refuse("the JWT is signed with a key that is not among the issuer's")
	}
	var claims jwt.Claims
	var all map[string]any
	if err := token.Claims(key, &claims, &all); err != nil {
		return nil, refuse("the JWT's signature is wrong")
	}
	expected := jwt.Expected{Issuer: i.URL, AnyAudience: jwt.Audience{i.Audience}, Time: now}
	err := claims.ValidateWithLeeway(expected, i.Leeway)
	switch {
	case claims.Expiry == nil:
		return nil, refuse("the JWT has no exp: one that never expires is not taken")
	case errors.Is(err, jwt.ErrExpired):
		return nil, refuse("the JWT has expired")
	case errors.Is(err, jwt.ErrInvalidAudience):
		return nil, refuse("the JWT is for another audience")
	case err != nil:
		return nil, refuse("the JWT is not valid yet")
	}
	if i.Claim != "" {
		return i.member(all)
	}
	return i.fromClaims(claims.Subject, all)
}

// member is the configured identity that a claim names.
func (i *issuer) member(claims map[string]any) (*Identity, *reservation.Error) {
	value, _ := claims[i.Claim].(string)
	identity := i.members[value]
	if value == "" || identity == nil {
		return nil, refuse("the JWT's claim %s belongs to no identity here", i.Claim)
	}
	return identity, nil
}

// fromClaims makes an identity of what the issuer says.
func (i *issuer) fromClaims(subject string, claims map[string]any) (*Identity, *reservation.Error) {
	identity := &Identity{Name: i.Name + ":" + subject, Roles: i.Roles, Tenants: words(claims[i.TenantsClaim])}
	if subject == "" || len(identity.Name) > reservation.MaxActorBytes || strings.ContainsFunc(subject, notPrintable) {
		return nil, refuse("the JWT's sub must be printable ASCII, and together with the issuer's name at most %d bytes", reservation.MaxActorBytes)
	}
	if i.RolesClaim == "" {
		return identity, nil
	}
	for _, name := range words(claims[i.RolesClaim]) {
		role, _ := ParseRole(name) // others' roles are none of ours
		identity.Roles |= role
	}
	return identity, nil
}

func notPrintable(r rune) bool { return r <= ' ' || r >= 0x7f }

// words are a claim's texts: a list of them, or one that may hold several between spaces.
func words(claim any) []string {
	switch c := claim.(type) {
	case string:
		return strings.Fields(c)
	case []any:
		var texts []string
		for _, element := range c {
			if text, is := element.(string); is && text != "" {
				texts = append(texts, text)
			}
		}
		return texts
	}
	return nil
}

// members finds the members that an issuer's claims name.
func (i Issuer) members(byName map[string]*Identity) (map[string]*Identity, error) {
	var errs []error
	members := make(map[string]*Identity, len(i.Members))
	for value, name := range i.Members {
		if members[value] = byName[name]; members[value] == nil {
			errs = append(errs, fmt.Errorf("JWT issuer %q: there is no identity %q", i.Name, name))
		}
	}
	return members, errors.Join(errs...)
}
