package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// fields are the keys of a mapping, and what reads each one's value.
type fields map[string]func(*yaml.Node)

// decoder reads nodes and gathers what is wrong with them.
type decoder struct {
	problems []Problem
	// known are the keys that were possible where mappings were read, for the tests of
	// the documentation. Names that people choose are a star.
	known map[string]bool
	// path is where the decoder is, kind the same with stars.
	path, kind []string
}

// Problem is one thing that is wrong with a file.
type Problem struct {
	Line int
	Text string
}

// Problems are all things that are wrong with a file.
type Problems struct {
	File string
	List []Problem
}

// Error implements error: a line a problem.
func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, problem := range p.List {
		lines[i] = fmt.Sprintf("%s:%d: %s", p.File, problem.Line, problem.Text)
	}
	return strings.Join(lines, "\n")
}

func (d *decoder) problem(n *yaml.Node, format string, args ...any) {
	d.problems = append(d.problems, Problem{n.Line, fmt.Sprintf(format, args...)})
}

// aliased is the node that is meant.
func aliased(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// pairs calls each for the keys of a mapping, which are texts and there once.
func (d *decoder) pairs(n *yaml.Node, each func(key, value *yaml.Node)) {
	n = aliased(n)
	if isNull(n) {
		return // nothing is said
	}
	if n.Kind != yaml.MappingNode {
		d.problem(n, "%s must be a mapping of keys to values", d.where())
		return
	}
	lines := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode:
			d.problem(key, "a key of %s is not a text", d.where())
		case key.ShortTag() == "!!merge":
			d.problem(key, "%s has a merge key (<<), which is not taken: what tenants have in common goes into policy", d.where())
		case lines[key.Value] > 0:
			d.problem(key, "%s is there already, in line %d", d.at(key.Value), lines[key.Value])
		default:
			lines[key.Value] = key.Line
			each(key, value)
		}
	}
}

// mapping reads a mapping with known keys.
func (d *decoder) mapping(n *yaml.Node, keys fields) {
	names := make([]string, 0, len(keys))
	for name := range keys {
		names = append(names, name)
		d.known[strings.Join(append(slices.Clone(d.kind), name), ".")] = true
	}
	d.pairs(n, func(key, value *yaml.Node) {
		read := keys[key.Value]
		if read == nil {
			d.unknown(key, names)
			return
		}
		d.within(key.Value, key.Value, func() { read(value) })
	})
}

func (d *decoder) unknown(key *yaml.Node, names []string) {
	text := fmt.Sprintf("%s has no key %q", d.where(), key.Value)
	if near := nearest(key.Value, names); near != "" {
		text += fmt.Sprintf(": do you mean %s?", near)
	} else {
		slices.Sort(names)
		text += ": it has " + strings.Join(names, ", ")
	}
	d.problem(key, "%s", text)
}

// named reads a mapping whose keys are names that people choose.
func (d *decoder) named(n *yaml.Node, each func(name string, key, value *yaml.Node)) {
	d.pairs(n, func(key, value *yaml.Node) {
		d.within(key.Value, "*", func() { each(key.Value, key, value) })
	})
}

func (d *decoder) within(name, kind string, read func()) {
	d.path, d.kind = append(d.path, name), append(d.kind, kind)
	read()
	d.path, d.kind = d.path[:len(d.path)-1], d.kind[:len(d.kind)-1]
}

// where names the place that is read.
func (d *decoder) where() string {
	if len(d.path) == 0 {
		return "the file"
	}
	return strings.Join(d.path, ".")
}

func (d *decoder) at(name string) string {
	return strings.Join(append(slices.Clone(d.path), name), ".")
}

// nearest is the name that somebody who wrote another one most likely meant; empty = none.
func nearest(wrote string, names []string) string {
	best, least := "", 1+max(2, len(wrote)/3)
	for _, name := range names {
		if n := distance(strings.ToLower(wrote), name); n < least || n == least && best != "" && name < best {
			best, least = name, n
		}
	}
	return best
}

// distance is by how many letters two words differ (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
