package fingerprint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// form is what a value is brought to before it counts.
type form int

const (
	asItIs form = iota
	asDecimal
	asTime
	asEmail
)

func (f form) apply(text string) string {
	switch f {
	case asDecimal:
		return Decimal(text)
	case asTime:
		return Time(text)
	case asEmail:
		return Email(text)
	}
	return text
}

// rule is what Rules say about one path and those below it. Nil says nothing.
type rule struct {
	include, exclude bool
	includesBelow    bool // or here
	form             form
	byDefault        *string // the text of Rules.Defaults
	omit             []byte  // what that is in the canonical form
	below            map[string]*rule
}

// compile makes one tree of the rules; nil if they say nothing about paths.
func (r *Rules) compile(split func(path string) ([]string, error)) (*rule, error) {
	root := &rule{}
	var errs []error
	add := func(paths []string, set func(*rule) error) {
		for _, path := range paths {
			steps, err := split(path)
			if err == nil {
				err = set(root.at(steps))
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("fingerprint: path %q: %w", path, err))
			}
		}
	}
	add(r.Include, func(at *rule) error { at.include = true; return nil })
	add(r.Exclude, func(at *rule) error {
		if at == root {
			return errors.New("nothing would count")
		}
		at.exclude = true
		return nil
	})
	add(r.Decimals, func(at *rule) error { return at.setForm(asDecimal) })
	add(r.Times, func(at *rule) error { return at.setForm(asTime) })
	add(r.Emails, func(at *rule) error { return at.setForm(asEmail) })
	for path, text := range r.Defaults {
		add([]string{path}, func(at *rule) error { at.byDefault = &text; return nil })
	}
	if root.settle(); len(root.below) == 0 && root.form == asItIs {
		root = nil
	}
	return root, errors.Join(errs...)
}

func (r *rule) at(steps []string) *rule {
	for _, step := range steps {
		if r.below == nil {
			r.below = map[string]*rule{}
		}
		if r.below[step] == nil {
			r.below[step] = &rule{}
		}
		r = r.below[step]
	}
	return r
}

func (r *rule) setForm(f form) error {
	if r.form != asItIs {
		return errors.New("it is two of decimal, time and e-mail")
	}
	r.form = f
	return nil
}

// settle fills in what is known only when all rules are there.
func (r *rule) settle() {
	r.includesBelow = r.include
	for _, below := range r.below {
		below.settle()
		r.includesBelow = r.includesBelow || below.includesBelow
	}
}

// each visits the rule and all below it.
func (r *rule) each(visit func(*rule) error) error {
	if r == nil {
		return nil
	}
	err := visit(r)
	for _, name := range slices.Sorted(maps.Keys(r.below)) {
		err = errors.Join(err, r.below[name].each(visit))
	}
	return err
}

// hasDefaults is true if there are defaults of anything.
func (r *rule) hasDefaults() (has bool) {
	_ = r.each(func(at *rule) error { has = has || at.byDefault != nil; return nil })
	return has
}

// selectsAll is true if everything counts that is not excluded.
func (r *rule) selectsAll() bool { return r == nil || !r.includesBelow || r.include }

func (r *rule) member(name []byte) *rule {
	if r == nil {
		return nil
	}
	return r.below[string(name)]
}

// element is what is said about an element of an array: by its index, and as each.
func (r *rule) element(index int) *rule {
	if r == nil {
		return nil
	}
	one, each := r.below[strconv.Itoa(index)], r.below["*"]
	switch {
	case one == nil:
		return each
	case each == nil:
		return one
	}
	return merge(one, each)
}

// merge is what both rules say; where they contradict each other, the first.
func merge(one, other *rule) *rule {
	if one == nil || other == nil {
		if one == nil {
			return other
		}
		return one
	}
	both := *one
	both.include = one.include || other.include
	both.exclude = one.exclude || other.exclude
	both.includesBelow = one.includesBelow || other.includesBelow
	if both.form == asItIs {
		both.form = other.form
	}
	if both.omit == nil {
		both.omit = other.omit
	}
	both.below = maps.Clone(one.below)
	for name, below := range other.below {
		if both.below == nil {
			both.below = map[string]*rule{}
		}
		both.below[name] = merge(both.below[name], below)
	}
	return &both
}

// counts is whether what is at the rule counts, given whether what it is in does, and
// the rule that holds for what is below it.
func (r *rule) counts(around bool) (bool, *rule) {
	switch {
	case r == nil:
		return around, nil
	case r.exclude:
		return false, nil
	}
	return around || r.include, r
}

// splitPointer reads a JSON pointer.
func splitPointer(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, nil
	}
	steps := strings.Split(pointer, "/")
	if steps[0] != "" {
		return nil, errors.New("a JSON pointer begins with a slash")
	}
	for i, step := range steps[1:] {
		plain := strings.NewReplacer("~0", "", "~1", "").Replace(step)
		if strings.Contains(plain, "~") {
			return nil, errors.New("in a JSON pointer, ~ is followed by 0 or 1")
		}
		steps[i+1] = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
	}
	return steps[1:], nil
}
