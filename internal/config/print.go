package config

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/idemd/idemd/internal/access"
	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
)

// Print is the configuration as a file says it, with every default and everything that is
// inherited written out, and secrets masked.
func (c *Config) Print() ([]byte, error) {
	var root object
	root.add("listen", c.Listen.node())
	root.add("logging", c.Logging.node())
	if c.Tracing != nil {
		root.add("tracing", c.Tracing.node())
	}
	root.add("store", c.Store.node())
	if c.TLS != nil {
		root.add("tls", c.TLS.node())
	}
	if c.Authentication != nil {
		root.add("authentication", c.Authentication.node())
	}
	policy := policyOf(c.Policy)
	policy.quotas(c.Quotas, engine.Quotas{})
	root.add("policy", policy.node())
	if c.Tenants != nil {
		root.add("tenants", sorted(c.Tenants, func(t Tenant) *yaml.Node { return t.node(c.Quotas) }))
	}
	return yaml.Dump(root.node(), yaml.WithIndent(2))
}

// object is a mapping in the order in which it is written.
type object struct{ content []*yaml.Node }

func (o *object) add(key string, value *yaml.Node) {
	o.content = append(o.content, scalar(key), value)
}

func (o *object) node() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Content: o.content} }

// text adds what is not empty.
func (o *object) text(key, value string) {
	if value != "" {
		o.add(key, scalar(value))
	}
}

func (o *object) list(key string, values []string) {
	if len(values) > 0 {
		o.add(key, sequence(values, scalar))
	}
}

func (o *object) bool(key string, value bool) { o.add(key, plain(strconv.FormatBool(value))) }

// scalar is a text, quoted where it would be read as something else.
func scalar(value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}

func plain(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

func sequence[T any](values []T, node func(T) *yaml.Node) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, value := range values {
		list.Content = append(list.Content, node(value))
	}
	return list
}

func sorted[T any](values map[string]T, node func(T) *yaml.Node) *yaml.Node {
	var o object
	for _, name := range slices.Sorted(maps.Keys(values)) {
		o.add(name, node(values[name]))
	}
	return o.node()
}

func (l Listen) node() *yaml.Node {
	var o object
	o.text("grpc", l.GRPC)
	o.text("http", l.HTTP)
	o.bool("insecure", l.Insecure)
	o.bool("plaintext", l.Plaintext)
	o.bool("pprof", l.PProf)
	o.text("log_level", l.LogLevel)
	return o.node()
}

func (l Logging) node() *yaml.Node {
	var o object
	o.text("keys", l.Keys)
	o.text("key_hash_secret_file", l.HashSecretFile)
	return o.node()
}

func (t Tracing) node() *yaml.Node {
	var o object
	o.text("endpoint", t.Endpoint)
	o.bool("insecure", t.Insecure)
	o.add("sample_permille", plain(strconv.Itoa(t.SamplePermille)))
	o.text("headers_file", t.HeadersFile)
	return o.node()
}

func (s Store) node() *yaml.Node {
	var o, in object
	if s.Postgres == "" && s.PostgresFile == "" {
		in.text("dir", s.DataDir)
		o.add("embedded", in.node())
		return o.node()
	}
	in.text("dsn", maskDSN(s.Postgres))
	in.text("dsn_file", s.PostgresFile)
	in.add("connections", plain(strconv.Itoa(s.Connections)))
	in.bool("migrate", s.Migrate)
	o.add("postgres", in.node())
	return o.node()
}

const masked = "***"

// maskDSN masks the passwords in a connection string; one that can't be understood is
// masked as a whole.
func maskDSN(dsn string) string {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		if dsn != "" && !strings.Contains(dsn, "=") {
			return masked
		}
		secret := regexp.MustCompile(`(?i)(\w*password\s*=\s*)('(?:[^'\\]|\\.)*'?|(?:[^\s\\]|\\.)+)`)
		return secret.ReplaceAllString(dsn, "${1}"+masked)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return masked
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), masked)
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "password") {
			query.Set(name, masked)
		}
	}
	u.RawQuery = query.Encode()
	return strings.ReplaceAll(u.String(), "%2A%2A%2A", masked)
}

func (t *TLS) node() *yaml.Node {
	var o object
	o.text("certificate", t.Certificate)
	o.text("key", t.Key)
	o.text("client_ca", t.ClientCA)
	o.text("min_version", t.MinVersion)
	o.bool("http", t.HTTP)
	return o.node()
}

