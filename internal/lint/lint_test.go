// Package lint holds the house's rules that a compiler does not: who may import whom,
// and habits that every file keeps.
package lint

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/idemd/idemd/"
	root   = "../.."
)

// floors says which of our packages each package may import. A package that is not
// named here is not part of the house.
func floors() map[string][]string {
	return map[string][]string{
		"internal/reservation": {},
		"internal/pgtest":      {},
		"internal/lint":        {},

		"internal/store":           {"internal/reservation"},
		"internal/store/codec":     {"internal/reservation"},
		"internal/store/storetest": {"internal/store", "internal/reservation"},

		"internal/store/pebblestore": {"internal/store", "internal/store/codec", "internal/reservation"},
		"internal/store/pgstore":     {"internal/store", "internal/store/codec", "internal/reservation"},
		"internal/engine":            {"internal/store", "internal/reservation"},
		"internal/ttl":               {"internal/store", "internal/reservation"},

		"internal/access": {"internal/reservation"},
		"internal/config": {"internal/engine", "internal/access", "internal/reservation"},

		"internal/grpcserver": {"internal/engine", "internal/access", "internal/reservation", "gen/idemd/v1"},

		"internal/daemon": {
			"internal/config", "internal/access", "internal/grpcserver", "internal/engine", "internal/ttl", "internal/store", "internal/store/pebblestore",
			"internal/store/pgstore", "internal/reservation",
		},

		"cmd/idemd": {"internal/daemon", "internal/config", "gen/idemd/v1"},

		"clients/go/idem":        {"gen/idemd/v1"},
		"clients/go/fingerprint": {"clients/go/idem"},
		"clients/go/idemgrpc":    {"clients/go/idem", "clients/go/fingerprint", "clients/go/internal/guard"},
		"clients/go/idemhttp":    {"clients/go/idem", "clients/go/fingerprint", "clients/go/internal/guard", "gen/idemd/v1"},

		"clients/go/internal/guard": {"clients/go/idem"},

		"clients/go/messaging/internal/pgtable":     {},
		"clients/go/messaging/fence":                {"clients/go/idem", "clients/go/messaging/internal/pgtable"},
		"clients/go/messaging/inbox":                {"clients/go/messaging/internal/pgtable"},
		"clients/go/messaging/cmd/outbox":           {"clients/go/messaging/outbox"},
		"clients/go/messaging/internal/outboxtable": {"clients/go/messaging/internal/pgtable"},
		"clients/go/messaging/outbox":               {"clients/go/idem", "clients/go/messaging/internal/outboxtable", "clients/go/messaging/internal/pgtable"},
		"clients/go/messaging/relay":                {"clients/go/messaging/outbox", "clients/go/messaging/internal/outboxtable", "clients/go/messaging/internal/pgtable"},
		"clients/go/messaging/consume":              {"clients/go/messaging/inbox", "clients/go/idem"},

		"clients/go/internal/fakedaemon": {"gen/idemd/v1"},
		"clients/go/internal/guardtest":  {"clients/go/idem", "clients/go/internal/fakedaemon", "gen/idemd/v1"},

		"examples/charge/child":   {},
		"examples/charge/bank":    {},
		"examples/charge/shop":    {"examples/charge/bank", "clients/go/idem"},
		"examples/charge/torture": {"examples/charge/bank", "examples/charge/child", "examples/charge/shop", "clients/go/idem", "gen/idemd/v1"},
		"examples/charge": {
			"examples/charge/bank", "examples/charge/child", "examples/charge/shop", "examples/charge/torture", "clients/go/idem",
		},

		"examples/payments/bank":      {},
		"examples/payments/supervise": {},
		"examples/payments/refusal":   {},
		"examples/payments/service": {
			"examples/payments/bank", "examples/payments/refusal", "examples/payments/proto/payments/v1", "clients/go/idem", "clients/go/idemgrpc",
		},
		"examples/payments/front": {
			"examples/payments/refusal", "examples/payments/proto/payments/v1", "clients/go/idem", "clients/go/idemgrpc", "clients/go/idemhttp",
			"clients/go/fingerprint",
		},
		"examples/payments": {
			"examples/payments/bank", "examples/payments/front", "examples/payments/service", "examples/payments/supervise",
			"examples/payments/proto/payments/v1", "clients/go/idem", "clients/go/idemgrpc",
		},

		"examples/shop/events":     {},
		"examples/shop/supervise":  {},
		"examples/shop/mailserver": {},
		"examples/shop/broker":     {"examples/shop/events"},
		"examples/shop/orders": {
			"examples/shop/events", "clients/go/idem", "clients/go/idemhttp", "clients/go/messaging/fence", "clients/go/messaging/outbox",
		},
		"examples/shop/warehouse": {"examples/shop/events", "clients/go/messaging/consume", "clients/go/messaging/inbox"},
		"examples/shop/mailer":    {"examples/shop/events", "examples/shop/mailserver", "clients/go/idem", "clients/go/messaging/consume"},
		"examples/shop/chaos": {
			"examples/shop/broker", "examples/shop/events", "examples/shop/mailserver", "examples/shop/orders", "examples/shop/warehouse",
			"clients/go/idem", "clients/go/idemhttp", "clients/go/messaging/outbox",
		},
		"examples/shop": {
			"examples/shop/broker", "examples/shop/chaos", "examples/shop/events", "examples/shop/mailer", "examples/shop/mailserver",
			"examples/shop/orders", "examples/shop/supervise", "examples/shop/warehouse", "internal/pgtest", "clients/go/idem",
			"clients/go/messaging/outbox", "clients/go/messaging/relay",
		},

		"e2e/fault":            {},
		"e2e/cmd/withpostgres": {"internal/pgtest"},
		"e2e/harness":          {"e2e/fault", "examples/charge/child", "internal/pgtest"},
		"e2e/messaging": {
			"e2e/harness", "e2e/fault", "examples/charge/child", "internal/pgtest", "clients/go/idem", "gen/idemd/v1",
			"clients/go/messaging/fence", "clients/go/messaging/inbox", "clients/go/messaging/consume", "clients/go/messaging/outbox",
			"clients/go/messaging/relay",
		},
		"e2e": {"e2e/harness", "e2e/fault", "examples/charge/child", "internal/pgtest", "clients/go/idem", "clients/go/idemgrpc", "clients/go/idemhttp", "gen/idemd/v1"},
	}
}

