package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/idemd/idemd/internal/access"
)

func (d *decoder) authentication(n *yaml.Node) *Authentication {
	a := &Authentication{Identities: make(map[string]Identity), JWT: make(map[string]JWT)}
	d.mapping(n, fields{
		"identities": func(n *yaml.Node) {
			d.named(n, func(name string, key, value *yaml.Node) {
				if strings.ContainsFunc(name, notActorRune) || len(name) > 128 {
					d.problem(key, "the name of an identity must be 1 to 128 bytes of printable ASCII without spaces and colons")
				}
				a.Identities[name] = d.identity(value)
			})
		},
		"jwt": func(n *yaml.Node) {
			d.named(n, func(name string, key, value *yaml.Node) {
				d.name(key, name)
				a.JWT[name] = d.jwt(value)
			})
		},
	})
	d.provable(n, a)
	return a
}

// notActorRune: a colon stands between an issuer's name and a subject.
func notActorRune(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }

// provable demands that somebody can call at all, and that each identity can be proven.
func (d *decoder) provable(n *yaml.Node, a *Authentication) {
	if len(a.Identities) == 0 && len(a.JWT) == 0 {
		d.problem(n, "authentication has neither identities nor jwt: nobody could call")
	}
	mapped := make(map[string]bool)
	for issuer, jwt := range a.JWT {
		for _, name := range jwt.Identities {
			mapped[name] = true
			if _, known := a.Identities[name]; !known {
				d.problem(n, "authentication.jwt.%s maps to the identity %q, which is not there", issuer, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Identities)) {
		identity := a.Identities[name]
		if len(identity.Tokens) == 0 && len(identity.Certificates) == 0 && !mapped[name] {
			d.problem(n, "authentication.identities.%s has neither tokens nor certificates, and no jwt maps to it: it can't be proven", name)
		}
	}
}

func (d *decoder) identity(n *yaml.Node) Identity {
	var i Identity
	d.mapping(n, fields{
		"tenants": d.tenantList(&i),
		"roles":   d.roles(&i.Roles),
		"tokens": d.each(func(n *yaml.Node) {
			i.Tokens = append(i.Tokens, d.token(n))
		}),
		"certificates": d.each(func(n *yaml.Node) {
			i.Certificates = append(i.Certificates, d.certificate(n)...)
		}),
	})
	if i.Roles == 0 {
		d.problem(n, "%s has no roles: it could do nothing", d.where())
	}
	if i.Roles != access.Metrics && i.Roles != 0 && len(i.Tenants) == 0 && !i.AllTenants {
		d.problem(n, "%s has no tenants: name some, or \"*\" for all", d.where())
	}
	return i
}

func (d *decoder) tenantList(i *Identity) reading {
	return func(n *yaml.Node) {
		d.texts(&i.Tenants)(n)
		if slices.Contains(i.Tenants, "*") {
			i.AllTenants = true
			if len(i.Tenants) > 1 {
				d.problem(n, "%s names all tenants (*) and others besides", d.where())
			}
			i.Tenants = nil
		}
		for _, name := range i.Tenants {
			if name != "" {
				d.name(n, name)
			}
		}
	}
}

func (d *decoder) roles(to *access.Roles) reading {
	return func(n *yaml.Node) {
		var names []string
		d.texts(&names, access.RoleNames()...)(n)
		for _, name := range names {
			role, _ := access.ParseRole(name)
			*to |= role
		}
	}
}

// token reads the digest of a token, alone or with the time until which it is good.
func (d *decoder) token(n *yaml.Node) (t Token) {
	if n.Kind == yaml.MappingNode {
		d.mapping(n, fields{"sha256": d.text(&t.SHA256), "not_after": d.time(&t.NotAfter)})
	} else {
		d.text(&t.SHA256)(n)
	}
	if _, err := access.ParseTokenHash(t.SHA256); err != nil {
		d.problem(n, "%s: %v", d.where(), err) // never what stands there: it may be a token
	}
	return t
}

func (d *decoder) certificate(n *yaml.Node) (names []access.CertificateName) {
	name := func(kind access.CertificateKind) reading {
		return func(n *yaml.Node) {
			named := access.CertificateName{Kind: kind}
			d.text(&named.Value)(n)
			names = append(names, named)
		}
	}
	d.mapping(n, fields{"uri": name(access.URI), "dns": name(access.DNS), "common_name": name(access.CommonName)})
	if len(names) == 0 {
		d.problem(n, "%s must hold entries with uri, dns or common_name", d.where())
	}
	return names
}

func (d *decoder) jwt(n *yaml.Node) JWT {
	j := JWT{Leeway: 30 * time.Second}
	d.mapping(n, fields{
		"issuer":     d.text(&j.Issuer),
		"audience":   d.text(&j.Audience),
		"jwks_file":  d.text(&j.KeyFile),
		"algorithms": d.texts(&j.Algorithms, access.Algorithms()...),
		"leeway":     d.duration(&j.Leeway),
		"claim":      d.text(&j.Claim),
		"identities": func(n *yaml.Node) {
			j.Identities = make(map[string]string)
			d.named(n, func(value string, _, name *yaml.Node) {
				var to string
				d.text(&to)(name)
				j.Identities[value] = to
			})
		},
		"tenants_claim": d.text(&j.TenantsClaim),
		"roles_claim":   d.text(&j.RolesClaim),
		"roles":         d.roles(&j.Roles),
	})
	if j.Claim == "" && j.Identities != nil {
		j.Claim = "sub"
	}
	if j.Issuer == "" || j.Audience == "" || j.KeyFile == "" {
		d.problem(n, "%s needs issuer, audience and jwks_file", d.where())
	}
	if j.Leeway < 0 || j.Leeway > maxLeeway {
		d.problem(n, "%s.leeway must be from 0s to %v", d.where(), maxLeeway)
	}
	mapped, made := j.Identities != nil, j.TenantsClaim != "" || j.RolesClaim != "" || j.Roles != 0
	switch {
	case mapped == made:
		d.problem(n, "%s must either map a claim to identities, or name tenants_claim with roles or roles_claim", d.where())
	case made && (j.TenantsClaim == "" || (j.RolesClaim == "") == (j.Roles == 0)):
		d.problem(n, "%s needs tenants_claim, and one of roles and roles_claim", d.where())
	case j.Claim != "" && !mapped:
		d.problem(n, "%s.claim goes with identities", d.where())
	}
	return j
}

// knownTenants demands that identities name tenants that there are.
func (d *decoder) knownTenants(n *yaml.Node, c *Config) {
	if c.Authentication == nil || c.Tenants == nil {
		return
	}
	names := slices.Collect(maps.Keys(c.Tenants))
	for _, identity := range slices.Sorted(maps.Keys(c.Authentication.Identities)) {
		for _, tenant := range c.Authentication.Identities[identity].Tenants {
			if _, known := c.Tenants[tenant]; known || !isName(tenant) {
				continue
			}
			text := ""
			if near := nearest(tenant, names); near != "" {
				text = ": do you mean " + near + "?"
			}
			d.problem(n, "authentication.identities.%s names the tenant %q, which is not among tenants%s", identity, tenant, text)
		}
	}
}