func (a *Authentication) node() *yaml.Node {
	var o object
	if len(a.Identities) > 0 {
		o.add("identities", sorted(a.Identities, Identity.node))
	}
	if len(a.JWT) > 0 {
		o.add("jwt", sorted(a.JWT, JWT.node))
	}
	return o.node()
}

func (i Identity) node() *yaml.Node {
	var o object
	if i.AllTenants {
		o.text("tenants", "*")
	}
	o.list("tenants", i.Tenants)
	o.list("roles", i.Roles.Names())
	if len(i.Tokens) > 0 {
		o.add("tokens", sequence(i.Tokens, Token.node))
	}
	if len(i.Certificates) > 0 {
		o.add("certificates", sequence(i.Certificates, certificateNode))
	}
	return o.node()
}

func (t Token) node() *yaml.Node {
	var o object
	o.text("sha256", t.SHA256[:8]+masked)
	if !t.NotAfter.IsZero() {
		o.add("not_after", plain(t.NotAfter.Format(time.RFC3339)))
	}
	return o.node()
}

func certificateNode(name access.CertificateName) *yaml.Node {
	var o object
	key := map[access.CertificateKind]string{access.URI: "uri", access.DNS: "dns", access.CommonName: "common_name"}[name.Kind]
	o.text(key, name.Value)
	return o.node()
}

func (j JWT) node() *yaml.Node {
	var o object
	o.text("issuer", j.Issuer)
	o.text("audience", j.Audience)
	o.text("jwks_file", j.KeyFile)
	o.list("algorithms", j.Algorithms)
	o.add("leeway", plain(formatDuration(j.Leeway)))
	o.text("claim", j.Claim)
	if len(j.Identities) > 0 {
		o.add("identities", sorted(j.Identities, scalar))
	}
	o.text("tenants_claim", j.TenantsClaim)
	o.text("roles_claim", j.RolesClaim)
	o.list("roles", j.Roles.Names())
	return o.node()
}

func (t Tenant) node(inherited engine.Quotas) *yaml.Node {
	o := policyOf(t.Policy)
	o.quotas(t.Quotas, inherited)
	o.bool("allow_unknown_namespaces", t.AllowUnknownNamespaces)
	if len(t.Namespaces) > 0 {
		o.add("namespaces", sorted(t.Namespaces, Namespace.node))
	}
	return o.node()
}

func (n Namespace) node() *yaml.Node {
	o := policyOf(n.Policy)
	o.quotas(n.Quotas, engine.Quotas{})
	return o.node()
}

func policyOf(p engine.Policy) *object {
	o := &object{}
	duration := func(key string, d time.Duration) { o.add(key, plain(formatDuration(d))) }
	duration("lease", p.Lease)
	duration("max_lease", p.MaxLease)
	duration("lease_cap", p.LeaseCap)
	duration("retention", p.Retention)
	duration("max_retention", p.MaxRetention)
	duration("result_retention", p.ResultRetention)
	o.bool("store_bodies", !p.OmitBodies)
	o.text("on_lapse", map[reservation.LapsePolicy]string{reservation.Hold: "hold", reservation.Rerun: "rerun"}[p.OnLapse])
	o.bool("allow_rerun", !p.NoRerun)
	o.add("attempts", plain(strconv.Itoa(int(p.Attempts))))
	o.add("max_body_bytes", plain(formatSize(int64(p.MaxBodyBytes))))
	o.add("max_checkpoint_bytes", plain(formatSize(int64(p.MaxCheckpointBytes))))
	duration("settle", p.Settle)
	return o
}

// quotas writes those that there are, and that those are lifted which would be inherited.
func (o *object) quotas(q, inherited engine.Quotas) {
	var in object
	write := func(key string, value, before float64) {
		switch {
		case value > 0:
			in.add(key, plain(strconv.FormatFloat(value, 'f', -1, 64)))
		case before > 0:
			in.add(key, plain(unlimited))
		}
	}
	write("rate", q.Rate, inherited.Rate)
	write("burst", float64(q.Burst), 0)
	write("live", float64(q.Live), float64(inherited.Live))
	switch {
	case q.StoredBytes > 0:
		in.add("stored_bytes", plain(formatSize(q.StoredBytes)))
	case inherited.StoredBytes > 0:
		in.add("stored_bytes", plain(unlimited))
	}
	if len(in.content) > 0 {
		o.add("quotas", in.node())
	}
}

func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	text := strings.TrimSuffix(d.String(), "m0s") // 1h0m0s, and 5m0s
	if text != d.String() {
		text += "m"
	}
	return strings.Replace(text, "h0m", "h", 1)
}
