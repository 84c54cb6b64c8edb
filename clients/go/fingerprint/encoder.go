package fingerprint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// The tags of values; docs/fingerprints.md has what follows each. Kinds that may replace
// one another in a schema have one tag.
const (
	tagInt     = 'i'
	tagUint    = 'u'
	tagBool    = 'b'
	tagFloat   = 'f'
	tagString  = 's'
	tagMessage = 'm'
	tagList    = 'l'
	tagMap     = 'p'
	tagAny     = 'a'
	tagRaw     = 'r'
)

// encoder writes messages field by field, by number.
type encoder struct {
	out   []byte
	depth int
	spent int // bytes that were decoded from Any
	raw   bool
}

// message appends the fields that count, in order, and a zero. It is false if none does.
func (e *encoder) message(m protoreflect.Message, r *rule, counts bool) (kept bool, err error) {
	if e.depth++; e.depth > MaxDepth {
		return false, &RefusedError{Problem: TooDeep}
	}
	defer func() { e.depth-- }()
	begin := len(e.out)
	if m.Descriptor().FullName() == anyName {
		if !counts {
			return false, nil
		}
		return true, e.any(m)
	}
	e.out = append(e.out, tagMessage)
	var fields []protoreflect.FieldDescriptor
	m.Range(func(field protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		fields = append(fields, field)
		return true
	})
	slices.SortFunc(fields, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number()) - int(b.Number()) })
	for _, field := range fields {
		var at *rule
		if r != nil && !field.IsExtension() {
			at = r.member([]byte(field.Name()))
		}
		keep, err := e.field(field, m.Get(field), at, counts)
		if err != nil {
			return false, err
		}
		kept = kept || keep
	}
	e.out = binary.BigEndian.AppendUint32(e.out, 0)
	if !kept && !counts {
		e.out = e.out[:begin]
		return false, nil
	}
	return true, nil
}

// field appends the number and the value of a field, if it counts.
func (e *encoder) field(field protoreflect.FieldDescriptor, v protoreflect.Value, r *rule, around bool) (kept bool, err error) {
	counts, r := r.counts(around)
	begin := len(e.out)
	e.out = binary.BigEndian.AppendUint32(e.out, uint32(field.Number()))
	value := len(e.out)
	switch {
	case field.IsList():
		kept, err = e.list(field, v.List(), r, counts)
	case field.IsMap():
		kept, err = e.entries(field, v.Map(), r, counts)
	default:
		kept, err = e.value(field, v, r, counts)
	}
	if err != nil {
		return false, err
	}
	if len(e.out)+e.spent > MaxBytes {
		return false, &RefusedError{Problem: TooLarge}
	}
	if !kept || isZero(field, v) || r != nil && r.omit != nil && bytes.Equal(e.out[value:], r.omit) {
		e.out = e.out[:begin]
	}
	return kept, nil
}

// isZero is true of -0 in a field without presence: 0 itself is not there.
func isZero(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	isFloat := field.Kind() == protoreflect.DoubleKind || field.Kind() == protoreflect.FloatKind
	return isFloat && !field.HasPresence() && !field.IsList() && !field.IsMap() && v.Float() == 0
}

func (e *encoder) list(field protoreflect.FieldDescriptor, l protoreflect.List, r *rule, counts bool) (kept bool, err error) {
	count := e.counted(tagList)
	n := uint64(0)
	for i := range l.Len() {
		keep, err := e.value(field, l.Get(i), r, counts)
		if err != nil {
			return false, err
		}
		if keep {
			n++
		}
		if len(e.out)+e.spent > MaxBytes {
			return false, &RefusedError{Problem: TooLarge}
		}
	}
	binary.BigEndian.PutUint64(e.out[count:], n)
	return n > 0, nil
}

// entries appends the entries of a map, in the order of their encoded keys.
func (e *encoder) entries(field protoreflect.FieldDescriptor, m protoreflect.Map, r *rule, counts bool) (kept bool, err error) {
	type entry struct {
		encoded []byte
		key     protoreflect.MapKey
	}
	all := make([]entry, 0, m.Len())
	m.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		all = append(all, entry{appendScalar(nil, field.MapKey(), key.Value(), nil), key})
		return true
	})
	slices.SortFunc(all, func(a, b entry) int { return bytes.Compare(a.encoded, b.encoded) })
	count := e.counted(tagMap)
	n := uint64(0)
	for _, one := range all {
		begin := len(e.out)
		e.out = append(e.out, one.encoded...)
		keep, err := e.value(field.MapValue(), m.Get(one.key), r, counts)
		if err != nil {
			return false, err
		}
		if !keep {
			e.out = e.out[:begin]
			continue
		}
		n++
	}
	binary.BigEndian.PutUint64(e.out[count:], n)
	return n > 0, nil
}

