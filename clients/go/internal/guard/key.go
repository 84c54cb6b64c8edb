package guard

import (
	"errors"
	"fmt"
	"strings"
)

// maxKeyBytes is the longest key.
const maxKeyBytes = 255

// Key reads the caller's key from the values of a header, or of metadata; empty: there is
// none. It is an RFC 8941 string, or the key as it stands: one key either way. The error
// says what is wrong with it, never what it is.
func Key(header string, values []string) (string, error) {
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", fmt.Errorf("%s comes %d times: one call has one key", header, len(values))
	}
	key, err := bare(values[0])
	if err == nil {
		err = CheckHeaderKey(key)
	}
	if err != nil {
		return "", fmt.Errorf("%s %w", header, err)
	}
	return key, nil
}

// bare reads an RFC 8941 string; what is not in quotes is the key as it stands.
func bare(value string) (string, error) {
	if !strings.HasPrefix(value, `"`) {
		return value, nil
	}
	var key strings.Builder
	for i := 1; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"' && i == len(value)-1:
			return key.String(), nil
		case c == '"':
			return "", errors.New("has something behind the quoted key: one key, without parameters")
		case c == '\\':
			if i++; i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", errors.New("has a backslash that escapes nothing")
			}
			key.WriteByte(value[i])
		default:
			key.WriteByte(c)
		}
	}
	return "", errors.New("has a quote that does not end")
}

// CheckKey is nil for 1-255 bytes of printable ASCII without spaces.
func CheckKey(key string) error {
	if key == "" || len(key) > maxKeyBytes {
		return fmt.Errorf("is %d bytes long; 1 to %d", len(key), maxKeyBytes)
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return fmt.Errorf("has a byte at %d that is no printable ASCII, or a space", i)
		}
	}
	return nil
}

// CheckHeaderKey is CheckKey for keys that came in a header: it also refuses what some
// clients and proxies make of text that is not ASCII, or of two headers.
func CheckHeaderKey(key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if at := strings.IndexAny(key, "?,\""); at >= 0 {
		return fmt.Errorf("has a %q: it was garbled on its way, or is more than one key", key[at])
	}
	return nil
}
