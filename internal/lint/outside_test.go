package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// outsideNeeds are the modules that whoever uses idem, idemgrpc and idemhttp compiles:
// ours, and what they stand on.
func outsideNeeds() []string {
	return []string{
		"example.com/shop",
		"github.com/go-json-experiment/json",
		"github.com/idemd/idemd/clients/go",
		"github.com/idemd/idemd/gen",
		"golang.org/x/net",
		"golang.org/x/sys",
		"golang.org/x/text",
		"google.golang.org/genproto/googleapis/rpc",
		"google.golang.org/grpc",
		"google.golang.org/protobuf",
	}
}

// The graph of modules is larger than what is compiled: grpc's own requirements are in it,
// down to the exporters that its examples use. A dependency of the server is one that comes
// by a module of ours and by none of those.
func TestAModuleThatUsesTheGoClientAndTheGuardsGetsNothingOfTheServer(t *testing.T) {
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/shop\n\ngo 1.26.0\n\nrequire github.com/idemd/idemd/clients/go v0.0.0\n\n"+
		"replace github.com/idemd/idemd/clients/go => "+filepath.Join(checkout, "clients", "go")+"\n"+
		"replace github.com/idemd/idemd/gen => "+filepath.Join(checkout, "gen")+"\n")
	write("shop.go", `package shop

import (
	_ "github.com/idemd/idemd/clients/go/idem"
	_ "github.com/idemd/idemd/clients/go/idemgrpc"
	_ "github.com/idemd/idemd/clients/go/idemhttp"
)
`)
	run := func(args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "go", args...)
		command.Dir, command.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		var stderr strings.Builder
		command.Stderr = &stderr
		out, err := command.Output()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
		}
		return string(out)
	}

	compiled := strings.Fields(run("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "."))
	slices.Sort(compiled)
	if compiled = slices.Compact(compiled); !slices.Equal(compiled, outsideNeeds()) {
		t.Errorf("these modules are compiled:\n%s\nwant\n%s", strings.Join(compiled, "\n"), strings.Join(outsideNeeds(), "\n"))
	}

	edges, all := 0, map[string]bool{}
	for edge := range strings.Lines(run("mod", "graph")) {
		from, to, _ := strings.Cut(strings.TrimSpace(edge), " ")
		from, to = withoutVersion(from), withoutVersion(to)
		all[to] = true
		ours := from == "example.com/shop" || strings.HasPrefix(from, strings.TrimSuffix(module, "/"))
		if !ours || to == "go" || to == "toolchain" {
			continue
		}
		if edges++; !slices.Contains(outsideNeeds(), to) {
			t.Errorf("%s requires %s", from, to)
		}
	}
	if edges < len(outsideNeeds()) {
		t.Errorf("only %d edges of ours are in the graph", edges)
	}
	for _, server := range serversOwn(t) {
		if all[server] {
			t.Errorf("%s, which only the server needs, is in the graph", server)
		}
	}
}

func withoutVersion(module string) string {
	path, _, _ := strings.Cut(module, "@")
	return path
}

// serversOwn are the server's module and what it alone requires directly: Pebble, pgx,
// goose and the like, and not what the client stands on too.
func serversOwn(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	own := []string{strings.TrimSuffix(module, "/")}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		// grpc requires these as well: its tests, its exchange of tokens, its traces.
		grpcs := []string{
			"github.com/google/go-cmp", "github.com/go-jose/go-jose/v4",
			"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/trace",
		}
		shared := len(fields) == 2 && (slices.Contains(outsideNeeds(), fields[0]) || slices.Contains(grpcs, fields[0]))
		if len(fields) == 2 && strings.HasPrefix(fields[1], "v") && !shared {
			own = append(own, fields[0]) // an indirect one has a comment
		}
	}
	for _, known := range []string{"github.com/cockroachdb/pebble/v2", "github.com/jackc/pgx/v5", "github.com/pressly/goose/v3"} {
		if !slices.Contains(own, known) {
			t.Errorf("%s is not among the server's requirements: what else was not read?", known)
		}
	}
	return own
}
