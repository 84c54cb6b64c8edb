package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/idemd/idemd/internal/reservation"
)

// clock is a time that tests set.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

func noon() *clock { return &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)} }

func bearer(token string) Credentials { return Credentials{Authorization: []string{"Bearer " + token}} }

func member(name string, tokens ...Token) Member {
	return Member{Identity: Identity{Name: name, Roles: Caller, Tenants: []string{name}}, Tokens: tokens}
}

func hashed(token string) Token { return Token{SHA256: sha256.Sum256([]byte(token))} }

func authenticator(t *testing.T, c Config) *Authenticator {
	t.Helper()
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestATokenIsGoodUntilItsEndAndSeveralAreGoodAtOnce(t *testing.T) {
	at := noon()
	old := hashed("old")
	old.NotAfter = at.now.Add(time.Hour)
	a := authenticator(t, Config{Now: at.read, Members: []Member{member("acme", old, hashed("new")), member("rival", hashed("other"))}})
	for token, want := range map[string]string{"old": "acme", "new": "acme", "other": "rival"} {
		if who, refusal := a.Identify(bearer(token)); refusal != nil || who.Name != want {
			t.Errorf("%s: %v, %v", token, who, refusal)
		}
	}
	at.now = old.NotAfter
	if _, refusal := a.Identify(bearer("old")); refusal == nil || !strings.Contains(refusal.Message, "expired") {
		t.Errorf("at its end: %v", refusal)
	}
	if _, refusal := a.Identify(bearer("new")); refusal != nil {
		t.Errorf("the next: %v", refusal)
	}
}

func TestWhatProvesTwoIdentitiesIsRefusedAtTheStart(t *testing.T) {
	name := CertificateName{DNS, "a.example.org"}
	first, second := member("a", hashed("same")), member("b", hashed("same"))
	first.Certificates, second.Certificates = []CertificateName{name}, []CertificateName{name}
	_, err := New(Config{
		Members: []Member{first, second, member("a")},
		Issuers: []Issuer{{Name: "corp", KeyFile: "/does/not/exist", Claim: "sub", Members: map[string]string{"x": "nobody"}}},
	})
	for _, want := range []string{"token in common", "certificate name", "twice", `no identity "nobody"`, "/does/not/exist"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not told in: %v", want, err)
		}
	}
}

