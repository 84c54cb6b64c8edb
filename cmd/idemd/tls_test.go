package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// secured is a daemon with TLS, its CA, and a CA of clients.
type secured struct {
	*process
	server, clients *authority
	dir             string
	config          string
}

func serveTLS(t *testing.T, more string) *secured {
	t.Helper()
	s := &secured{server: newAuthority(t), clients: newAuthority(t), dir: t.TempDir()}
	certificate, key := s.server.issue(t, "")
	s.config, _ = twoTenants(t, fmt.Sprintf(`
tls: {certificate: %s, key: %s, client_ca: %s, http: true}
listen: {pprof: true}
%s`, write(t, s.dir, "tls.crt", certificate), write(t, s.dir, "tls.key", key), write(t, s.dir, "ca.crt", s.clients.pem()), more))
	s.process = serve(t, "--data-dir", t.TempDir(), "--config", s.config)
	return s
}

func (s *secured) dial(t *testing.T, config *tls.Config) *client {
	t.Helper()
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{idemdv1.NewIdempotencyServiceClient(conn), idemdv1.NewOperatorServiceClient(conn), conn}
}

func (c *client) lookup(ctx context.Context, tenant string) error {
	_, err := c.Lookup(ctx, &idemdv1.LookupRequest{Tenant: tenant, Key: "k"})
	return err
}

func TestAClientCertificateProvesAnIdentity(t *testing.T) {
	s := serveTLS(t, "")
	anonymous := &tls.Config{RootCAs: s.server.pool(), MinVersion: tls.VersionTLS13}
	stranger := newAuthority(t)
	for what, step := range map[string]struct {
		config *tls.Config
		token  string
		tenant string
		code   codes.Code
	}{
		"its own tenant":                 {s.clients.client(t, s.server, "spiffe://test/caller"), "", "acme", codes.NotFound},
		"the only tenant, left out":      {s.clients.client(t, s.server, "spiffe://test/caller"), "", "", codes.NotFound},
		"another's tenant":               {s.clients.client(t, s.server, "spiffe://test/caller"), "", "rival", codes.PermissionDenied},
		"a name that is nobody's":        {s.clients.client(t, s.server, "spiffe://test/nobody"), "", "acme", codes.Unauthenticated},
		"no name":                        {s.clients.client(t, s.server, ""), "", "acme", codes.Unauthenticated},
		"no certificate":                 {anonymous, "", "acme", codes.Unauthenticated},
		"a token alone":                  {anonymous, callerToken, "acme", codes.NotFound},
		"a mesh's certificate and token": {s.clients.client(t, s.server, "spiffe://test/nobody"), callerToken, "acme", codes.NotFound},
		"both of one identity":           {s.clients.client(t, s.server, "spiffe://test/caller"), callerToken, "acme", codes.NotFound},
		"both of different identities":   {s.clients.client(t, s.server, "spiffe://test/rival"), callerToken, "acme", codes.Unauthenticated},
		"a good one and a bad token":     {s.clients.client(t, s.server, "spiffe://test/caller"), "nobodys", "acme", codes.Unauthenticated},
		"of another CA":                  {stranger.client(t, s.server, "spiffe://test/caller"), "", "acme", codes.Unavailable},
		"of the server's own CA":         {s.server.client(t, s.server, "spiffe://test/caller"), "", "acme", codes.Unavailable},
	} {
		ctx := bounded(t)
		if step.token != "" {
			ctx = with(t, "Bearer "+step.token)
		}
		if err := s.dial(t, step.config).lookup(ctx, step.tenant); status.Code(err) != step.code {
			t.Errorf("%s: %v, want %v", what, err, step.code)
		}
	}
	if err := dial(t, s.grpc).lookup(bounded(t), "acme"); status.Code(err) != codes.Unavailable {
		t.Errorf("without TLS: %v", err)
	}
	old := &tls.Config{RootCAs: s.server.pool(), MaxVersion: tls.VersionTLS12}
	if err := s.dial(t, old).lookup(with(t, "Bearer "+callerToken), "acme"); status.Code(err) != codes.Unavailable {
		t.Errorf("with TLS 1.2, which is not allowed by default: %v", err)
	}
}

func TestHTTPIsServedWithTheSameCertificateAndClients(t *testing.T) {
	s := serveTLS(t, "")
	for uri, want := range map[string]int{"spiffe://test/rival": http.StatusOK, "spiffe://test/caller": http.StatusForbidden, "": http.StatusUnauthorized} {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: s.clients.client(t, s.server, uri)}}
		for _, path := range []string{"/metrics", "/debug/pprof/"} {
			if code := get(t, c, "https://"+s.http+path, ""); code != want {
				t.Errorf("%s for the certificate %q answers %d, want %d", path, uri, code, want)
			}
		}
		if code := get(t, c, "https://"+s.http+"/livez", ""); code != http.StatusOK {
			t.Errorf("/livez answers %d", code)
		}
		c.CloseIdleConnections()
	}
}

