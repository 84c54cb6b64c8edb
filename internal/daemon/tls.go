package daemon

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/idemd/idemd/internal/config"
)

// certificates are those that the daemon shows and believes, as its files last had them.
type certificates struct {
	config  config.TLS
	current atomic.Pointer[keyPair]
}

type keyPair struct {
	files       [][]byte // as they were read
	certificate tls.Certificate
	clientCAs   *x509.CertPool // nil = clients are not asked for one
}

func loadCertificates(c config.TLS) (*certificates, error) {
	loaded := &certificates{config: c}
	_, err := loaded.reload()
	return loaded, err
}

// reload reads the files and puts them in force if they have changed. They are compared
// by what they hold: that is right whether they are written, renamed or linked anew.
// Connections that exist stay.
func (c *certificates) reload() (changed bool, err error) {
	paths := []string{c.config.Certificate, c.config.Key}
	if c.config.ClientCA != "" {
		paths = append(paths, c.config.ClientCA)
	}
	pair := &keyPair{}
	for _, path := range paths {
		text, err := config.ReadFile(path)
		if err != nil {
			return false, err
		}
		pair.files = append(pair.files, text)
	}
	if before := c.current.Load(); before != nil && slices.EqualFunc(before.files, pair.files, bytes.Equal) {
		return false, nil
	}
	if pair.certificate, err = tls.X509KeyPair(pair.files[0], pair.files[1]); err != nil {
		return false, fmt.Errorf("%s with %s: %w", c.config.Certificate, c.config.Key, err)
	}
	if c.config.ClientCA != "" {
		pair.clientCAs = x509.NewCertPool()
		if !pair.clientCAs.AppendCertsFromPEM(pair.files[2]) {
			return false, fmt.Errorf("%s: %w", c.config.ClientCA, errors.New("it holds no certificate in PEM"))
		}
	}
	c.current.Store(pair)
	return true, nil
}

// server is the TLS configuration of a server that speaks some protocols: each handshake
// goes by the certificates of that moment. There are no session tickets: whoever comes
// back is looked at again.
func (c *certificates) server(protocols ...string) *tls.Config {
	version := uint16(tls.VersionTLS13)
	if c.config.MinVersion == "1.2" {
		version = tls.VersionTLS12
	}
	return &tls.Config{
		MinVersion: version, NextProtos: protocols, SessionTicketsDisabled: true,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			pair := c.current.Load()
			now := &tls.Config{
				MinVersion: version, NextProtos: protocols, SessionTicketsDisabled: true,
				Certificates: []tls.Certificate{pair.certificate},
			}
			if pair.clientCAs != nil {
				now.ClientCAs, now.ClientAuth = pair.clientCAs, tls.VerifyClientCertIfGiven
			}
			return now, nil
		},
	}
}
