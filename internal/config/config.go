package config

import (
	"time"

	"github.com/idemd/idemd/internal/access"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
)

// Config is everything that a daemon can be told. Sections that are nil are not there.
type Config struct {
	Listen         Listen
	Logging        Logging
	Tracing        *Tracing
	Store          Store
	TLS            *TLS
	Authentication *Authentication
	// Policy is for all tenants; Quotas are each tenant's.
	Policy engine.Policy
	Quotas engine.Quotas
	// Tenants are the tenants there are; nil = every name is one.
	Tenants map[string]Tenant
}

// Listen is where the daemon answers, and to whom.
type Listen struct {
	GRPC, HTTP string
	// Insecure allows addresses beyond loopback without authentication, Plaintext
	// without TLS: something in front of the daemon sees to it.
	Insecure, Plaintext bool
	// PProf serves Go's profiles to operators under /debug/pprof.
	PProf bool
	// LogLevel is debug, info, warn or error.
	LogLevel string
}

// Logging says what of a key the log of calls shows.
type Logging struct {
	// Keys is hash, plain or none.
	Keys string
	// HashSecretFile holds what keys are hashed with; empty = at random, anew with each
	// start.
	HashSecretFile string
}

// Tracing says where spans go.
type Tracing struct {
	// Endpoint is host:port of an OTLP collector, over gRPC.
	Endpoint string
	// Insecure sends in the clear.
	Insecure bool
	// SamplePermille is how many of a thousand calls are traced whose callers don't say.
	SamplePermille int
	// HeadersFile holds lines "name: value" that are sent along; empty = none.
	HeadersFile string
}

// Store says where reservations are kept: in DataDir, or in PostgreSQL where there is a
// connection string.
type Store struct {
	DataDir string
	// Postgres is a connection string, PostgresFile a file that holds one.
	Postgres, PostgresFile string
	Connections            int
	Migrate                bool
}

// TLS says with which certificate the daemon answers. The files are read again when they
// change.
type TLS struct {
	Certificate, Key string
	// ClientCA holds the certificates of the CAs whose client certificates are believed;
	// empty = none are asked for.
	ClientCA string
	// MinVersion is 1.2 or 1.3.
	MinVersion string
	// HTTP serves the HTTP address with it, too.
	HTTP bool
}

// Authentication says who may call.
type Authentication struct {
	Identities map[string]Identity
	JWT        map[string]JWT
}

// Identity is somebody who may call.
type Identity struct {
	// Tenants are names; AllTenants is what a star means.
	Tenants    []string
	AllTenants bool
	Roles      access.Roles
	Tokens     []Token
	// Certificates are names in client certificates.
	Certificates []access.CertificateName
}

// Token is the SHA-256 of a bearer token, in hex.
type Token struct {
	SHA256   string
	NotAfter time.Time // zero = none
}

// JWT is an issuer of JWTs.
type JWT struct {
	Issuer, Audience, KeyFile string
	Algorithms                []string
	Leeway                    time.Duration
	// Claim and Identities map a claim's values to identities; else TenantsClaim, and
	// RolesClaim or Roles, make one.
	Claim                    string
	Identities               map[string]string
	TenantsClaim, RolesClaim string
	Roles                    access.Roles
}

// Tenant is what holds for a tenant.
type Tenant struct {
	Policy     engine.Policy
	Quotas     engine.Quotas // of all its namespaces together
	Namespaces map[string]Namespace
	// AllowUnknownNamespaces: there are more namespaces than those that are configured.
	AllowUnknownNamespaces bool
}

// Namespace is what holds for a namespace.
type Namespace struct {
	Policy engine.Policy
	Quotas engine.Quotas
}

// Bounds of a configuration.
const (
	MaxFileBytes = 4 << 20
	MaxTenants   = 10_000
	maxLeeway    = 5 * time.Minute
	maxConns     = 1000
)

// Default is the configuration of a daemon that is told nothing.
func Default() *Config {
	return &Config{
		Listen:  Listen{GRPC: "127.0.0.1:7070", HTTP: "127.0.0.1:7071", LogLevel: "info"},
		Logging: Logging{Keys: "hash"},
		Store:   Store{Connections: 8, Migrate: true},
		Policy:  engine.DefaultPolicy(),
	}
}

// Policies are the policies and quotas as the engine takes them.
func (c *Config) Policies() engine.Policies {
	p := engine.Policies{Default: c.Policy}
	if c.Tenants == nil {
		return p
	}
	p.Tenants = make(map[string]engine.TenantPolicy, len(c.Tenants))
	p.Namespaces = make(map[engine.Scope]engine.Policy)
	p.Quotas = make(map[engine.Scope]engine.Quotas)
	limit := func(scope engine.Scope, quotas engine.Quotas) {
		if quotas != (engine.Quotas{}) {
			p.Quotas[scope] = quotas
		}
	}
	for name, tenant := range c.Tenants {
		p.Tenants[name] = engine.TenantPolicy{Policy: tenant.Policy, OnlyNamed: !tenant.AllowUnknownNamespaces}
		limit(engine.Scope{Tenant: name}, tenant.Quotas)
		for namespace, of := range tenant.Namespaces {
			p.Namespaces[engine.Scope{Tenant: name, Namespace: namespace}] = of.Policy
			limit(engine.Scope{Tenant: name, Namespace: namespace}, of.Quotas)
		}
	}
	return p
}

// Access is the authentication as package access takes it; nil = nobody is asked who they
// are.
func (c *Config) Access() *access.Config {
	if c.Authentication == nil {
		return nil
	}
	var a access.Config
	for name, identity := range c.Authentication.Identities {
		a.Members = append(a.Members, identity.member(name))
	}
	for name, jwt := range c.Authentication.JWT {
		a.Issuers = append(a.Issuers, access.Issuer{
			Name: name, URL: jwt.Issuer, Audience: jwt.Audience, KeyFile: jwt.KeyFile, Algorithms: jwt.Algorithms, Leeway: jwt.Leeway,
			Claim: jwt.Claim, Members: jwt.Identities, TenantsClaim: jwt.TenantsClaim, RolesClaim: jwt.RolesClaim, Roles: jwt.Roles,
		})
	}
	return &a
}

func (i Identity) member(name string) access.Member {
	m := access.Member{
		Identity:     access.Identity{Name: name, Roles: i.Roles, Tenants: i.Tenants, AllTenants: i.AllTenants},
		Certificates: i.Certificates,
	}
	for _, token := range i.Tokens {
		hash, err := access.ParseTokenHash(token.SHA256)
		if err == nil { // else it was refused when it was read
			m.Tokens = append(m.Tokens, access.Token{SHA256: hash, NotAfter: token.NotAfter})
		}
	}
	return m
}

// isName tells whether a text can name a tenant or a namespace.
func isName(s string) bool {
	return reservation.Address{Tenant: s, Namespace: s, Key: "k"}.Validate() == nil
}
