package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/idemd/idemd/internal/engine"
)

// Parse reads a configuration over the defaults. The error is [*Problems]: everything that
// is wrong with it, by line.
func Parse(file string, text []byte) (*Config, error) {
	c, _, err := parse(file, text)
	return c, err
}

func parse(file string, text []byte) (*Config, *decoder, error) {
	d := &decoder{known: make(map[string]bool)}
	c := Default()
	if root := d.document(text); root != nil {
		d.config(root, c)
	}
	if len(d.problems) > 0 {
		return nil, d, &Problems{file, d.problems}
	}
	return c, d, nil
}

// document is the only document of a file; nil = there is none, or it can't be read.
func (d *decoder) document(text []byte) *yaml.Node {
	if len(text) > MaxFileBytes {
		d.problems = append(d.problems, Problem{1, fmt.Sprintf("the file is larger than %s", formatSize(MaxFileBytes))})
		return nil
	}
	loader := yaml.NewDecoder(strings.NewReader(string(text)))
	var first, second yaml.Node
	err := loader.Decode(&first)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		if err = loader.Decode(&second); errors.Is(err, io.EOF) {
			return first.Content[0]
		}
		if err == nil {
			d.problem(&second, "there is a second document: a configuration is one")
			return nil
		}
	}
	d.problems = append(d.problems, Problem{lineOf(err), "this is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")})
	return nil
}

// lineOf is the line that an error of the YAML library names.
func lineOf(err error) int {
	line := 1
	if at := strings.Index(err.Error(), "line "); at >= 0 {
		_, _ = fmt.Sscanf(err.Error()[at:], "line %d", &line)
	}
	return max(line, 1)
}

func (d *decoder) config(root *yaml.Node, c *Config) {
	var tenants *yaml.Node
	var quotas *yaml.Node
	d.mapping(root, fields{
		"listen":         func(n *yaml.Node) { d.listen(n, &c.Listen) },
		"logging":        func(n *yaml.Node) { d.logging(n, &c.Logging) },
		"tracing":        func(n *yaml.Node) { c.Tracing = d.tracing(n) },
		"store":          func(n *yaml.Node) { d.store(n, &c.Store) },
		"tls":            func(n *yaml.Node) { c.TLS = d.tls(n) },
		"authentication": func(n *yaml.Node) { c.Authentication = d.authentication(n) },
		"policy": func(n *yaml.Node) {
			d.policy(n, &c.Policy, &c.Quotas, nil)
			if c.Quotas != (engine.Quotas{}) {
				quotas = n
			}
		},
		"tenants": func(n *yaml.Node) { tenants = n },
	})
	// What tenants inherit is known only now, wherever it stands in the file.
	if tenants != nil {
		d.within("tenants", "tenants", func() { c.Tenants = d.tenants(tenants, c) })
	}
	if quotas != nil && c.Tenants == nil {
		d.problem(quotas, "policy.quotas are each tenant's: list the tenants")
	}
	d.knownTenants(root, c)
}

func (d *decoder) listen(n *yaml.Node, l *Listen) {
	d.mapping(n, fields{
		"grpc":      d.text(&l.GRPC),
		"http":      d.text(&l.HTTP),
		"insecure":  d.boolean(&l.Insecure),
		"plaintext": d.boolean(&l.Plaintext),
		"pprof":     d.boolean(&l.PProf),
		"log_level": d.oneOf(&l.LogLevel, "debug", "info", "warn", "error"),
	})
}

func (d *decoder) logging(n *yaml.Node, l *Logging) {
	d.mapping(n, fields{
		"keys":                 d.oneOf(&l.Keys, "hash", "plain", "none"),
		"key_hash_secret_file": d.text(&l.HashSecretFile),
	})
}

func (d *decoder) tracing(n *yaml.Node) *Tracing {
	t := &Tracing{SamplePermille: 10}
	d.mapping(n, fields{
		"endpoint":        d.text(&t.Endpoint),
		"insecure":        d.boolean(&t.Insecure),
		"sample_permille": integer(d, &t.SamplePermille, 0, 1000),
		"headers_file":    d.text(&t.HeadersFile),
	})
	return t
}

