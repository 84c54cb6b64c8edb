package fingerprint

import (
	"bytes"
	"math"
	"strconv"
)

// maxSafe is the largest integer up to which doubles hold every integer: 2^53 - 1.
const maxSafe = 1<<53 - 1

// appendNumber appends a JSON number in its canonical form (RFC 8785, 3.2.2.3). It is
// false where that would not be the same number, or not one below 2^53.
func appendNumber(to, literal []byte) ([]byte, bool) {
	if isShortInteger(literal) {
		return append(to, literal...), true
	}
	exact := parseDecimal(literal)
	f, err := strconv.ParseFloat(exact.text(), 64) // zeros moved into the exponent: it reads at most 9,999 there
	if err != nil || math.Abs(f) > maxSafe {
		return to, false
	}
	begin := len(to)
	to = appendFloat(to, f)
	return to, exact.equal(parseDecimal(to[begin:]))
}

// isShortInteger is true of integers that are in their canonical form for certain.
func isShortInteger(literal []byte) bool {
	digits := bytes.TrimPrefix(literal, []byte("-"))
	if len(digits) > 15 || len(digits) < len(literal) && digits[0] == '0' {
		return false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// appendFloat writes a number below 1e21 as ECMAScript does.
func appendFloat(to []byte, f float64) []byte {
	switch abs := math.Abs(f); {
	case abs == 0: // also -0
		return append(to, '0')
	case abs >= 1e-6:
		return strconv.AppendFloat(to, f, 'f', -1, 64)
	}
	begin := len(to)
	to = strconv.AppendFloat(to, f, 'e', -1, 64)
	if at := begin + bytes.Index(to[begin:], []byte("e-0")); at >= begin { // e-07 is e-7
		to = append(to[:at+2], to[at+3:]...)
	}
	return to
}

// decimal is a number as it is written: digits without zeros at either end, times ten to
// the exponent. Zero has no digits.
type decimal struct {
	negative bool
	digits   []byte
	exponent int64
}

func (d decimal) equal(o decimal) bool {
	return bytes.Equal(d.digits, o.digits) && (len(d.digits) == 0 || d.negative == o.negative && d.exponent == o.exponent)
}

// text is the one way to write the decimal: -105e-1.
func (d decimal) text() string {
	if len(d.digits) == 0 {
		return "0"
	}
	sign := ""
	if d.negative {
		sign = "-"
	}
	return sign + string(d.digits) + "e" + strconv.FormatInt(d.exponent, 10)
}

// parseDecimal reads a valid JSON number.
func parseDecimal(number []byte) (d decimal) {
	number, d.negative = bytes.CutPrefix(number, []byte("-"))
	mantissa := number
	if at := bytes.IndexAny(number, "eE"); at >= 0 {
		mantissa, d.exponent = number[:at], parseExponent(number[at+1:])
	}
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	d.digits = append(append([]byte{}, whole...), fraction...)
	d.exponent -= int64(len(fraction))
	all := len(d.digits)
	d.digits = bytes.TrimRight(d.digits, "0")
	d.exponent += int64(all - len(d.digits))
	d.digits = bytes.TrimLeft(d.digits, "0")
	return d
}

// parseExponent reads the digits behind an e. What is beyond all bounds stays there.
func parseExponent(text []byte) int64 {
	const most = 1 << 40
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil && text[0] == '-' {
		return -most
	}
	if err != nil {
		return most
	}
	return min(max(n, -most), most)
}

// isNumber is true of what the grammar of JSON calls a number.
func isNumber(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte("-"))
	whole, text := cutDigits(text)
	if len(whole) == 0 || len(whole) > 1 && whole[0] == '0' {
		return false
	}
	if rest, has := bytes.CutPrefix(text, []byte(".")); has {
		var fraction []byte
		if fraction, text = cutDigits(rest); len(fraction) == 0 {
			return false
		}
	}
	if len(text) > 0 && (text[0] == 'e' || text[0] == 'E') {
		text = text[1:]
		if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
			text = text[1:]
		}
		var exponent []byte
		if exponent, text = cutDigits(text); len(exponent) == 0 {
			return false
		}
	}
	return len(text) == 0
}

func cutDigits(text []byte) (digits, rest []byte) {
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return text[:n], text[n:]
}
