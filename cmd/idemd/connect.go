package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/idemd/idemd/internal/config"
)

// identityFlags say how to reach a daemon that asks who calls. There is no flag for the
// token itself: every list of processes would show it.
type identityFlags struct {
	TokenFile  string `help:"File with the bearer token that proves who calls; or the token is in IDEMD_TOKEN." placeholder:"FILE"`
	TLS        bool   `name:"tls" help:"Call with TLS; implied by the flags below."`
	CAFile     string `name:"ca-file" help:"The CA of the daemon's certificate, in PEM. Default: the system's." placeholder:"FILE"`
	CertFile   string `name:"cert-file" and:"pair" help:"The client certificate that proves who calls, in PEM." placeholder:"FILE"`
	KeyFile    string `name:"key-file" and:"pair" help:"Its key." placeholder:"FILE"`
	ServerName string `help:"The name that the daemon's certificate must have. Default: the host of --addr." placeholder:"NAME"`
	Plaintext  bool   `help:"Send the token without TLS also to another machine."`
}

func (f identityFlags) encrypted() bool {
	return f.TLS || f.CAFile != "" || f.CertFile != "" || f.ServerName != ""
}

// transport is how the connection is secured.
func (f identityFlags) transport() (credentials.TransportCredentials, error) {
	if !f.encrypted() {
		return insecure.NewCredentials(), nil
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CAFile != "" {
		text, err := config.ReadFile(f.CAFile)
		if err != nil {
			return nil, err
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(text) {
			return nil, usagef("--ca-file %s holds no certificate in PEM", f.CAFile)
		}
	}
	if f.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
		if err != nil {
			return nil, err
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(settings), nil
}

// bearer is the token to send; empty = none.
func (f identityFlags) bearer(addr string) (bearerToken, error) {
	token := os.Getenv("IDEMD_TOKEN")
	if f.TokenFile != "" {
		text, err := config.ReadFile(f.TokenFile)
		if err != nil {
			return "", err
		}
		token = string(text)
	}
	if token = strings.TrimSpace(token); token == "" {
		return "", nil
	}
	if !f.encrypted() && !f.Plaintext && !isLoopback(addr) {
		return "", usagef("the token would go to %s in the clear: call with --tls, or with --plaintext if the way there is trusted", addr)
	}
	return bearerToken(token), nil
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// bearerToken proves who calls, with each call.
type bearerToken string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearerToken) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: what is allowed was
// decided when the token was read.
func (bearerToken) RequireTransportSecurity() bool { return false }
