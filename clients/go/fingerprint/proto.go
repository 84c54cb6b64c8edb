package fingerprint

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/idemd/idemd/clients/go/idem"
)

// anyName is the message that holds a message of any type.
const anyName protoreflect.FullName = "google.protobuf.Any"

// Proto makes fingerprints of protobuf messages. The zero value goes by no rules and
// takes messages of every type. It may be used by many goroutines.
type Proto struct {
	operation string
	of        protoreflect.FullName
	rules     *rule
	strict    bool
}

// NewProto compiles rules for messages of the type; an error names the path that is
// none, or the field that can't be what the rules say. Within extensions and
// google.protobuf.Any nothing can be named.
func NewProto(of protoreflect.MessageDescriptor, r Rules) (*Proto, error) {
	fields := map[*rule]protoreflect.FieldDescriptor{}
	split := func(path string) ([]string, error) {
		if path == "" {
			return nil, errors.New("it names no field")
		}
		steps := strings.Split(path, ".")
		_, err := fieldAt(of, steps)
		return steps, err
	}
	rules, err := r.compile(split)
	if err != nil {
		return nil, err
	}
	bind(rules, of, fields)
	err = rules.each(func(at *rule) error { return at.fits(fields[at]) })
	if err != nil {
		return nil, err
	}
	return &Proto{operation: r.Operation, of: of.FullName(), rules: rules, strict: r.Strict}, nil
}

// Sum is the fingerprint of a message, asked for on behalf of the subject: the end user
// or account, in whatever form names it for good; empty if there is none. Fields that
// this program does not know don't count, nor do those without presence that have their
// default.
//
// A message with a google.protobuf.Any that can't be read has that part hashed raw, as
// [SchemeProtoRaw]; in strict mode it is refused. One that is nested deeper than
// [MaxDepth], or takes more than [MaxBytes] in the form that is hashed, is always
// refused. These errors are *[RefusedError].
func (p *Proto) Sum(subject string, m proto.Message) (idem.Fingerprint, error) {
	if m == nil {
		return idem.Fingerprint{}, errors.New("fingerprint: there is no message")
	}
	message := m.ProtoReflect()
	name := message.Descriptor().FullName()
	if p.of != "" && p.of != name {
		return idem.Fingerprint{}, fmt.Errorf("fingerprint: the rules are for %s, the message is %s", p.of, name)
	}
	e := &encoder{}
	kept, err := e.message(message, p.rules, p.rules.selectsAll())
	if err != nil {
		return idem.Fingerprint{}, err
	}
	if !kept { // the same as a message without fields
		e.out = append(e.out, tagMessage, 0, 0, 0, 0)
	}
	scheme := SchemeProto
	if e.raw {
		scheme = SchemeProtoRaw
	}
	if e.raw && p.strict {
		return idem.Fingerprint{}, &RefusedError{Problem: UnknownType}
	}
	return sum(scheme, []byte(p.operation), []byte(subject), []byte(name), e.out), nil
}

// fieldAt finds the field that a path names.
func fieldAt(in protoreflect.MessageDescriptor, steps []string) (field protoreflect.FieldDescriptor, err error) {
	for _, step := range steps {
		switch {
		case in == nil:
			return nil, fmt.Errorf("%s has no fields", field.FullName())
		case in.FullName() == anyName:
			return nil, errors.New("nothing can be named within google.protobuf.Any")
		}
		if field = in.Fields().ByName(protoreflect.Name(step)); field == nil {
			return nil, fmt.Errorf("%s has no field %q", in.FullName(), step)
		}
		in = element(field).Message()
	}
	return field, nil
}

// element describes what a field holds one or many of.
func element(field protoreflect.FieldDescriptor) protoreflect.FieldDescriptor {
	if field.IsMap() {
		return field.MapValue()
	}
	return field
}

// bind finds the field of each rule.
func bind(r *rule, in protoreflect.MessageDescriptor, to map[*rule]protoreflect.FieldDescriptor) {
	if r == nil {
		return
	}
	for name, below := range r.below {
		field := in.Fields().ByName(protoreflect.Name(name))
		to[below] = field
		bind(below, element(field).Message(), to)
	}
}

// fits is an error if the field can't be what the rule says. It fills in the default.
func (r *rule) fits(field protoreflect.FieldDescriptor) (err error) {
	if field == nil { // the root
		return nil
	}
	if r.form != asItIs && element(field).Kind() != protoreflect.StringKind {
		return fmt.Errorf("fingerprint: %s is no string: it can't be a decimal, time or e-mail", field.FullName())
	}
	if r.byDefault == nil {
		return nil
	}
	if field.IsList() || field.IsMap() {
		return fmt.Errorf("fingerprint: %s is repeated: it has no default", field.FullName())
	}
	r.omit, err = encodeText(field, *r.byDefault, r.form)
	if err != nil {
		return fmt.Errorf("fingerprint: default of %s: %w", field.FullName(), err)
	}
	return nil
}
