package idemgrpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/idemd/idemd/clients/go/internal/guard"
)

// key finds the caller's key; empty: there is none. The error says what is wrong with it,
// never what it is.
func (m *method) key(ctx context.Context, request proto.Message) (string, error) {
	sent, err := guard.Key(KeyHeader, metadata.ValueFromIncomingContext(ctx, KeyHeader))
	if err != nil || m.KeyField == "" {
		return sent, err
	}
	written, err := keyInField(request.ProtoReflect(), protoreflect.Name(m.KeyField))
	switch {
	case err != nil:
		return "", err
	case written == "":
		return sent, nil
	case sent != "" && sent != written:
		return "", fmt.Errorf("the key in %s is not the one in the metadata", m.KeyField)
	}
	return written, nil
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
	if err := guard.CheckKey(key); err != nil {
		return "", fmt.Errorf("%s %w", name, err)
	}
	return key, nil
}

// received is the context as whatever stands behind the guard has it. A key of [WithKey]
// around it has named this call, where that was made in the same process, and goes no
// further.
func received(ctx context.Context) context.Context {
	if ctx.Value(keyKey{}) == nil {
		return ctx
	}
	return setKey(context.WithValue(ctx, keyKey{}, nil))
}
