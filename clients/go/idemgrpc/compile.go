package idemgrpc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
)

// guard is a Guard that was checked.
type guard struct {
	Guard
	method      string
	fingerprint *fingerprint.Proto
	response    protoreflect.MessageType
}

// compile checks a configuration; nothing of it is shared with the result. An error
// names every method that is wrong.
func compile(c Config) (map[string]*guard, error) {
	guards, wrong := map[string]*guard{}, []error{}
	for method, g := range c.Methods {
		one, err := compileGuard(method, g)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("idemgrpc: %s: %w", method, err))
		}
		guards[method] = one
	}
	for _, name := range c.Headers {
		if err := checkHeader(name); err != nil {
			wrong = append(wrong, err)
		}
	}
	return guards, errors.Join(wrong...)
}

func compileGuard(method string, g Guard) (*guard, error) {
	descriptor, err := methodOf(method)
	if err != nil {
		return nil, err
	}
	one := &guard{Guard: g, method: method}
	if err := g.check(); err != nil {
		return nil, err
	}
	rules := g.Fingerprint
	if rules.Operation == "" {
		rules.Operation = method
	}
	if g.KeyField != "" {
		field := descriptor.Input().Fields().ByName(protoreflect.Name(g.KeyField))
		if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() || field.IsMap() {
			return nil, fmt.Errorf("%s has no string field %q for the key", descriptor.Input().FullName(), g.KeyField)
		}
		rules.Exclude = append(slices.Clone(rules.Exclude), g.KeyField)
	}
	if one.fingerprint, err = fingerprint.NewProto(descriptor.Input(), rules); err != nil {
		return nil, err
	}
	one.response, err = protoregistry.GlobalTypes.FindMessageByName(descriptor.Output().FullName())
	return one, err
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

func (g *Guard) check() error {
	const day = 24 * time.Hour
	switch {
	case g.Need < Required || g.Need > Off:
		return fmt.Errorf("there is no need %d", g.Need)
	case g.Mode != idem.External && g.Mode != idem.Transactional:
		return fmt.Errorf("there is no mode %d", g.Mode)
	case g.Lease != 0 && (g.Lease < 100*time.Millisecond || g.Lease > time.Hour):
		return fmt.Errorf("the lease is %v; 100 ms to 1 h, or 0 for the namespace's", g.Lease)
	case g.Retention != 0 && (g.Retention < time.Second || g.Retention > 400*day):
		return fmt.Errorf("the retention is %v; 1 s to 400 d, or 0 for the namespace's", g.Retention)
	case len(g.PolicyVersion) > 64:
		return errors.New("the policy version is longer than 64 bytes")
	case len(g.Namespace) > 64 || !plain(g.Namespace):
		return fmt.Errorf("the namespace %q is not 1-64 of a-z 0-9 . _ -", g.Namespace)
	}
	return nil
}

// checkHeader refuses names that metadata can't have, and those that gRPC or this
// package writes.
func checkHeader(name string) error {
	lower := strings.ToLower(name)
	ours := lower == KeyHeader || lower == ReplayedHeader || lower == ExpiresHeader
	if name == "" || !plain(lower) || ours || strings.HasPrefix(lower, "grpc-") || lower == "content-type" {
		return fmt.Errorf("idemgrpc: %q can't be a header to replay", name)
	}
	return nil
}

// plain: of the characters of namespaces and of metadata's names.
func plain(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789._-", r) })
}
