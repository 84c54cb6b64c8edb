package main

import (
	"strings"
	"testing"
)

func TestTheCommandLineProvesWhoCalls(t *testing.T) {
	s := serveTLS(t, "")
	ca := write(t, s.dir, "server-ca.pem", s.server.pem())
	certificate, key := s.clients.issue(t, "spiffe://test/caller")
	pair := []string{"--cert-file", write(t, s.dir, "client.crt", certificate), "--key-file", write(t, s.dir, "client.key", key)}
	tokenFile := []string{"--token-file", write(t, s.dir, "token", []byte(callerToken+"\n"))}
	reach := []string{"--addr", s.grpc, "--ca-file", ca}
	for what, step := range map[string]struct {
		args []string
		env  string
		code int
	}{
		"a token's file":              {tokenFile, "", exitNotFound},
		"a token in the environment":  {nil, callerToken, exitNotFound},
		"a file over the environment": {tokenFile, "nobodys", exitNotFound},
		"a certificate":               {pair, "", exitNotFound},
		"another's tenant":            {append(pair, "-t", "rival"), "", exitForbidden},
		"nothing":                     {nil, "", exitForbidden},
		"a wrong token":               {nil, "nobodys", exitForbidden},
		"a certificate without key":   {pair[:2], "", exitUsage},
		"no such file":                {[]string{"--token-file", s.dir + "/none"}, "", exitUsage},
		"another name":                {append(tokenFile, "--server-name", "idemd.example.org"), "", exitUnavailable},
	} {
		t.Setenv("IDEMD_TOKEN", step.env)
		// The tenant is the identity's only one.
		code, _, stderr := command(append(append([]string{"lookup", "k"}, reach...), step.args...)...)
		if code != step.code || strings.Contains(stderr, callerToken) {
			t.Errorf("%s: it ends with %d, want %d: %s", what, code, step.code, stderr)
		}
	}
	t.Setenv("IDEMD_TOKEN", callerToken)
	if code, _, stderr := command("lookup", "k", "--addr", "idemd.example.org:7070"); code != exitUsage || !strings.Contains(stderr, "in the clear") {
		t.Errorf("a token without TLS to another machine ends with %d: %s", code, stderr)
	}
	// It is the caller's proof, not the owner's.
	if code, _, stderr := command("complete", "k", "-t", "acme"); code != exitUsage || !strings.Contains(stderr, "--token") {
		t.Errorf("complete without an owner token ends with %d: %s", code, stderr)
	}
}

func TestAConfigurationIsCheckedAndPrinted(t *testing.T) {
	path, _ := twoTenants(t, "listen: {log_level: warn}")
	if code, out, stderr := command("config", "check", "--files", path); code != 0 || !strings.Contains(out, "is good") {
		t.Errorf("check ends with %d: %s%s", code, out, stderr)
	}
	t.Setenv("IDEMD_HTTP_ADDR", "127.0.0.1:2")
	code, out, stderr := command("config", "print", "--config", path, "--grpc-addr", "127.0.0.1:1")
	for _, want := range []string{"grpc: 127.0.0.1:1\n", "http: 127.0.0.1:2\n", "log_level: warn\n", "lease: 30s\n", "sha256: " + hashOf(callerToken)[:8] + "***\n"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("print ends with %d, without %q: %s%s", code, want, out, stderr)
		}
	}
	bad := write(t, t.TempDir(), "bad.yaml", []byte("tenants:\n  acme:\n    leese: 5m\n    attempts: 0\n"))
	code, _, stderr = command("config", "check", bad)
	if code != exitUsage || !strings.Contains(stderr, "bad.yaml:3: tenants.acme has no key \"leese\": do you mean lease?\n") || !strings.Contains(stderr, "bad.yaml:4: ") {
		t.Errorf("a bad one ends with %d: %s", code, stderr)
	}
	if code, _, stderr := command("serve", "--config", bad); code != exitUsage || !strings.Contains(stderr, "bad.yaml:3") {
		t.Errorf("a daemon with it ends with %d: %s", code, stderr)
	}
	// A daemon with another store than was meant has forgotten everything.
	other := write(t, t.TempDir(), "other.yaml", []byte("store: {postgres: {dsn: 'host=nowhere'}}"))
	if code, _, stderr := command("serve", "--config", other, "--data-dir", t.TempDir()); code != exitUsage || !strings.Contains(stderr, "two stores") {
		t.Errorf("two stores end with %d: %s", code, stderr)
	}
}
