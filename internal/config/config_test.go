package config

import (
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/idemd/idemd/internal/engine"
	"github.com/idemd/idemd/internal/reservation"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func load(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("idemd.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEverythingThatIsWrongIsToldAtOnceByLineAndWithTheNearestName(t *testing.T) {
	_, err := Parse("wrong.yaml", read(t, "testdata/wrong.yaml"))
	var problems *Problems
	if !errors.As(err, &problems) {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(err.Error(), "my-secret-token") {
		t.Error("what may be a token is in the error")
	}
	golden(t, "wrong.golden", err.Error()+"\n")
}

func TestAnEffectiveConfigurationIsPrintedWithItsSecretsMasked(t *testing.T) {
	c := load(t, string(read(t, "testdata/full.yaml")))
	printed, err := c.Print()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"swordfish", "hidden", "50d858e0985e"} {
		if strings.Contains(string(printed), secret) {
			t.Errorf("%q is printed", secret)
		}
	}
	golden(t, "full.golden", string(printed))
}

func TestWhatIsPrintedIsTheSameConfiguration(t *testing.T) {
	for _, text := range []string{"", "tenants: [payments, mails]", "tenants: {a: {quotas: {rate: 0.5}, lease: 1500ms, namespaces: {n: {settle: 90m}}}}",
		"policy: {result_retention: 1h, quotas: {rate: 5, burst: 9, live: 3}}\ntenants: {a: {result_retention: 0s, quotas: {rate: unlimited, live: unlimited}}, b: {quotas: {rate: 7}}}",
	} {
		c := load(t, text)
		printed, err := c.Print()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c, load(t, string(printed))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestPasswordsInConnectionStringsAreMasked(t *testing.T) {
	for dsn, want := range map[string]string{
		"":                                      "",
		"host=db password=hush user=u":          "host=db password=*** user=u",
		"host=db password = 'hu sh\\'x' user=u": "host=db password = *** user=u",
		"password='never ends":                  "password=***",
		"sslpassword=hush PASSWORD=hush":        "sslpassword=*** PASSWORD=***",
		"postgres://u:hush@db/x":                "postgres://u:***@db/x",
		"postgres://u@db/x?password=hush":       "postgres://u@db/x?password=***",
		"postgres://u:%zz@db":                   "***",
		"hush":                                  "***",
	} {
		if got := maskDSN(dsn); got != want {
			t.Errorf("%q is shown as %q, want %q", dsn, got, want)
		}
	}
}

// The names of tenants are enough, in both forms.
func TestAFileWithNothingButTenantsWorks(t *testing.T) {
	for _, text := range []string{"tenants: [payments, mails]", "tenants:\n  payments:\n  mails:\n"} {
		p := load(t, text).Policies()
		if policy, refusal := p.For("payments", "any"); refusal != nil || policy != engine.DefaultPolicy() {
			t.Errorf("%q: %v, %v", text, policy, refusal)
		}
		if _, refusal := p.For("others", "any"); refusal == nil || refusal.Reason != reservation.TenantForbidden {
			t.Errorf("%q: a tenant that is not named: %v", text, refusal)
		}
	}
	if _, refusal := load(t, "").Policies().For("anybody", "any"); refusal != nil {
		t.Errorf("without a file: %v", refusal)
	}
}

func TestANamespaceInheritsFromItsTenantAndThatFromAllWhereverTheyStand(t *testing.T) {
	p := load(t, `
tenants:
  t:
    namespaces:
      n: {attempts: 3}
    lease: 2m
    quotas: {rate: 10}
    allow_unknown_namespaces: false
policy: {retention: 3d, lease: 1m, attempts: 9, quotas: {live: 7}}
`).Policies()
	policy, refusal := p.For("t", "n")
	if refusal != nil || policy.Retention != 72*time.Hour || policy.Lease != 2*time.Minute || policy.Attempts != 3 {
		t.Errorf("got %+v, %v", policy, refusal)
	}
	if _, refusal := p.For("t", "other"); refusal == nil || refusal.Reason != reservation.NamespaceInvalid {
		t.Errorf("an unknown namespace: %v", refusal)
	}
	want := map[engine.Scope]engine.Quotas{{Tenant: "t"}: {Rate: 10, Live: 7}}
	if diff := cmp.Diff(want, p.Quotas); diff != "" {
		t.Errorf("quotas (-want +got):\n%s", diff)
	}
}

func TestAFileIsOneDocumentOfYAML(t *testing.T) {
	for text, want := range map[string]string{
		"a: b\n---\nc: d\n":           "second document",
		"listen: {grpc: [}":           "not YAML",
		"- a\n":                       "must be a mapping",
		"just words":                  "must be a mapping",
		"tenants: []":                 "names none",
		"policy: {quotas: {live: 1}}": "list the tenants",
	} {
		if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Parse("f", []byte("a: "+strings.Repeat("x", MaxFileBytes))); err == nil || !strings.Contains(err.Error(), "4MiB") {
		t.Errorf("a huge file: %.200v", err)
	}
}

func TestBeyondLoopbackNeedsAuthenticationAndTLSOrAWord(t *testing.T) {
	const who = "\nauthentication: {identities: {a: {roles: caller, tenants: t, tokens: " + "50d858e0985ecc7f60418aaf0cc5ab587f42c2570a884095a9e8ccacd0f6545c}}}"
	const tls = "\ntls: {certificate: c, key: k, http: true}"
	for text, want := range map[string]string{
		"listen: {grpc: 127.0.0.1:1, http: 'localhost:2'}":               "",
		"listen: {grpc: ':1'}":                                           "no authentication",
		"listen: {http: '0.0.0.0:1'}":                                    "no authentication",
		"listen: {grpc: ':1'}" + tls:                                     "no authentication",
		"listen: {grpc: ':1', insecure: true}":                           "",
		"listen: {grpc: ':1', plaintext: true}":                          "no authentication",
		"listen: {grpc: ':1'}" + who:                                     "without TLS",
		"listen: {grpc: ':1', plaintext: true}" + who:                    "",
		"listen: {grpc: ':1', http: ':2'}" + who + tls:                   "",
		"listen: {http: ':2'}" + who + "\ntls: {certificate: c, key: k}": "without TLS",
		"listen: {http: ':2', insecure: true, pprof: true}":              "pprof needs authentication",
		"listen: {http: 'nowhere'}":                                      "want host:port",
		"store: {embedded: {dir: d}}\n":                                  "",
	} {
		err := load(t, text).Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestTheExampleFilesAreGood(t *testing.T) {
	files, err := filepath.Glob("../../deploy/config/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		if _, _, err := (Source{File: file}).Load(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// known are all keys, from the file that has each.
func known(t *testing.T) []string {
	t.Helper()
	_, d, err := parse("full.yaml", read(t, "testdata/full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := parse("other.yaml", []byte("store: {embedded: {dir: d}}"))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(d.known, other.known)
	return slices.Sorted(maps.Keys(d.known))
}

func TestEveryKeyIsDocumentedAndNoOther(t *testing.T) {
	text := string(read(t, "../../docs/configuration.md"))
	documented := map[string]bool{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		for _, name := range strings.Split(cells[1], ",") {
			documented[strings.Trim(strings.TrimSpace(name), "`")] = true
		}
	}
	// A policy's keys are documented once.
	policy := func(key string) string {
		for _, in := range []string{"tenants.*.namespaces.*.", "tenants.*."} {
			if rest, is := strings.CutPrefix(key, in); is && documented["policy."+rest] {
				return "policy." + rest
			}
		}
		return key
	}
	keys := map[string]bool{}
	for _, key := range known(t) {
		keys[key] = true
		if !documented[policy(key)] {
			t.Errorf("%s is not documented", key)
		}
	}
	for key := range documented {
		if !keys[key] {
			t.Errorf("%s is documented, and is no key", key)
		}
	}
	if len(keys) < 60 {
		t.Errorf("only %d keys were found", len(keys))
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"full.yaml", "wrong.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("a: &a [*a]\ntenants: *a\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("f", text)
		if err != nil {
			return
		}
		if err := c.Policies().Validate(); err != nil {
			t.Fatalf("a policy that was taken is refused: %v", err)
		}
		// What is printed can be read, but for what is masked.
		c.Authentication, c.Store = nil, Default().Store
		printed, err := c.Print()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("printed", printed)
		if err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
		if diff := cmp.Diff(c, again); diff != "" {
			t.Fatalf("(-want +got):\n%s\n%s", diff, printed)
		}
	})
}
