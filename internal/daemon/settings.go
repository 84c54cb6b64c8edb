package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/idemd/idemd/internal/access"
	"github.com/idemd/idemd/internal/config"
	"github.com/idemd/idemd/internal/reservation"
)

// settings are the configuration in force, and who may call by it.
type settings struct {
	source config.Source
	// started is what the daemon was started with: some of it stays until it ends.
	started *config.Config
	text    []byte
	// now is what is in force; seen is another text that was read, once so far.
	now  *config.Config
	seen []byte
	// who is nil where nobody is asked who they are, for good.
	who   atomic.Pointer[access.Authenticator]
	certs *certificates // nil = without TLS
	// logKey is how keys are logged.
	logKey func(key string) string

	// apply puts policies in force.
	apply func(*config.Config) error
	warn  func(message string, args ...any)
}

// newSettings reads the configuration and every file that it names.
func newSettings(source config.Source) (*settings, error) {
	c, text, err := source.Load()
	if err != nil {
		return nil, err
	}
	s := &settings{source: source, started: c, now: c, text: text}
	if s.logKey, err = keyShown(c.Logging); err != nil {
		return nil, err
	}
	who, err := authenticatorOf(c)
	if err != nil {
		return nil, err
	}
	if who != nil {
		s.who.Store(who)
	}
	if c.TLS != nil {
		if s.certs, err = loadCertificates(*c.TLS); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// CheckFiles reads the files that a configuration names, as a daemon does at its start.
func CheckFiles(c *config.Config) error {
	_, errAccess := authenticatorOf(c)
	_, errDSN := dsnOf(c.Store)
	_, errLogging := keyShown(c.Logging)
	var errTracing error
	if c.Tracing != nil {
		_, errTracing = tracingHeaders(c.Tracing.HeadersFile)
	}
	var errTLS error
	if c.TLS != nil {
		_, errTLS = loadCertificates(*c.TLS)
	}
	return errors.Join(errAccess, errDSN, errLogging, errTracing, errTLS)
}

func authenticatorOf(c *config.Config) (*access.Authenticator, error) {
	known := c.Access()
	if known == nil {
		return nil, nil
	}
	return access.New(*known)
}

// reload reads the configuration again. If it is good as a whole it is in force, but for
// what needs a restart; if not, nothing of it is. Unless somebody ordered it, a text counts
// when it was read twice: who looks may find a file that is being written.
func (s *settings) reload(ordered bool) (changed bool, err error) {
	if s.source.File == "" {
		return false, nil
	}
	c, text, err := s.source.Load()
	if err == nil && bytes.Equal(text, s.text) {
		s.seen = nil
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !ordered && (s.seen == nil || !bytes.Equal(text, s.seen)) {
		s.seen = append([]byte{}, text...) // never nil
		return false, nil
	}
	if err := s.keepsWalls(c); err != nil {
		return false, err
	}
	who, err := authenticatorOf(c)
	if err != nil {
		return false, err
	}
	if err := s.apply(c); err != nil {
		return false, err
	}
	// One that was started without authentication listens where nobody expects it.
	if who != nil && s.who.Load() != nil {
		s.who.Store(who)
	}
	s.text, s.now, s.seen = text, c, nil
	if keys := c.NeedsRestart(s.started); len(keys) > 0 {
		s.warn("some of the new configuration needs a restart, and is not in force", "keys", strings.Join(keys, ", "))
	}
	return true, nil
}

// keepsWalls refuses a configuration that would let everybody in where only some were: it is
// a file that was cut off, or a change that somebody should stand beside.
func (s *settings) keepsWalls(c *config.Config) error {
	switch {
	case s.now.Tenants != nil && c.Tenants == nil:
		return errors.New("tenants: there are none any more, and then every name is one: a daemon has to be started with that")
	case s.now.Access() != nil && c.Access() == nil:
		return errors.New("authentication: it is gone, and then everybody may do everything: a daemon has to be started with that")
	}
	return nil
}

// hash names the configuration's file in metrics and logs.
func (s *settings) hash() string {
	sum := sha256.Sum256(s.text)
	return hex.EncodeToString(sum[:6])
}

// reloadKeys reads the keys of the issuers again.
func (s *settings) reloadKeys() (changed bool, err error) {
	if who := s.who.Load(); who != nil {
		return who.ReloadKeys()
	}
	return false, nil
}

func (s *settings) reloadCertificates() (changed bool, err error) {
	if s.certs == nil {
		return false, nil
	}
	return s.certs.reload()
}

// identify tells who calls, by the configuration of this moment.
func (s *settings) identify(c access.Credentials) (*access.Identity, *reservation.Error) {
	return s.who.Load().Identify(c)
}

// asks tells whether callers are asked who they are.
func (s *settings) asks() bool { return s.who.Load() != nil }
