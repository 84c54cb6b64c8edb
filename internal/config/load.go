package config

import (
	"errors"
	"fmt"
	"net"
	"strings"
)

// Source is where a configuration comes from.
type Source struct {
	// File is the path of the file; empty = there is none, and nothing to read again.
	File string
	// Override puts what command line and environment say over what the file says; nil =
	// they say nothing.
	Override func(*Config)
}

// Load reads the configuration and checks it as a whole. The text is the file's, for those
// who look for changes. The error is [*Problems] where the file is wrong.
func (s Source) Load() (c *Config, text []byte, err error) {
	c = Default()
	if s.File != "" {
		if text, err = ReadFile(s.File); err != nil {
			return nil, nil, fmt.Errorf("the configuration can't be read: %w", err)
		}
		if c, err = Parse(s.File, text); err != nil {
			return nil, text, err
		}
	}
	if s.Override != nil {
		s.Override(c)
	}
	c.complete()
	if err := c.Validate(); err != nil {
		return nil, text, err
	}
	return c, text, nil
}

// defaultDataDir is where the embedded store lies if nobody says otherwise.
const defaultDataDir = "./idemd-data"

func (c *Config) complete() {
	if c.Store.Postgres == "" && c.Store.PostgresFile == "" && c.Store.DataDir == "" {
		c.Store.DataDir = defaultDataDir
	}
}

// Validate tells everything that is wrong with the configuration as a whole.
func (c *Config) Validate() error {
	errs := []error{
		c.reachable("listen.grpc (--grpc-addr)", c.Listen.GRPC, c.TLS != nil),
		c.reachable("listen.http (--http-addr)", c.Listen.HTTP, c.TLS != nil && c.TLS.HTTP),
	}
	if s := c.Store; s.DataDir != "" && (s.Postgres != "" || s.PostgresFile != "") {
		errs = append(errs, errors.New("store.embedded and store.postgres (--data-dir and --postgres, IDEMD_DATA_DIR and IDEMD_POSTGRES) name two stores: give one"))
	}
	if n := c.Store.Connections; n < 1 || n > maxConns {
		errs = append(errs, fmt.Errorf("store.postgres.connections (--postgres-conns) is %d: want 1 to %d", n, maxConns))
	}
	if c.Listen.PProf && c.Authentication == nil && !loopback(c.Listen.HTTP) {
		errs = append(errs, errors.New("listen.pprof needs authentication beyond loopback"))
	}
	if c.Logging.HashSecretFile != "" && c.Logging.Keys != "hash" {
		errs = append(errs, fmt.Errorf("logging.key_hash_secret_file is there, and logging.keys is %s: keys are hashed, or they are not", c.Logging.Keys))
	}
	if c.Tracing != nil {
		if _, _, err := net.SplitHostPort(c.Tracing.Endpoint); err != nil {
			errs = append(errs, fmt.Errorf("tracing.endpoint %q: want host:port: %w", c.Tracing.Endpoint, err))
		}
	}
	errs = append(errs, c.Policies().Validate())
	return errors.Join(errs...)
}

// reachable refuses an address beyond this machine to which strangers, or listeners on the
// way, have access, unless that was said to be so.
func (c *Config) reachable(name, addr string, encrypted bool) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("%s %q: want host:port: %w", name, addr, err)
	}
	switch {
	case loopback(addr) || c.Listen.Insecure:
		return nil
	case c.Authentication == nil:
		return fmt.Errorf("%s %q is reachable from other machines, and there is no authentication: configure it, listen on 127.0.0.1, or say listen.insecure (--insecure) if the network in front of it is trusted", name, addr)
	case !encrypted && !c.Listen.Plaintext:
		return fmt.Errorf("%s %q is reachable from other machines without TLS, and tokens would be readable on the way: configure tls (with tls.http for the HTTP address), or say listen.plaintext if TLS ends in front of it", name, addr)
	}
	return nil
}

// loopback tells whether an address can be reached from this machine only.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// Open tells whether the daemon is told to listen beyond loopback without authentication.
func (c *Config) Open() bool { return c.Authentication == nil && c.Listen.Insecure }

// Local tells whether the daemon can be reached from this machine only.
func (c *Config) Local() bool { return loopback(c.Listen.GRPC) && loopback(c.Listen.HTTP) }

// NeedsRestart names what differs from another configuration and can't be changed while a
// daemon runs.
func (c *Config) NeedsRestart(from *Config) (keys []string) {
	differ := func(key string, differs bool) {
		if differs {
			keys = append(keys, key)
		}
	}
	differ("listen", c.Listen != from.Listen)
	differ("logging", c.Logging != from.Logging)
	differ("tracing", (c.Tracing == nil) != (from.Tracing == nil) || c.Tracing != nil && *c.Tracing != *from.Tracing)
	differ("store", c.Store != from.Store)
	differ("tls", (c.TLS == nil) != (from.TLS == nil) || c.TLS != nil && *c.TLS != *from.TLS)
	differ("authentication (on or off)", (c.Authentication == nil) != (from.Authentication == nil))
	return keys
}