func TestADigestIsOfASomething(t *testing.T) {
	nothing := sha256.Sum256(nil)
	for _, text := range []string{"", "00", strings.Repeat("0", 63), strings.Repeat("x", 64), hex.EncodeToString(nothing[:])} {
		if _, err := ParseTokenHash(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestACertificateOfSeveralIdentitiesOrOneThatHasEndedIsRefused(t *testing.T) {
	at := noon()
	a, b := member("a"), member("b")
	a.Certificates, b.Certificates = []CertificateName{{URI, "spiffe://x/a"}}, []CertificateName{{DNS, "b"}, {CommonName, "cn"}}
	who := authenticator(t, Config{Now: at.read, Members: []Member{a, b}})
	uri, err := url.Parse("spiffe://x/a")
	if err != nil {
		t.Fatal(err)
	}
	good := &x509.Certificate{URIs: []*url.URL{uri}, NotAfter: at.now}
	if identity, refusal := who.Identify(Credentials{Certificate: good}); refusal != nil || identity.Name != "a" {
		t.Errorf("by URI: %v, %v", identity, refusal)
	}
	named := &x509.Certificate{Subject: pkix.Name{CommonName: "cn"}, NotAfter: at.now}
	if identity, refusal := who.Identify(Credentials{Certificate: named}); refusal != nil || identity.Name != "b" {
		t.Errorf("by common name: %v, %v", identity, refusal)
	}
	both := &x509.Certificate{URIs: []*url.URL{uri}, DNSNames: []string{"b"}, NotAfter: at.now}
	if _, refusal := who.Identify(Credentials{Certificate: both}); refusal == nil {
		t.Error("one with names of two is taken")
	}
	at.now = at.now.Add(time.Second)
	if _, refusal := who.Identify(Credentials{Certificate: good}); refusal == nil || !strings.Contains(refusal.Message, "expired") {
		t.Errorf("after its end: %v", refusal)
	}
}

func TestATenantIsOnesOwnOrForbidden(t *testing.T) {
	one, two, all := &Identity{Tenants: []string{"a"}}, &Identity{Tenants: []string{"a", "b"}}, &Identity{AllTenants: true}
	for _, step := range []struct {
		who         *Identity
		named, gets string
		reason      reservation.Reason
	}{
		{one, "a", "a", ""}, {one, "", "a", ""}, {one, "b", "", reservation.TenantForbidden}, {one, "NO NAME", "", reservation.TenantForbidden},
		{two, "b", "b", ""}, {two, "", "", reservation.TenantInvalid}, {all, "any", "any", ""}, {all, "", "", reservation.TenantInvalid},
		{&Identity{}, "a", "", reservation.TenantForbidden},
	} {
		got, refusal := step.who.Tenant(step.named)
		if got != step.gets || (refusal == nil) != (step.reason == "") || refusal != nil && refusal.Reason != step.reason {
			t.Errorf("%+v about %q: %q, %v", step.who, step.named, got, refusal)
		}
	}
}

// issuing is an issuer with a key.
func issuing(t *testing.T, file string) (Issuer, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, file, jose.JSONWebKey{Key: key.Public(), KeyID: "k"})
	return Issuer{Name: "corp", URL: "https://corp", Audience: "idemd", KeyFile: file, Algorithms: []string{"ES256"}}, key
}

func publish(t *testing.T, file string, keys ...jose.JSONWebKey) {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func signed(t *testing.T, algorithm jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAnIssuersClaimsMakeAnIdentity(t *testing.T) {
	at := noon()
	issuer, key := issuing(t, filepath.Join(t.TempDir(), "keys"))
	issuer.TenantsClaim, issuer.RolesClaim, issuer.Leeway = "tenants", "roles", time.Minute
	a := authenticator(t, Config{Now: at.read, Issuers: []Issuer{issuer}})
	claims := map[string]any{
		"iss": "https://corp", "aud": []string{"x", "idemd"}, "sub": "svc", "exp": at.now.Unix(),
		"tenants": []any{"acme", "mails", 7}, "roles": "caller resolver admin-of-others",
	}
	who, refusal := a.Identify(bearer(signed(t, jose.ES256, key, "k", claims)))
	if refusal != nil || who.Name != "corp:svc" || who.Roles != Caller|Resolver || len(who.Tenants) != 2 || who.AllTenants {
		t.Fatalf("got %+v, %v", who, refusal)
	}
	// The leeway is over.
	at.now = at.now.Add(time.Minute + time.Second)
	if _, refusal := a.Identify(bearer(signed(t, jose.ES256, key, "k", claims))); refusal == nil {
		t.Error("an expired one is taken")
	}
	at.now = at.now.Add(-time.Hour)
	claims["tenants"] = "*"
	if who, refusal := a.Identify(bearer(signed(t, jose.ES256, key, "k", claims))); refusal != nil || who.AllTenants {
		t.Errorf("a claim gives all tenants: %+v, %v", who, refusal)
	}
	for _, subject := range []string{"", "a\nb", strings.Repeat("x", 300)} {
		claims["sub"] = subject
		if _, refusal := a.Identify(bearer(signed(t, jose.ES256, key, "k", claims))); refusal == nil {
			t.Errorf("the subject %q is taken", subject)
		}
	}
}

// A public key is no secret: who knows it must not be able to sign with it.
func TestAPublicKeyUsedAsASecretSignsNothing(t *testing.T) {
	at := noon()
	issuer, key := issuing(t, filepath.Join(t.TempDir(), "keys"))
	issuer.TenantsClaim, issuer.Roles = "tenants", Caller
	a := authenticator(t, Config{Now: at.read, Issuers: []Issuer{issuer}})
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{"iss": "https://corp", "aud": "idemd", "sub": "svc", "exp": at.now.Add(time.Hour).Unix()}
	if _, refusal := a.Identify(bearer(signed(t, jose.HS256, der, "k", claims))); refusal == nil {
		t.Error("it is taken")
	}
	if _, refusal := a.Identify(bearer(signed(t, jose.ES256, key, "another", claims))); refusal == nil {
		t.Error("a key that is not named is taken")
	}
	if _, refusal := a.Identify(bearer(signed(t, jose.ES256, key, "k", claims))); refusal != nil {
		t.Errorf("the right one is not: %v", refusal)
	}
}

func TestAnIssuersKeysAreReadAgainAndBadOnesLeaveTheOldInForce(t *testing.T) {
	at := noon()
	file := filepath.Join(t.TempDir(), "keys")
	issuer, key := issuing(t, file)
	issuer.TenantsClaim, issuer.Roles = "tenants", Caller
	a := authenticator(t, Config{Now: at.read, Issuers: []Issuer{issuer}})
	claims := map[string]any{"iss": "https://corp", "aud": "idemd", "sub": "svc", "exp": at.now.Add(time.Hour).Unix()}
	good := func() bool {
		_, refusal := a.Identify(bearer(signed(t, jose.ES256, key, "k", claims)))
		return refusal == nil
	}
	if changed, err := a.ReloadKeys(); changed || err != nil {
		t.Errorf("nothing has changed: %v, %v", changed, err)
	}
	for what, spoil := range map[string]func(){
		"no file":           func() { _ = os.Remove(file) },
		"no JSON":           func() { _ = os.WriteFile(file, []byte("{"), 0o600) },
		"no keys":           func() { publish(t, file) },
		"a private key":     func() { publish(t, file, jose.JSONWebKey{Key: key, KeyID: "k"}) },
		"a symmetric key":   func() { publish(t, file, jose.JSONWebKey{Key: []byte("0123456789abcdef"), KeyID: "k"}) },
		"a key that is not": func() { _ = os.WriteFile(file, []byte(`{"keys":[{"kty":"new"}]}`), 0o600) },
	} {
		spoil()
		if changed, err := a.ReloadKeys(); changed || err == nil || strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("%s: %v, %v", what, changed, err)
		}
		if !good() {
			t.Errorf("%s: the keys before are not in force", what)
		}
	}
	_, next := issuing(t, file)
	if changed, err := a.ReloadKeys(); !changed || err != nil {
		t.Errorf("new keys: %v, %v", changed, err)
	}
	if good() {
		t.Error("the old key is in force")
	}
	if key = next; !good() {
		t.Error("the new key is not in force")
	}
}

func TestAMappedClaimIsOneOfTheMembersOrNobody(t *testing.T) {
	at := noon()
	issuer, key := issuing(t, filepath.Join(t.TempDir(), "keys"))
	issuer.Claim, issuer.Members = "email", map[string]string{"bot@corp": "acme"}
	a := authenticator(t, Config{Now: at.read, Members: []Member{member("acme", hashed("t"))}, Issuers: []Issuer{issuer}})
	for email, want := range map[any]string{"bot@corp": "acme", "other@corp": "", nil: "", 7: ""} {
		claims := map[string]any{"iss": "https://corp", "aud": "idemd", "email": email, "exp": at.now.Add(time.Hour).Unix()}
		who, refusal := a.Identify(bearer(signed(t, jose.ES256, key, "k", claims)))
		if (refusal == nil) != (want != "") || refusal == nil && who.Name != want {
			t.Errorf("%v is %v, %v", email, who, refusal)
		}
	}
}

// Whatever the header is, it is refused or somebody's token.
func FuzzAuthorization(f *testing.F) {
	for _, header := range []string{"Bearer token", "bearer  token", "Basic token", "", "Bearer", "Bearer a.b.c", "Bearer \x00", strings.Repeat("x", 9000)} {
		f.Add(header)
	}
	a, err := New(Config{Members: []Member{member("acme", hashed("token"))}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, header string) {
		who, refusal := a.Identify(Credentials{Authorization: []string{header}})
		_, credential, _ := strings.Cut(header, " ")
		if known := strings.TrimLeft(credential, " ") == "token" && strings.EqualFold(header[:6], "bearer"); known != (refusal == nil) {
			t.Fatalf("%q is %v, %v", header, who, refusal)
		}
		if refusal != nil && len(credential) > 8 && strings.Contains(refusal.Message, credential) {
			t.Fatalf("the refusal holds the credential: %v", refusal)
		}
	})
}
