package fingerprint

import (
	"bytes"
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// unquoted is the text of a valid JSON string.
func unquoted(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // it was read before
	return text
}

// appendString appends a valid JSON string in its canonical form (RFC 8785, 3.2.2.2).
func appendString(to, raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return append(to, raw...)
	}
	to, _ = jsontext.AppendQuote(to, unquoted(raw)) // which is UTF-8
	return to
}

// appendText is appendString of what the rule makes of the text.
func appendText(to, raw []byte, r *rule) []byte {
	if r == nil || r.form == asItIs {
		return appendString(to, raw)
	}
	to, _ = jsontext.AppendQuote(to, r.form.apply(string(unquoted(raw))))
	return to
}

// compareUTF16 compares by UTF-16 code units, as RFC 8785 orders names: a character
// beyond U+FFFF is two units from U+D800 on, and so before U+E000.
func compareUTF16(a, b []byte) int {
	for len(a) > 0 && len(b) > 0 {
		x, n := utf8.DecodeRune(a)
		y, m := utf8.DecodeRune(b)
		if x != y {
			return cmp.Compare(firstUnit(x, y), firstUnit(y, x))
		}
		a, b = a[n:], b[m:]
	}
	return cmp.Compare(len(a), len(b))
}

// firstUnit is where r stands beside the other: its first unit, unless both have two.
func firstUnit(r, other rune) rune {
	const two, surrogates = 0x10000, 0xd800
	if r >= two && other < two {
		return surrogates
	}
	return r
}

// fold is equal for names that differ in case only.
func fold(name []byte) string {
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf { // the least of each letter is its capital
			return unicode.ToUpper(r)
		}
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, string(name))
}
