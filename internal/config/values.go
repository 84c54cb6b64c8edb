package config

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// reading is what reads one value.
type reading = func(*yaml.Node)

// scalar is the text of a value that is neither a list nor a mapping, nor missing.
func (d *decoder) scalar(n *yaml.Node) (*yaml.Node, bool) {
	n = aliased(n)
	if n.Kind != yaml.ScalarNode || isNull(n) {
		d.problem(n, "%s must have one value", d.where())
		return n, false
	}
	return n, true
}

func (d *decoder) text(to *string) reading {
	return func(n *yaml.Node) {
		if n, ok := d.scalar(n); ok {
			if n.Value == "" {
				d.problem(n, "%s is empty", d.where())
			}
			*to = n.Value
		}
	}
}

func (d *decoder) boolean(to *bool) reading {
	return func(n *yaml.Node) {
		n, ok := d.scalar(n)
		switch {
		case !ok:
		case n.Value != "true" && n.Value != "false":
			d.problem(n, "%s must be true or false", d.where())
		default:
			*to = n.Value == "true"
		}
	}
}

// not reads the opposite.
func (d *decoder) not(to *bool) reading {
	return func(n *yaml.Node) {
		value := !*to
		d.boolean(&value)(n)
		*to = !value
	}
}

func (d *decoder) duration(to *time.Duration) reading {
	return func(n *yaml.Node) {
		n, ok := d.scalar(n)
		if !ok {
			return
		}
		value, err := parseDuration(n.Value)
		if err != nil {
			d.problem(n, "%s must be a duration such as 30s, 5m, 12h or 7d", d.where())
			return
		}
		*to = value
	}
}

// parseDuration is Go's, and days.
func parseDuration(text string) (time.Duration, error) {
	if days, is := strings.CutSuffix(text, "d"); is {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// integer reads a number from least to most.
func integer[T int | int32 | int64](d *decoder, to *T, least, most int64) reading {
	return func(n *yaml.Node) {
		n, ok := d.scalar(n)
		if !ok {
			return
		}
		value, err := strconv.ParseInt(n.Value, 10, 64)
		if err != nil || value < least || value > most {
			d.problem(n, "%s must be a whole number from %d to %d", d.where(), least, most)
			return
		}
		*to = T(value)
	}
}

// limit reads a bound that is lifted by the word unlimited.
func (d *decoder) limit(to *int64, most int64) reading {
	return func(n *yaml.Node) {
		if aliased(n).Value == unlimited {
			*to = 0
			return
		}
		integer(d, to, 1, most)(n)
	}
}

const unlimited = "unlimited"

func (d *decoder) rate(to *float64) reading {
	return func(n *yaml.Node) {
		n, ok := d.scalar(n)
		switch value, err := strconv.ParseFloat(n.Value, 64); {
		case !ok:
		case n.Value == unlimited:
			*to = 0
		case err != nil || math.IsNaN(value) || value <= 0 || math.IsInf(value, 0):
			d.problem(n, "%s must be a number of Reserves a second, more than 0, or unlimited", d.where())
		default:
			*to = value
		}
	}
}

// size reads a number of bytes.
func size[T int | int64](d *decoder, to *T, most int64) reading {
	return func(n *yaml.Node) {
		n, ok := d.scalar(n)
		if !ok {
			return
		}
		value, err := parseSize(n.Value)
		if err != nil || value > most {
			d.problem(n, "%s must be a size such as 65536, 64KiB or 1MiB, at most %s", d.where(), formatSize(most))
			return
		}
		*to = T(value)
	}
}

// sizeLimit reads a number of bytes that is lifted by the word unlimited.
func (d *decoder) sizeLimit(to *int64, most int64) reading {
	return func(n *yaml.Node) {
		if aliased(n).Value == unlimited {
			*to = 0
			return
		}
		var bytes int64
		if size(d, &bytes, most)(n); bytes == 0 {
			d.problem(n, "%s must be more than nothing", d.where())
		}
		*to = bytes
	}
}

func units() []string { return []string{"", "KiB", "MiB", "GiB", "TiB"} }

func parseSize(text string) (int64, error) {
	for i, unit := range slices.Backward(units()) {
		number, is := strings.CutSuffix(text, unit)
		if !is {
			continue
		}
		value, err := strconv.ParseUint(strings.TrimSpace(number), 10, 62-10*i)
		return int64(value) << (10 * i), err
	}
	return 0, strconv.ErrSyntax
}

func formatSize(n int64) string {
	i := 0
	for ; n > 0 && n%1024 == 0 && i+1 < len(units()); i++ {
		n /= 1024
	}
	return strconv.FormatInt(n, 10) + units()[i]
}

func (d *decoder) time(to *time.Time) reading {
	return func(n *yaml.Node) {
		n, ok := d.scalar(n)
		if !ok {
			return
		}
		value, err := time.Parse(time.RFC3339, n.Value)
		if err != nil {
			d.problem(n, "%s must be a time such as 2027-01-31T00:00:00Z", d.where())
			return
		}
		*to = value
	}
}

// oneOf reads one of some words.
func (d *decoder) oneOf(to *string, words ...string) reading {
	return func(n *yaml.Node) {
		n, ok := d.scalar(n)
		switch {
		case !ok:
		case !slices.Contains(words, n.Value):
			d.problem(n, "%s must be %s", d.where(), strings.Join(words, " or "))
		default:
			*to = n.Value
		}
	}
}

// each reads a list, or one value in the place of a list of one.
func (d *decoder) each(read func(*yaml.Node)) reading {
	return func(n *yaml.Node) {
		n = aliased(n)
		if n.Kind != yaml.SequenceNode {
			if n, ok := d.scalar(n); ok {
				read(n)
			}
			return
		}
		for _, element := range n.Content {
			read(aliased(element))
		}
	}
}

// texts reads a list of texts, of some words if there are any.
func (d *decoder) texts(to *[]string, words ...string) reading {
	return func(n *yaml.Node) {
		*to = nil
		d.each(func(n *yaml.Node) {
			var one string
			if len(words) > 0 {
				d.oneOf(&one, words...)(n)
			} else {
				d.text(&one)(n)
			}
			if one != "" && slices.Contains(*to, one) {
				d.problem(n, "%s names %s twice", d.where(), one)
			}
			*to = append(*to, one)
		})(n)
	}
}
