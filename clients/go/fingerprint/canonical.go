package fingerprint

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxKept is the largest document whose memory is kept for the next.
const maxKept = 64 << 10

// canonicalizer writes one document after the other in its canonical form while it reads
// it.
type canonicalizer struct {
	document []byte
	decoder  jsontext.Decoder
	strict   bool
	depth    int
	out      []byte
	members  []member // of all objects that are open, the innermost last
	scratch  []byte
}

// member is a member of an object; out[begin:end] is its name and value.
type member struct {
	name       []byte // unescaped
	begin, end int
}

// run is the document in canonical form, as far as it counts. It holds until the next.
func (c *canonicalizer) run(document []byte, rules *rule, strict bool) ([]byte, error) {
	if len(document) > MaxCanonicalBytes {
		return nil, &RefusedError{Problem: TooLarge}
	}
	if !utf8.Valid(document) {
		return nil, &RefusedError{Problem: InvalidUTF8, Offset: int64(invalidAt(document))}
	}
	c.decoder.Reset(bytes.NewBuffer(document))
	c.document, c.strict, c.depth, c.out, c.members = document, strict, 0, c.out[:0], c.members[:0]
	kept, err := c.value(rules, rules.selectsAll())
	if err != nil {
		return nil, err
	}
	if _, err := c.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &RefusedError{Problem: InvalidSyntax, Offset: c.decoder.InputOffset()}
	}
	switch {
	case kept:
		return c.out, nil
	case rules.hasDefaults(): // what is included may be there unsaid
		return []byte("{}"), nil
	}
	return nil, &RefusedError{Problem: NothingIncluded}
}

// forget drops the document. It is false if that has left too much memory behind.
func (c *canonicalizer) forget() bool {
	small := len(c.document) <= maxKept
	c.document = nil
	clear(c.members[:cap(c.members)])
	return small
}