// reload orders the daemon to read its files again and waits until it says a word about it.
func (s *secured) reload(t *testing.T, says string) {
	t.Helper()
	before := strings.Count(s.log.String(), says)
	s.signal(t, syscall.SIGHUP)
	ctx := bounded(t)
	for strings.Count(s.log.String(), says) == before {
		select {
		case <-ctx.Done():
			t.Fatalf("it does not say %q:\n%s", says, s.log)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestCertificatesAreReadAgainAndABadOneLeavesTheOldInForce(t *testing.T) {
	s := serveTLS(t, "")
	believes := func(a *authority) error {
		return s.dial(t, &tls.Config{RootCAs: a.pool(), MinVersion: tls.VersionTLS13}).lookup(with(t, "Bearer "+callerToken), "acme")
	}
	next := newAuthority(t)
	certificate, key := next.issue(t, "")
	write(t, s.dir, "tls.crt", certificate) // not yet the key: they don't fit
	s.reload(t, `"what":"certificates","error"`)
	if err := believes(s.server); status.Code(err) != codes.NotFound {
		t.Errorf("with half of a new certificate: %v", err)
	}
	write(t, s.dir, "tls.key", key)
	s.reload(t, `"read again and in force","what":"certificates"`)
	if err := believes(next); status.Code(err) != codes.NotFound {
		t.Errorf("with a new certificate: %v", err)
	}
	if err := believes(s.server); status.Code(err) != codes.Unavailable {
		t.Errorf("with a new certificate, by the old CA: %v", err)
	}
	// Clients are looked at anew as well.
	clients := newAuthority(t)
	write(t, s.dir, "ca.crt", clients.pem())
	s.reload(t, `"read again and in force","what":"certificates"`)
	if err := s.dial(t, s.clients.client(t, next, "spiffe://test/caller")).lookup(bounded(t), "acme"); status.Code(err) != codes.Unavailable {
		t.Errorf("a client of the CA before: %v", err)
	}
	if err := s.dial(t, clients.client(t, next, "spiffe://test/caller")).lookup(bounded(t), "acme"); status.Code(err) != codes.NotFound {
		t.Errorf("a client of the new CA: %v", err)
	}
}

func TestAChangedConfigurationIsInForceAndABadOneIsNot(t *testing.T) {
	path, _ := twoTenants(t, "")
	s := &secured{process: serve(t, "--data-dir", t.TempDir(), "--config", path), dir: filepath.Dir(path)}
	c := dial(t, s.grpc)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	change := func(from, to string) {
		t.Helper()
		changed := strings.Replace(string(before), from, to, 1)
		if changed == string(before) {
			t.Fatalf("%q is not there", from)
		}
		write(t, s.dir, "idemd.yaml", []byte(changed))
	}
	metric := func(token string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(bounded(t), http.MethodGet, "http://"+s.http+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		return body(t, request)
	}
	known := func(token string) error { return c.lookup(with(t, "Bearer "+token), "acme") }

	change(hashOf(callerToken), "not-a-digest")
	s.reload(t, `"what":"configuration","error"`)
	if err := known(callerToken); status.Code(err) != codes.NotFound {
		t.Errorf("after a bad configuration: %v", err)
	}
	shown := metric(operatorToken)
	for _, want := range []string{
		`idemd_config_reload_errors_total [1-9]`, `idemd_reload_errors_total\{what="configuration"\} [1-9]`,
		`idemd_config_hash\{sha256="[0-9a-f]{12}"\} 1`, `idemd_config_last_reload_success_timestamp_seconds 1\.`,
	} {
		if !regexp.MustCompile(want).MatchString(shown) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	change(hashOf(callerToken), hashOf("caller-token-newest"))
	s.reload(t, `"read again and in force","what":"configuration"`)
	if err := known("caller-token-newest"); status.Code(err) != codes.NotFound {
		t.Errorf("a token that came: %v", err)
	}
	if err := known(callerToken); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a token that went: %v", err)
	}
	change("tenants: [acme, rival]", "tenants: {acme: {max_lease: 1s, lease: 1s}, rival: }")
	s.reload(t, `"read again and in force","what":"configuration"`)
	reserved, err := c.Reserve(with(t, "Bearer "+callerToken), &idemdv1.ReserveRequest{Key: "new", OwnerToken: randomToken(), Fingerprint: fingerprint()})
	if err != nil || reserved.GetOwned().GetLeaseRemaining().AsDuration() != time.Second {
		t.Errorf("by the new policy: %v, %v", reserved, err)
	}
	change("tenants: [acme, rival]", "tenants: [acme, rival]\nlisten: {log_level: debug}")
	s.reload(t, `needs a restart, and is not in force","keys":"listen"`)
	if errors.Is(known(callerToken), context.DeadlineExceeded) {
		t.Error("it does not answer any more")
	}
}
