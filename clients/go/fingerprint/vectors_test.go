package fingerprint_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	_ "google.golang.org/protobuf/types/known/anypb"
	_ "google.golang.org/protobuf/types/known/emptypb"
	_ "google.golang.org/protobuf/types/known/structpb"
	_ "google.golang.org/protobuf/types/known/wrapperspb"

	_ "github.com/idemd/idemd/gen/idemd/v1"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
)

// vectors is vectors.json, as docs/fingerprints.md describes it. Its digests were computed
// apart from this package's code.
type vectors struct {
	JSON []struct {
		vector
		Canonical *string
	}
	HTTP []struct {
		vector
		Method, Pattern, Host, Path, Query string
		Headers                            map[string][]string
	}
	Proto []struct {
		vector
		Type string
	}
	Keys []struct {
		Parts                  []string
		Derived, Deterministic string
	}
}

type vector struct {
	Name, Subject, Scheme, Digest, Strict string
	Text, Base64                          string
	Repeat                                [][2]any
	Rules                                 struct {
		Operation                                 string
		Include, Exclude, Decimals, Times, Emails []string
		Defaults                                  map[string]string
		Headers                                   []string
		ExcludeQuery                              []string `json:"exclude_query"`
	}
}

func (v vector) rules(strict bool) fingerprint.Rules {
	r := v.Rules
	return fingerprint.Rules{
		Operation: r.Operation, Include: r.Include, Exclude: r.Exclude, Decimals: r.Decimals, Times: r.Times,
		Emails: r.Emails, Defaults: r.Defaults, Strict: strict,
	}
}

func (v vector) input(t *testing.T) []byte {
	if v.Base64 != "" {
		b, err := base64.StdEncoding.DecodeString(v.Base64)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	text := v.Text
	for _, part := range v.Repeat {
		text += strings.Repeat(part[0].(string), int(part[1].(float64)))
	}
	return []byte(text)
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	text, err := os.ReadFile("vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// check holds both modes against the vector.
func (v vector) check(t *testing.T, sum func(strict bool) (idem.Fingerprint, error)) {
	t.Helper()
	for _, strict := range []bool{false, true} {
		got, err := sum(strict)
		var refused *fingerprint.RefusedError
		if strict && v.Strict != "" {
			if !errors.As(err, &refused) || string(refused.Problem) != v.Strict {
				t.Errorf("strict: %v, want %s", err, v.Strict)
			}
			continue
		}
		if err != nil || got.Scheme != v.Scheme || hex.EncodeToString(got.Digest) != v.Digest {
			t.Errorf("strict %v: %s %x %v, want %s %s", strict, got.Scheme, got.Digest, err, v.Scheme, v.Digest)
		}
	}
}

func TestTheVectorsOfJSONHold(t *testing.T) {
	for _, v := range readVectors(t).JSON {
		t.Run(v.Name, func(t *testing.T) {
			v.check(t, func(strict bool) (idem.Fingerprint, error) {
				j := mustJSON(t, v.rules(strict))
				return j.Sum(v.Subject, v.input(t))
			})
			if v.Canonical != nil {
				j := mustJSON(t, v.rules(false))
				if got, err := j.Canonical(v.input(t)); err != nil || string(got) != *v.Canonical {
					t.Errorf("%q %v, want %q", got, err, *v.Canonical)
				}
			}
		})
	}
}

func TestTheVectorsOfHTTPHold(t *testing.T) {
	for _, v := range readVectors(t).HTTP {
		t.Run(v.Name, func(t *testing.T) {
			v.check(t, func(strict bool) (idem.Fingerprint, error) {
				h, err := fingerprint.NewHTTP(fingerprint.HTTPRules{
					Rules: v.rules(strict), Headers: v.Rules.Headers, ExcludeQuery: v.Rules.ExcludeQuery,
				})
				if err != nil {
					t.Fatal(err)
				}
				header := http.Header{}
				for name, values := range v.Headers {
					for _, value := range values {
						header.Add(name, value)
					}
				}
				return h.Sum(v.Subject, fingerprint.Request{
					Method: v.Method, Pattern: v.Pattern, Host: v.Host, Path: v.Path, Query: v.Query, Header: header, Body: v.input(t),
				})
			})
		})
	}
}

func TestTheVectorsOfProtobufHold(t *testing.T) {
	for _, v := range readVectors(t).Proto {
		t.Run(v.Name, func(t *testing.T) {
			of, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(v.Type))
			if err != nil {
				t.Fatal(err)
			}
			m := of.New().Interface()
			if err := proto.Unmarshal(v.input(t), m); err != nil {
				t.Fatal(err)
			}
			v.check(t, func(strict bool) (idem.Fingerprint, error) {
				p, err := fingerprint.NewProto(of.Descriptor(), v.rules(strict))
				if err != nil {
					t.Fatal(err)
				}
				return p.Sum(v.Subject, m)
			})
		})
	}
}

func TestTheVectorsOfKeysHold(t *testing.T) {
	for _, v := range readVectors(t).Keys {
		if got := idem.DeriveKey(v.Parts[0], v.Parts[1:]...); got != v.Derived {
			t.Errorf("%q: derived %s, want %s", v.Parts, got, v.Derived)
		}
		if got := idem.DeterministicID(v.Parts[0], v.Parts[1:]...); got != v.Deterministic {
			t.Errorf("%q: %s, want %s", v.Parts, got, v.Deterministic)
		}
	}
}

func mustJSON(t *testing.T, r fingerprint.Rules) *fingerprint.JSON {
	t.Helper()
	j, err := fingerprint.NewJSON(r)
	if err != nil {
		t.Fatal(err)
	}
	return j
}