func invalidAt(text []byte) int {
	at := 0
	for at < len(text) {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

// value reads the next value, and appends it if it counts, or something in it does.
func (c *canonicalizer) value(r *rule, around bool) (kept bool, err error) {
	counts, r := r.counts(around)
	if kind := c.decoder.PeekKind(); kind == '{' || kind == '[' {
		return c.container(kind, r, counts)
	}
	raw, err := c.scalar()
	if err != nil || !counts {
		return false, err
	}
	return true, c.appendScalar(raw, r)
}

func (c *canonicalizer) container(kind jsontext.Kind, r *rule, counts bool) (kept bool, err error) {
	if c.depth++; c.depth > MaxDepth {
		return false, &RefusedError{Problem: TooDeep, Offset: c.decoder.InputOffset()}
	}
	begin := len(c.out)
	if err := c.delimiter(); err != nil {
		return false, err
	}
	if kind == '{' {
		kept, err = c.object(r, counts)
	} else {
		kept, err = c.array(r, counts)
	}
	if err != nil {
		return false, err
	}
	if err := c.delimiter(); err != nil {
		return false, err
	}
	c.depth--
	if !kept && !counts {
		c.out = c.out[:begin]
		return false, nil
	}
	return true, nil
}

// delimiter reads a brace or bracket, and writes it.
func (c *canonicalizer) delimiter() error {
	token, err := c.decoder.ReadToken()
	if err != nil {
		return c.refused(err)
	}
	c.out = append(c.out, byte(token.Kind()))
	return nil
}

func (c *canonicalizer) array(r *rule, counts bool) (kept bool, err error) {
	for index := 0; c.more(']'); index++ {
		begin := len(c.out)
		if kept {
			c.out = append(c.out, ',')
		}
		keep, err := c.value(r.element(index), counts)
		if err != nil {
			return false, err
		}
		if !keep {
			c.out = c.out[:begin]
		}
		kept = kept || keep
	}
	return kept, nil
}

// more is false at the end of the container, and at an error, which the next read tells.
func (c *canonicalizer) more(end jsontext.Kind) bool {
	kind := c.decoder.PeekKind()
	return kind != end && kind != jsontext.KindInvalid
}

func (c *canonicalizer) object(r *rule, counts bool) (kept bool, err error) {
	first, begin := len(c.members), len(c.out)
	var twins map[string]bool
	if c.strict {
		twins = map[string]bool{}
	}
	for c.more('}') {
		raw, err := c.scalar()
		if err != nil {
			return false, err
		}
		name := unquoted(raw)
		if c.strict && !isNew(twins, fold(name)) {
			return false, c.refuse(CaseTwins, raw)
		}
		if err := c.member(r.member(name), name, raw, counts, len(c.members) > first); err != nil {
			return false, err
		}
	}
	members := c.members[first:]
	c.members = c.members[:first]
	c.sort(members, begin)
	return len(members) > 0, nil
}

func isNew(seen map[string]bool, name string) bool {
	known := seen[name]
	seen[name] = true
	return !known
}

// member reads the value of a member, and appends both if it counts.
func (c *canonicalizer) member(r *rule, name, raw []byte, counts, comma bool) error {
	before := len(c.out)
	if comma {
		c.out = append(c.out, ',')
	}
	m := member{name: name, begin: len(c.out)}
	c.out = append(appendString(c.out, raw), ':')
	value := len(c.out)
	keep, err := c.value(r, counts)
	if err != nil {
		return err
	}
	if !keep || r != nil && r.omit != nil && bytes.Equal(c.out[value:], r.omit) {
		c.out = c.out[:before]
		return nil
	}
	m.end = len(c.out)
	c.members = append(c.members, m)
	return nil
}

// sort brings the members of an object, which begin at out[begin], into their order.
func (c *canonicalizer) sort(members []member, begin int) {
	byName := func(a, b member) int { return compareUTF16(a.name, b.name) }
	if slices.IsSortedFunc(members, byName) {
		return
	}
	slices.SortFunc(members, byName)
	c.scratch = c.scratch[:0]
	for i, m := range members {
		if i > 0 {
			c.scratch = append(c.scratch, ',')
		}
		c.scratch = append(c.scratch, c.out[m.begin:m.end]...)
	}
	copy(c.out[begin:], c.scratch)
}

// scalar reads a string, number or literal, as it is written in the document.
func (c *canonicalizer) scalar() ([]byte, error) {
	raw, err := c.decoder.ReadValue()
	if err != nil {
		return nil, c.refused(err)
	}
	end := c.decoder.InputOffset() // raw itself holds until the next read only
	return c.document[end-int64(len(raw)) : end], nil
}

// appendScalar appends a string, number or literal in its canonical form.
func (c *canonicalizer) appendScalar(raw []byte, r *rule) error {
	exact := true
	switch {
	case raw[0] == '"':
		c.out = appendText(c.out, raw, r)
	case raw[0] != '-' && (raw[0] < '0' || raw[0] > '9'):
		c.out = append(c.out, raw...)
	case r != nil && r.form == asDecimal && isDecimal(raw):
		c.out = strconv.AppendQuote(c.out, Decimal(string(raw)))
	default:
		c.out, exact = appendNumber(c.out, raw)
	}
	if !exact {
		return c.refuse(InexactNumber, raw)
	}
	return nil
}

// refuse tells of a problem with what was read last.
func (c *canonicalizer) refuse(p Problem, raw []byte) error {
	return &RefusedError{Problem: p, Offset: c.decoder.InputOffset() - int64(len(raw))}
}

// refused reads an error of the decoder, whose texts quote the document.
func (c *canonicalizer) refused(err error) error {
	refused := &RefusedError{Problem: InvalidSyntax, Offset: c.decoder.InputOffset()}
	var syntactic *jsontext.SyntacticError
	if errors.As(err, &syntactic) {
		refused.Offset = syntactic.ByteOffset
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		refused.Problem = DuplicateName
	}
	return refused
}
