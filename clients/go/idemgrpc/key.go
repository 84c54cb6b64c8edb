package idemgrpc

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxKeyBytes is the longest key.
const maxKeyBytes = 255

// key finds the caller's key; empty: there is none. The error says what is wrong with it,
// never what it is.
func (g *guard) key(ctx context.Context, request proto.Message) (string, error) {
	sent, err := keyInMetadata(metadata.ValueFromIncomingContext(ctx, KeyHeader))
	if err != nil || g.KeyField == "" {
		return sent, err
	}
	written, err := keyInField(request.ProtoReflect(), protoreflect.Name(g.KeyField))
	switch {
	case err != nil:
		return "", err
	case written == "":
		return sent, nil
	case sent != "" && sent != written:
		return "", fmt.Errorf("the key in %s is not the one in the metadata", g.KeyField)
	}
	return written, nil
}

func keyInMetadata(values []string) (string, error) {
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", fmt.Errorf("%s has %d values; one call has one key", KeyHeader, len(values))
	}
	key := unquoted(values[0])
	if err := checkKey(key); err != nil {
		return "", fmt.Errorf("%s %w", KeyHeader, err)
	}
	// What some clients and proxies make of text that is not ASCII, or of two headers.
	if at := strings.IndexAny(key, "?,\""); at >= 0 {
		return "", fmt.Errorf("%s has a %q: it was garbled on its way, or is more than one key", KeyHeader, key[at])
	}
	return key, nil
}

// unquoted reads an RFC 8941 string as the bare key, for a gateway passes on what came
// by HTTP.
func unquoted(value string) string {
	if len(value) > 2 && value[0] == '"' && value[len(value)-1] == '"' {
		return value[1 : len(value)-1]
	}
	return value
}

func keyInField(request protoreflect.Message, name protoreflect.Name) (string, error) {
	field := request.Descriptor().Fields().ByName(name)
	if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
		return "", fmt.Errorf("the request has no field %s", name)
	}
	key := request.Get(field).String()
	if key == "" && !request.Has(field) {
		return "", nil
	}
	if err := checkKey(key); err != nil {
		return "", fmt.Errorf("%s %w", name, err)
	}
	return key, nil
}

func checkKey(key string) error {
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