func (d *decoder) store(n *yaml.Node, s *Store) {
	var embedded, postgres bool
	d.mapping(n, fields{
		"embedded": func(n *yaml.Node) {
			embedded = true
			d.mapping(n, fields{"dir": d.text(&s.DataDir)})
		},
		"postgres": func(n *yaml.Node) {
			postgres = true
			d.mapping(n, fields{
				"dsn":         d.text(&s.Postgres),
				"dsn_file":    d.text(&s.PostgresFile),
				"connections": integer(d, &s.Connections, 1, maxConns),
				"migrate":     d.boolean(&s.Migrate),
			})
			if s.Postgres != "" && s.PostgresFile != "" {
				d.problem(n, "store.postgres has dsn and dsn_file: give one")
			}
		},
	})
	if embedded && postgres {
		d.problem(n, "store.embedded and store.postgres name two stores: give one")
	}
}

func (d *decoder) tls(n *yaml.Node) *TLS {
	t := &TLS{MinVersion: "1.3"}
	d.mapping(n, fields{
		"certificate": d.text(&t.Certificate),
		"key":         d.text(&t.Key),
		"client_ca":   d.text(&t.ClientCA),
		"min_version": d.oneOf(&t.MinVersion, "1.2", "1.3"),
		"http":        d.boolean(&t.HTTP),
	})
	if t.Certificate == "" || t.Key == "" {
		d.problem(n, "tls needs certificate and key, two files")
	}
	return t
}

// tenants reads a mapping of tenants, or a list of their names.
func (d *decoder) tenants(n *yaml.Node, c *Config) map[string]Tenant {
	tenants := make(map[string]Tenant)
	inherited := Tenant{Policy: c.Policy, Quotas: c.Quotas, AllowUnknownNamespaces: true}
	if aliased(n).Kind == yaml.SequenceNode {
		var names []string
		d.texts(&names)(n)
		for _, name := range names {
			d.name(n, name)
			tenants[name] = inherited
		}
	} else {
		d.named(n, func(name string, key, value *yaml.Node) {
			d.name(key, name)
			tenant := inherited
			d.tenant(value, &tenant)
			tenants[name] = tenant
		})
	}
	switch {
	case len(tenants) == 0:
		d.problem(n, "tenants names none: leave it out, and every tenant is served")
	case len(tenants) > MaxTenants:
		d.problem(n, "there are %d tenants, at most %d", len(tenants), MaxTenants)
	}
	return tenants
}

func (d *decoder) name(n *yaml.Node, name string) {
	if !isName(name) {
		d.problem(n, "%q can't be a name here: 1 to 64 bytes of a-z 0-9 . _ -", name)
	}
}

func (d *decoder) tenant(n *yaml.Node, t *Tenant) {
	var namespaces *yaml.Node
	d.policy(n, &t.Policy, &t.Quotas, fields{
		"allow_unknown_namespaces": d.boolean(&t.AllowUnknownNamespaces),
		"namespaces":               func(n *yaml.Node) { namespaces = n },
	})
	if namespaces == nil {
		return
	}
	t.Namespaces = make(map[string]Namespace)
	d.within("namespaces", "namespaces", func() {
		d.named(namespaces, func(name string, key, value *yaml.Node) {
			d.name(key, name)
			namespace := Namespace{Policy: t.Policy} // a tenant's quotas are over all of them
			d.policy(value, &namespace.Policy, &namespace.Quotas, nil)
			t.Namespaces[name] = namespace
		})
	})
	if len(t.Namespaces) > MaxTenants {
		d.problem(namespaces, "there are %d namespaces, at most %d", len(t.Namespaces), MaxTenants)
	}
}

// check gives an error of several lines its place.
func (d *decoder) check(n *yaml.Node, err error) {
	if err == nil {
		return
	}
	for line := range strings.Lines(err.Error()) {
		d.problem(n, "%s: %s", d.where(), strings.TrimSpace(line))
	}
}

// ReadFile reads a configuration's file, which may be as large as MaxFileBytes.
func ReadFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, MaxFileBytes+1))
}