// counted appends a tag and room for a count, and returns where that is.
func (e *encoder) counted(tag byte) int {
	e.out = append(e.out, tag)
	e.out = append(e.out, make([]byte, 8)...)
	return len(e.out) - 8
}

// value appends one value.
func (e *encoder) value(field protoreflect.FieldDescriptor, v protoreflect.Value, r *rule, counts bool) (kept bool, err error) {
	if field.Message() != nil {
		return e.message(v.Message(), r, counts)
	}
	if counts {
		e.out = appendScalar(e.out, field, v, r)
	}
	return counts, nil
}

// any appends the message that an Any holds, under its name: the same content has more
// than one serialisation. What can't be read is appended as it is.
func (e *encoder) any(m protoreflect.Message) error {
	fields := m.Descriptor().Fields()
	url, value := m.Get(fields.ByName("type_url")).String(), m.Get(fields.ByName("value")).Bytes()
	name := url[strings.LastIndexByte(url, '/')+1:]
	if e.spent += len(value); e.spent > MaxBytes {
		return &RefusedError{Problem: TooLarge}
	}
	of, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name))
	if err == nil {
		held := of.New()
		if err = (proto.UnmarshalOptions{AllowPartial: true}).Unmarshal(value, held.Interface()); err == nil {
			e.out = frame(append(e.out, tagAny), []byte(name))
			_, err = e.message(held, nil, true)
			return err
		}
	}
	e.raw = true
	e.out = frame(append(e.out, tagRaw), []byte(url), value)
	return nil
}

// appendScalar appends the tag and the value of what is no message.
func appendScalar(to []byte, field protoreflect.FieldDescriptor, v protoreflect.Value, r *rule) []byte {
	switch field.Kind() {
	case protoreflect.BoolKind:
		if v.Bool() {
			return append(to, tagBool, 1)
		}
		return append(to, tagBool, 0)
	case protoreflect.EnumKind:
		return binary.BigEndian.AppendUint64(append(to, tagInt), uint64(v.Enum()))
	case protoreflect.StringKind:
		text := v.String()
		if r != nil {
			text = r.form.apply(text)
		}
		return frame(append(to, tagString), []byte(text))
	case protoreflect.BytesKind:
		return frame(append(to, tagString), v.Bytes())
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return binary.BigEndian.AppendUint64(append(to, tagFloat), floatBits(v.Float()))
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return binary.BigEndian.AppendUint64(append(to, tagUint), v.Uint())
	}
	return binary.BigEndian.AppendUint64(append(to, tagInt), uint64(v.Int()))
}

// floatBits are those of a double: one for all zeros, and one for all that is no number.
func floatBits(f float64) uint64 {
	switch {
	case f == 0:
		return 0
	case math.IsNaN(f):
		return 0x7ff8 << 48
	}
	return math.Float64bits(f)
}

// encodeText encodes the value of a field that is given as JSON text.
func encodeText(field protoreflect.FieldDescriptor, text string, f form) ([]byte, error) {
	var v protoreflect.Value
	var err error
	switch field.Kind() {
	case protoreflect.BoolKind:
		v, err = parse(text, protoreflect.ValueOfBool)
	case protoreflect.StringKind:
		v, err = parse(text, protoreflect.ValueOfString)
	case protoreflect.EnumKind:
		v, err = parse(text, protoreflect.ValueOfEnum)
	case protoreflect.FloatKind:
		v, err = parse(text, protoreflect.ValueOfFloat32)
	case protoreflect.DoubleKind:
		v, err = parse(text, protoreflect.ValueOfFloat64)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		v, err = parse(text, protoreflect.ValueOfUint32)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		v, err = parse(text, protoreflect.ValueOfUint64)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		v, err = parse(text, protoreflect.ValueOfInt32)
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		v, err = parse(text, protoreflect.ValueOfInt64)
	default:
		return nil, errors.New("only scalars, other than bytes, can have one")
	}
	if err != nil {
		return nil, err
	}
	return appendScalar(nil, field, v, &rule{form: f}), nil
}

func parse[T any](text string, valueOf func(T) protoreflect.Value) (protoreflect.Value, error) {
	var v T
	err := json.Unmarshal([]byte(text), &v)
	return valueOf(v), err
}