// support may be imported by every test.
func support() []string {
	return []string{"internal/store/storetest", "internal/pgtest", "clients/go/internal/fakedaemon", "clients/go/internal/guardtest"}
}

// owners says which packages alone may import a third-party module.
func owners() map[string][]string {
	return map[string][]string{
		"github.com/cockroachdb/pebble": {"internal/store/pebblestore"},
		"github.com/jackc/pgx":          {"internal/store/pgstore", "clients/go/messaging", "e2e/messaging", "examples/shop"},
		"github.com/pressly/goose":      {"internal/store/pgstore", "clients/go/messaging/internal/pgtable"},
		"google.golang.org/grpc":        {"internal/grpcserver", "internal/daemon", "cmd/idemd", "e2e", "clients/go", "examples/charge", "examples/payments", "examples/shop"},
		"github.com/go-jose/go-jose":    {"internal/access"},
		"go.yaml.in/yaml":               {"internal/config"},
		"modernc.org/sqlite":            {"examples/payments/service"},
		"github.com/alecthomas/kong":    {"cmd/idemd", "clients/go/messaging/cmd/outbox"},
		"github.com/go-json-experiment": {"clients/go/fingerprint"},
		// What stands beside ours in a chain of interceptors.
		"github.com/grpc-ecosystem": {"internal/grpcserver", "internal/daemon", "e2e"},
		"go.opentelemetry.io":       {"internal/grpcserver", "internal/daemon", "clients/go/messaging", "e2e"},
		"github.com/prometheus":     {"internal/daemon"},
		"github.com/nats-io":        {"e2e/messaging", "examples/shop/broker"},
		"github.com/ThreeDotsLabs":  {"clients/go/messaging", "e2e", "examples/shop"},
	}
}

// standardOnly are the packages that import nothing of anybody else's.
func standardOnly() []string {
	return []string{"internal/reservation", "internal/store", "internal/engine", "internal/ttl", "internal/pgtest", "examples/charge/child", "examples/charge/bank", "examples/payments/bank", "examples/payments/supervise", "examples/shop/events", "examples/shop/mailserver", "examples/shop/supervise"}
}

// source is one parsed Go file of this repository that somebody has written.
type source struct {
	path, pkg string
	test      bool
	text      []byte
	file      *ast.File
	fset      *token.FileSet
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	for _, dir := range []string{"internal", "cmd", "clients", "e2e", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			s := source{path: strings.TrimPrefix(filepath.ToSlash(path), root+"/"), text: text, fset: token.NewFileSet()}
			s.pkg, s.test = filepath.ToSlash(filepath.Dir(s.path)), strings.HasSuffix(path, "_test.go")
			s.file, err = parser.ParseFile(s.fset, path, text, parser.ParseComments)
			if err == nil && !ast.IsGenerated(s.file) {
				all = append(all, s)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) < 50 {
		t.Fatalf("only %d files were found", len(all))
	}
	return all
}

func (s source) imports() (paths []string) {
	for _, spec := range s.file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		paths = append(paths, path)
	}
	return paths
}

