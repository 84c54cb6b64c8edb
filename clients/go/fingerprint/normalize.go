package fingerprint

import (
	"strings"
	"time"
)

// maxExponent bounds the exponents of decimals.
const maxExponent = 1_000_000

// Decimal brings a decimal number, spelt as JSON spells numbers, to one form: its digits
// without zeros at either end, "e", and the exponent of ten: "105e-1" for 10.5, "10.50"
// and 1050e-2; zero is "0". Whatever else is in the text (spaces, separators, a plus
// sign, an exponent beyond a million) makes it no decimal: it is returned as it is.
func Decimal(text string) string {
	if !isDecimal([]byte(text)) {
		return text
	}
	return parseDecimal([]byte(text)).text()
}

func isDecimal(text []byte) bool {
	if !isNumber(text) {
		return false
	}
	d := parseDecimal(text)
	return len(d.digits) == 0 || max(d.exponent, -d.exponent) <= maxExponent
}

// Time brings an RFC 3339 time to one form: in UTC, with Z, and a fraction of a second,
// if any, of at most nine digits without zeros at its end. What is no such time, or has
// no such form, is returned as it is: lower-case letters, more digits, leap seconds, a
// zone that leads out of the years 0000 to 9999.
func Time(text string) string {
	var t time.Time
	if !isShaped(text) || t.UnmarshalText([]byte(text)) != nil {
		return text
	}
	if t = t.UTC(); t.Year() < 0 || t.Year() > 9999 {
		return text
	}
	return t.Format(time.RFC3339Nano)
}

// isShaped is false of what package time lets pass though RFC 3339 does not, or cuts off.
func isShaped(text string) bool {
	const seconds, zone = len("2006-01-02T15:04:05"), len("+00:00")
	if len(text) <= seconds || strings.Contains(text, ",") {
		return false
	}
	if text[seconds] == '.' {
		if digits, _ := cutDigits([]byte(text[seconds+1:])); len(digits) > 9 {
			return false
		}
	}
	return strings.HasSuffix(text, "Z") || text[len(text)-zone+1:] < "24"
}

// Email drops spaces, tabs and line ends around an address, and turns A-Z into a-z.
// Other letters stay: their case is not the same in every language.
func Email(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, strings.Trim(text, " \t\r\n"))
}
