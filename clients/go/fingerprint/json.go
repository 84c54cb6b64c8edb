package fingerprint

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/idemd/idemd/clients/go/idem"
)

// JSON makes fingerprints of JSON documents. The zero value goes by no rules. It may be
// used by many goroutines.
type JSON struct {
	operation string
	rules     *rule
	strict    bool
	idle      sync.Pool // of *canonicalizer
}

// NewJSON compiles rules; an error names the path that is none.
func NewJSON(r Rules) (*JSON, error) {
	j := &JSON{}
	if err := j.compile(r); err != nil {
		return nil, err
	}
	return j, nil
}

func (j *JSON) compile(r Rules) error {
	rules, err := r.compile(splitPointer)
	if err != nil {
		return err
	}
	j.operation, j.rules, j.strict = r.Operation, rules, r.Strict
	return rules.each(func(at *rule) error {
		if at.byDefault == nil {
			return nil
		}
		canonical, err := (&canonicalizer{}).run([]byte(*at.byDefault), &rule{form: at.form}, true)
		if err != nil {
			return fmt.Errorf("fingerprint: default %s: %w", *at.byDefault, err)
		}
		at.omit = canonical
		return nil
	})
}

// Sum is the fingerprint of a whole document of at most [MaxBytes], asked for on behalf
// of the subject: the end user or account, in whatever form names it for good; empty if
// there is none. Errors are *[RefusedError].
//
// What has no canonical form (RFC 8785), or would lose something in it, is hashed raw,
// as [SchemeJSONRaw]: then Include, Exclude and all the other rules about paths count
// for nothing.
func (j *JSON) Sum(subject string, document []byte) (idem.Fingerprint, error) {
	if len(document) > MaxBytes {
		return idem.Fingerprint{}, &RefusedError{Problem: TooLarge}
	}
	c := j.canonicalizer()
	defer j.release(c)
	canonical, err := c.run(document, j.rules, j.strict)
	if err == nil {
		return sum(SchemeJSON, []byte(j.operation), []byte(subject), canonical), nil
	}
	if j.strict {
		return idem.Fingerprint{}, err
	}
	return sum(SchemeJSONRaw, []byte(j.operation), []byte(subject), document), nil
}

// Canonical is the document in the canonical form that is hashed: without what doesn't
// count. Errors, also where the rules are not strict, are *[RefusedError].
func (j *JSON) Canonical(document []byte) ([]byte, error) {
	c := j.canonicalizer()
	defer j.release(c)
	canonical, err := c.run(document, j.rules, j.strict)
	return bytes.Clone(canonical), err
}

func (j *JSON) canonicalizer() *canonicalizer {
	if c, is := j.idle.Get().(*canonicalizer); is {
		return c
	}
	return &canonicalizer{}
}

func (j *JSON) release(c *canonicalizer) {
	if c.forget() {
		j.idle.Put(c)
	}
}