func within(path string, list []string) bool {
	for _, prefix := range list {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}

func TestAFloorImportsOnlyFloorsBelowIt(t *testing.T) {
	for _, s := range sources(t) {
		allowed, named := floors()[s.pkg]
		if !named {
			t.Errorf("%s: package %s has no floor", s.path, s.pkg)
			continue
		}
		for _, path := range s.imports() {
			ours, is := strings.CutPrefix(path, module)
			if !is || s.test && (ours == s.pkg || within(ours, support())) {
				continue
			}
			ok := false
			for _, a := range allowed {
				ok = ok || a == ours
			}
			// A test may use what lies below what its package uses.
			if !ok && s.test {
				for _, a := range allowed {
					ok = ok || within(ours, floors()[a])
				}
			}
			if !ok {
				t.Errorf("%s imports %s", s.path, ours)
			}
		}
	}
}

func TestThirdPartyModulesStayWithTheirOwners(t *testing.T) {
	for _, s := range sources(t) {
		for _, path := range s.imports() {
			for third, owner := range owners() {
				if strings.HasPrefix(path, third) && !within(s.pkg, owner) {
					t.Errorf("%s imports %s, which only %v may", s.path, path, owner)
				}
			}
			first, _, _ := strings.Cut(path, "/")
			if within(s.pkg, standardOnly()) && !within(s.pkg, []string{"internal/store/codec", "internal/store/pebblestore", "internal/store/pgstore", "internal/store/storetest"}) &&
				!s.test && strings.Contains(first, ".") && !strings.HasPrefix(path, module) {
				t.Errorf("%s imports %s: package %s imports the standard library only", s.path, path, s.pkg)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for pkg := range floors() {
		if pkg == "internal/lint" || pkg == "cmd/idemd" || pkg == "examples/charge" || pkg == "examples/payments" || pkg == "examples/shop" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, pkg, "doc.go"))
		if err != nil {
			t.Errorf("%s has no doc.go", pkg)
			continue
		}
		if !bytes.Contains(text, []byte("may import")) {
			t.Errorf("%s/doc.go does not say what the package may import", pkg)
		}
	}
}

// Package-level variables are constants in disguise, or they are not there: interface
// assertions, errors, embedded files.
func TestNoPackageHasStateOrMagic(t *testing.T) {
	for _, s := range sources(t) {
		for _, declaration := range s.file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				if d.Name.Name == "init" && d.Recv == nil {
					t.Errorf("%s has an init function", s.path)
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR && !s.test {
					s.checkVariables(t, d)
				}
			}
		}
	}
}

func (s source) checkVariables(t *testing.T, d *ast.GenDecl) {
	t.Helper()
	if d.Doc != nil {
		for _, comment := range d.Doc.List {
			if strings.HasPrefix(comment.Text, "//go:embed") {
				return
			}
		}
	}
	for _, spec := range d.Specs {
		value := spec.(*ast.ValueSpec)
		for i, name := range value.Names {
			if name.Name == "_" {
				continue
			}
			if i < len(value.Values) {
				if call, is := value.Values[i].(*ast.CallExpr); is && s.nodeText(call.Fun) == "errors.New" {
					continue
				}
			}
			t.Errorf("%s: %s is a package-level variable", s.fset.Position(name.Pos()), name.Name)
		}
	}
}

func (s source) nodeText(n ast.Node) string {
	return string(s.text[s.fset.Position(n.Pos()).Offset:s.fset.Position(n.End()).Offset])
}

func TestTestsDoNotSleep(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is && s.nodeText(call.Fun) == "time.Sleep" {
				t.Errorf("%s sleeps", s.fset.Position(n.Pos()))
			}
			return true
		})
	}
}

func TestFilesStayShort(t *testing.T) {
	const most = 400
	for _, s := range sources(t) {
		if lines := bytes.Count(s.text, []byte("\n")); lines > most && !s.test {
			t.Errorf("%s has %d lines, at most %d are read in one sitting", s.path, lines, most)
		}
	}
}

// Whoever imports the Go client pulls in nothing of the daemon's. (The error details of
// grpc itself are a module of their own; jsontext is the standard library's from Go 1.27
// on, and needs nothing.)
func TestTheGoClientNeedsGRPCProtobufJsontextAndGenOnly(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "clients", "go", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{
		"github.com/idemd/idemd/gen", "google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
		"github.com/go-json-experiment/json",
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || !strings.HasPrefix(fields[1], "v") {
			continue // an indirect one has a comment
		}
		if found++; !within(fields[0], allowed) {
			t.Errorf("clients/go needs %s", fields[0])
		}
	}
	if found != len(allowed) {
		t.Errorf("%d requirements were found, want %d", found, len(allowed))
	}
}
