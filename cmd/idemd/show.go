package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// fields are printed beside those of a response.
type fields map[string]any

// show prints a response. JSON is protobuf's JSON form with the names of the .proto
// files; bytes are base64 there, and text, where they are text, in a table.
func show(std streams, output string, response proto.Message, extra fields) error {
	encoded, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(response)
	if err != nil {
		return err
	}
	shown := map[string]any{}
	decoder := json.NewDecoder(strings.NewReader(string(encoded)))
	decoder.UseNumber()
	if err := decoder.Decode(&shown); err != nil {
		return err
	}
	maps.Copy(shown, extra)
	if output == "json" {
		encoder := json.NewEncoder(std.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(shown)
	}
	return table(std.out, shown)
}

// table prints one line a field, nested ones behind a dot.
func table(out io.Writer, shown map[string]any) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows(w, "", shown)
	return w.Flush()
}

func rows(w io.Writer, name string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			rows(w, strings.TrimPrefix(name+"."+key, "."), v[key])
		}
	case []any:
		for i, element := range v {
			rows(w, fmt.Sprintf("%s[%d]", name, i), element)
		}
	default:
		_, _ = fmt.Fprintf(w, "%s\t%s\n", name, text(name, fmt.Sprint(v)))
	}
}

// text shows bytes that are text as such, with line breaks and tabs escaped.
func text(name, value string) string {
	for _, suffix := range []string{"body", "checkpoint", "value"} {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		decoded, err := base64.StdEncoding.DecodeString(value)
		spaced := strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(string(decoded))
		if err != nil || !utf8.Valid(decoded) || strings.ContainsFunc(spaced, unicode.IsControl) {
			return "base64:" + value
		}
		if spaced != string(decoded) {
			return strconv.Quote(string(decoded))
		}
		return string(decoded)
	}
	return value
}
