package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/idemd/idemd/internal/config"
)

func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func shown(t *testing.T, l config.Logging, key string) string {
	t.Helper()
	show, err := keyShown(l)
	if err != nil {
		t.Fatal(err)
	}
	return show(key)
}

func TestKeysAreLoggedAsTheConfigurationSays(t *testing.T) {
	file := secretFile(t, "0123456789abcdef\n")
	// printf %s order-1 | openssl dgst -sha256 -hmac 0123456789abcdef
	if got := shown(t, config.Logging{Keys: "hash", HashSecretFile: file}, "order-1"); got != "hmac:b50d76ee9190799b" {
		t.Errorf("hashed it is %q", got)
	}
	if got := shown(t, config.Logging{Keys: "plain"}, "order-1"); got != "order-1" {
		t.Errorf("plain it is %q", got)
	}
	if got := shown(t, config.Logging{Keys: "none"}, "order-1"); got != "" {
		t.Errorf("none is %q", got)
	}
}

func TestWithoutASecretNobodyCanTryKeysOut(t *testing.T) {
	one, other := shown(t, config.Logging{Keys: "hash"}, "k"), shown(t, config.Logging{Keys: "hash"}, "k")
	if one == other || strings.Contains(one, "k") {
		t.Errorf("two daemons log a key as %q and %q", one, other)
	}
}

func TestASecretThatCanBeGuessedIsRefused(t *testing.T) {
	for _, file := range []string{secretFile(t, "short"), secretFile(t, ""), "/nonexistent/file"} {
		if _, err := keyShown(config.Logging{Keys: "hash", HashSecretFile: file}); err == nil || strings.Contains(err.Error(), "short") {
			t.Errorf("the answer is %v", err)
		}
	}
}
