package idemgrpc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	"github.com/idemd/idemd/clients/go/internal/guard"
)

// method is a guarded method whose Guard was checked.
type method struct {
	Guard
	name        string
	operation   idem.Operation // what all its calls have in common
	fingerprint *fingerprint.Proto
	response    protoreflect.MessageType
}

// compile checks a configuration; nothing of it is shared with the result. An error
// names every method that is wrong.
func compile(c Config) (map[string]*method, error) {
	methods, wrong := map[string]*method{}, []error{}
	for name, g := range c.Methods {
		one, err := compileGuard(name, g)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("idemgrpc: %s: %w", name, err))
		}
		methods[name] = one
	}
	for _, name := range c.Headers {
		if err := checkHeader(name); err != nil {
			wrong = append(wrong, err)
		}
	}
	return methods, errors.Join(wrong...)
}

func compileGuard(name string, g Guard) (*method, error) {
	descriptor, err := methodOf(name)
	if err != nil {
		return nil, err
	}
	if streams := descriptor.IsStreamingClient() || descriptor.IsStreamingServer(); streams && g.Need != Off {
		return nil, errors.New("it streams: only unary methods can be guarded")
	}
	one := &method{Guard: g, name: name, operation: idem.Operation{
		Namespace: g.Namespace, Mode: g.Mode, Lease: g.Lease, Retention: g.Retention, Wait: g.Wait,
		MinRemaining: g.MinRemaining, Settle: g.Settle, PolicyVersion: g.PolicyVersion,
	}}
	wrong := []error{guard.Check(g.Need, one.operation)}
	rules := g.Fingerprint
	if rules.Operation == "" {
		rules.Operation = name
	}
	if g.KeyField != "" {
		field := descriptor.Input().Fields().ByName(protoreflect.Name(g.KeyField))
		if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() || field.IsMap() {
			wrong = append(wrong, fmt.Errorf("%s has no string field %q for the key", descriptor.Input().FullName(), g.KeyField))
		} else {
			rules.Exclude = append(slices.Clone(rules.Exclude), g.KeyField)
		}
	}
	if one.fingerprint, err = fingerprint.NewProto(descriptor.Input(), rules); err != nil {
		wrong = append(wrong, err)
	}
	if one.response, err = protoregistry.GlobalTypes.FindMessageByName(descriptor.Output().FullName()); err != nil {
		wrong = append(wrong, err)
	}
	return one, errors.Join(wrong...)
}

// methodOf finds a method by its full name among those that this program knows: one
// that is misspelt would be guarded by nothing.
func methodOf(full string) (protoreflect.MethodDescriptor, error) {
	service, name, two := strings.Cut(strings.TrimPrefix(full, "/"), "/")
	if !two || !strings.HasPrefix(full, "/") {
		return nil, errors.New("no full method name: it looks like /package.Service/Method")
	}
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, fmt.Errorf("the service is not known: is its generated code imported? %w", err)
	}
	if is, ok := found.(protoreflect.ServiceDescriptor); ok {
		if method := is.Methods().ByName(protoreflect.Name(name)); method != nil {
			return method, nil
		}
	}
	return nil, fmt.Errorf("%s has no method %q", service, name)
}

// checkHeader refuses names that metadata can't have, and those that gRPC or this
// package writes.
func checkHeader(name string) error {
	lower := strings.ToLower(name)
	ours := lower == KeyHeader || lower == ReplayedHeader || lower == ExpiresHeader
	if name == "" || !guard.IsPlain(lower) || ours || strings.HasPrefix(lower, "grpc-") || lower == "content-type" {
		return fmt.Errorf("idemgrpc: %q can't be a header to replay", name)
	}
	return nil
}
