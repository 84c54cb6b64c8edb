package daemon

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/idemd/idemd/internal/config"
)

// pair is a certificate that signs itself, and its key.
func pair(t *testing.T, serial int64) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

// mount puts a pair where Kubernetes puts a secret: files are links into a directory that
// a link names, and that link is replaced.
func mount(t *testing.T, dir string, serial int64) {
	t.Helper()
	certificate, key := pair(t, serial)
	version := filepath.Join(dir, "..version-"+big.NewInt(serial).String())
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Mkdir(version, 0o700))
	check(os.WriteFile(filepath.Join(version, "tls.crt"), certificate, 0o600))
	check(os.WriteFile(filepath.Join(version, "tls.key"), key, 0o600))
	check(os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	check(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
}

func TestASecretThatIsLinkedAnewIsReadWithTheNextTickAndABadOneIsSaidOnce(t *testing.T) {
	dir := t.TempDir()
	mount(t, dir, 1)
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	certs, err := loadCertificates(config.TLS{Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")})
	if err != nil {
		t.Fatal(err)
	}
	shown := func() int64 {
		t.Helper()
		now, err := certs.server("h2").GetConfigForClient(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(now.Certificates[0].Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.SerialNumber.Int64()
	}
	var log bytes.Buffer
	failed, renewed, looked := 0, 0, make(chan struct{})
	r := &reloader{
		files: []*watched{{what: "certificates", reload: func(bool) (bool, error) {
			defer func() { looked <- struct{}{} }()
			return certs.reload()
		}}},
		logger: slog.New(slog.NewTextHandler(&log, nil)),
		failed: func(string) { failed++ }, renewed: func(string) { renewed++ },
	}
	ticks, orders := make(chan time.Time), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		r.run(ctx, ticks, orders)
		close(ended)
	}()
	tick := func() {
		ticks <- time.Time{}
		<-looked
	}
	tick()
	mount(t, dir, 2)
	tick()
	if got := shown(); got != 2 {
		t.Errorf("after it was linked anew, certificate %d is shown", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "..data", "tls.key"), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	tick()
	tick()
	if got := shown(); got != 2 {
		t.Errorf("with a bad key, certificate %d is shown", got)
	}
	mount(t, dir, 3)
	orders <- struct{}{}
	<-looked
	stop()
	<-ended
	if got := shown(); got != 3 {
		t.Errorf("at last certificate %d is shown", got)
	}
	if said := strings.Count(log.String(), "is wrong"); said != 1 || failed != 2 || renewed != 2 {
		t.Errorf("what is wrong was said %d times, counted %d times; renewed %d times:\n%s", said, failed, renewed, &log)
	}
	if strings.Contains(log.String(), "no key") {
		t.Error("what a key's file holds is in the log")
	}
}

// Whoever looks may find a file that is being written: an empty one, or its first half. What
// it lacks must not be taken for what was meant.
func TestAConfigurationThatIsBeingWrittenIsNotInForce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idemd.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const whole, half = "policy: {settle: 1h}\ntenants: [acme]\n", "policy: {settle: 1h}\n"
	write(whole)
	s, err := newSettings(config.Source{File: path})
	if err != nil {
		t.Fatal(err)
	}
	applied := 0
	s.apply = func(*config.Config) error { applied++; return nil }
	s.warn = func(string, ...any) {}
	for step, at := range []struct {
		text             string
		ordered          bool
		changed, refused bool
	}{
		{"", false, false, false},                // seen once
		{half, false, false, false},              // and it goes on being written
		{whole, false, false, false},             // as it was
		{half, false, false, false},              // seen once
		{half, false, false, true},               // it stays so
		{half, true, false, true},                // and nobody can order that
		{"", true, false, true},                  // nor this
		{whole + "# new", false, false, false},   // seen once
		{whole + "# newer", false, false, false}, // another one
		{whole + "# newer", false, true, false},  // seen twice
		{whole, true, true, false},               // ordered
	} {
		write(at.text)
		changed, err := s.reload(at.ordered)
		if changed != at.changed || (err != nil) != at.refused {
			t.Errorf("step %d: changed %v, %v", step, changed, err)
		}
	}
	if applied != 2 {
		t.Errorf("%d configurations were put in force", applied)
	}
}
