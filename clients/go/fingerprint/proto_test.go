package fingerprint_test

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/idemd/idemd/clients/go/fingerprint"
	"github.com/idemd/idemd/clients/go/idem"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// Two versions of one schema, as descriptors: generated code is made of the same. In the
// new one fields stand in another order, some are new, and integers are longer.
const (
	oldSchema = `
		name: "shop.proto" package: "shop" syntax: "proto2" message_type {
			name: "Order"
			field { name: "id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
			field { name: "cents" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
			field { name: "tags" number: 3 type: TYPE_STRING label: LABEL_REPEATED }
			extension_range { start: 100 end: 200 }
		}
		extension { name: "id" number: 100 type: TYPE_STRING label: LABEL_OPTIONAL extendee: ".shop.Order" }
		message_type {
			name: "Request"
			field { name: "order" number: 1 type: TYPE_MESSAGE type_name: ".shop.Order" label: LABEL_OPTIONAL }
		}`
	newSchema = `
		name: "shop.proto" package: "shop" syntax: "proto3" message_type {
			name: "Request"
			field { name: "note" number: 7 type: TYPE_STRING label: LABEL_OPTIONAL }
			field { name: "ratio" number: 8 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
			field { name: "maybe" number: 9 type: TYPE_INT64 label: LABEL_OPTIONAL proto3_optional: true oneof_index: 1 }
			field { name: "card" number: 10 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
			field { name: "iban" number: 11 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
			field { name: "orders" number: 12 type: TYPE_MESSAGE type_name: ".shop.Order" label: LABEL_REPEATED }
			field { name: "parent" number: 13 type: TYPE_MESSAGE type_name: ".shop.Request" label: LABEL_OPTIONAL }
			field { name: "order" number: 1 type: TYPE_MESSAGE type_name: ".shop.Order" label: LABEL_OPTIONAL }
			oneof_decl { name: "means" } oneof_decl { name: "_maybe" }
		}
		message_type {
			name: "Order"
			field { name: "tags" number: 3 type: TYPE_BYTES label: LABEL_REPEATED }
			field { name: "currency" number: 4 type: TYPE_STRING label: LABEL_OPTIONAL }
			field { name: "cents" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL }
			field { name: "id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
		}`
)

func schema(t testing.TB, text string) protoreflect.FileDescriptor {
	t.Helper()
	var file descriptorpb.FileDescriptorProto
	if err := prototext.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	built, err := protodesc.NewFile(&file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

// orderMessage reads a Request in the text format.
func orderMessage(t testing.TB, in, text string) proto.Message {
	t.Helper()
	m := dynamicpb.NewMessage(schema(t, in).Messages().ByName("Request"))
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func protoFingerprint(t testing.TB, r fingerprint.Rules, subject string, m proto.Message) idem.Fingerprint {
	t.Helper()
	p, err := fingerprint.NewProto(m.ProtoReflect().Descriptor(), r)
	if err != nil {
		t.Fatal(err)
	}
	f, err := p.Sum(subject, m)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func protoSum(t testing.TB, r fingerprint.Rules, subject string, m proto.Message) string {
	f := protoFingerprint(t, r, subject, m)
	return fmt.Sprintf("%s %x", f.Scheme, f.Digest)
}

// different holds messages of the new schema, in text, against each other.
func different(t *testing.T, r fingerprint.Rules, texts ...string) {
	t.Helper()
	seen := map[string]string{}
	for _, text := range texts {
		sum := protoSum(t, r, "", orderMessage(t, newSchema, text))
		if other, is := seen[sum]; is {
			t.Errorf("%s and %s are equal", other, text)
		}
		seen[sum] = text
	}
}

func equal(t *testing.T, r fingerprint.Rules, texts ...string) {
	t.Helper()
	for _, text := range texts[1:] {
		if protoSum(t, r, "", orderMessage(t, newSchema, text)) != protoSum(t, r, "", orderMessage(t, newSchema, texts[0])) {
			t.Errorf("%s and %s differ", texts[0], text)
		}
	}
}

func TestVersionsOfASchemaAgreeOnTheirCommonFields(t *testing.T) {
	text := `order: {id: "17" cents: -5 tags: "a" tags: "b"}`
	want := protoSum(t, fingerprint.Rules{}, "", orderMessage(t, oldSchema, text))
	if got := protoSum(t, fingerprint.Rules{}, "", orderMessage(t, newSchema, text)); got != want {
		t.Errorf("the new version says %s, the old one %s", got, want)
	}
	wire, err := proto.Marshal(orderMessage(t, newSchema, text+` note: "n"`))
	if err != nil {
		t.Fatal(err)
	}
	old := orderMessage(t, oldSchema, ``)
	if err := proto.Unmarshal(wire, old); err != nil {
		t.Fatal(err)
	}
	if len(old.ProtoReflect().GetUnknown()) == 0 {
		t.Fatal("the old version knows the new field")
	}
	if got := protoSum(t, fingerprint.Rules{}, "", old); got != want {
		t.Error("a field that is not known counts")
	}
	if protoSum(t, fingerprint.Rules{}, "", orderMessage(t, newSchema, text+` note: "n"`)) == want {
		t.Error("a field that is known and set does not count")
	}
}

func TestANewFieldLeftAtItsDefaultDoesNotCount(t *testing.T) {
	equal(t, fingerprint.Rules{}, `order: {id: "1"}`, `order: {id: "1" cents: 0 currency: ""} note: "" ratio: 0`, `order: {id: "1"} ratio: -0.0`)
}

func TestPresenceCountsWhereThereIsOne(t *testing.T) {
	different(t, fingerprint.Rules{}, ``, `maybe: 0`, `maybe: 1`, `card: ""`, `iban: ""`, `card: "x"`, `iban: "x"`, `order: {}`, `parent: {}`, `orders: {}`, `orders: {} orders: {}`, `parent: {parent: {}}`)
}

func TestTheOrderOnTheWireDoesNotMatter(t *testing.T) {
	message := orderMessage(t, newSchema, `order: {id: "1" cents: 2} note: "n" maybe: 3 parent: {note: "p"}`)
	wire, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	var reversed []byte
	for rest := wire; len(rest) > 0; {
		_, _, n := protowire.ConsumeField(rest)
		reversed, rest = append(rest[:n:n], reversed...), rest[n:]
	}
	again := orderMessage(t, newSchema, ``)
	if err := proto.Unmarshal(reversed, again); err != nil || bytes.Equal(wire, reversed) {
		t.Fatalf("nothing was reversed: %v", err)
	}
	if protoSum(t, fingerprint.Rules{}, "", again) != protoSum(t, fingerprint.Rules{}, "", message) {
		t.Error("it matters")
	}
}

func TestAMapHasOneFingerprintHoweverItIsSerialised(t *testing.T) {
	fields := map[string]any{}
	for i := range 50 {
		fields[fmt.Sprintf("key-%d", i)] = float64(i)
	}
	first, err := structpb.NewStruct(fields)
	if err != nil {
		t.Fatal(err)
	}
	want := protoSum(t, fingerprint.Rules{}, "", first)
	wires := map[string]bool{}
	for range 1000 {
		wire, err := proto.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		wires[string(wire)] = true
		var again structpb.Struct
		if err := proto.Unmarshal(wire, &again); err != nil {
			t.Fatal(err)
		}
		if got := protoSum(t, fingerprint.Rules{}, "", &again); got != want {
			t.Fatalf("%s, then %s", want, got)
		}
	}
	if len(wires) < 2 {
		t.Error("the serialisations were all the same: this test shows nothing")
	}
}

func TestWhatAMessageSaysCounts(t *testing.T) {
	different(t, fingerprint.Rules{}, ``, `note: "a"`, `note: "b"`, `ratio: 1`, `ratio: nan`, `ratio: inf`, `ratio: -inf`, `ratio: 1.0000000000000002`,
		`order: {id: "1"}`, `order: {currency: "1"}`, `order: {tags: "a" tags: "b"}`, `order: {tags: "b" tags: "a"}`, `order: {tags: "ab"}`, `order: {tags: ""}`,
		`orders: {id: "1"}`, `orders: {id: "1"} orders: {}`, `orders: {} orders: {id: "1"}`, `parent: {order: {id: "1"}}`, `order: {cents: -1}`, `order: {cents: 1}`)
	r := idemdv1.ReserveRequest{Tenant: "a", Namespace: "b", Key: "c"}
	l := idemdv1.LookupRequest{Tenant: "a", Namespace: "b", Key: "c"}
	if protoSum(t, fingerprint.Rules{}, "", &r) == protoSum(t, fingerprint.Rules{}, "", &l) {
		t.Error("the type of a message does not count")
	}
}

func TestGeneratedAndDynamicMessagesAgree(t *testing.T) {
	generated := &idemdv1.CompleteRequest{Tenant: "acme", OwnerToken: []byte{1, 2}, Result: &idemdv1.Result{Status: 201, Headers: []*idemdv1.Header{{Name: "a"}}}}
	wire, err := proto.Marshal(generated)
	if err != nil {
		t.Fatal(err)
	}
	dynamic := dynamicpb.NewMessage(generated.ProtoReflect().Descriptor())
	if err := proto.Unmarshal(wire, dynamic); err != nil {
		t.Fatal(err)
	}
	if protoSum(t, fingerprint.Rules{}, "", generated) != protoSum(t, fingerprint.Rules{}, "", dynamic) {
		t.Error("they differ")
	}
}

// It is named as a field is, which the rules say something about.
func TestAnExtensionThatIsKnownCounts(t *testing.T) {
	file := schema(t, oldSchema)
	other := dynamicpb.NewExtensionType(file.Extensions().ByName("id"))
	seen := map[string]bool{}
	for _, text := range []string{"", "a", "b"} {
		order := dynamicpb.NewMessage(file.Messages().ByName("Order"))
		proto.SetExtension(order, other, text)
		seen[protoSum(t, fingerprint.Rules{Exclude: []string{"id"}}, "", order)] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d fingerprints of three messages", len(seen))
	}
}

func TestAnAnyCountsByWhatItHolds(t *testing.T) {
	held := &idemdv1.LookupRequest{Tenant: "a", Key: "k"}
	packed, err := anypb.New(held)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := &anypb.Any{TypeUrl: "example.com/" + packed.GetTypeUrl()[strings.LastIndex(packed.GetTypeUrl(), "/")+1:], Value: packed.GetValue()}
	elsewhere.Value = protowire.AppendVarint(protowire.AppendTag(elsewhere.Value, 900, protowire.VarintType), 1)
	want := protoFingerprint(t, fingerprint.Rules{Strict: true}, "", packed)
	if got := protoFingerprint(t, fingerprint.Rules{Strict: true}, "", elsewhere); string(got.Digest) != string(want.Digest) {
		t.Error("a host in its name, or a field that is not known, counts")
	}
	unknown := &anypb.Any{TypeUrl: "example.com/no.such.Type", Value: packed.GetValue()}
	if got := protoFingerprint(t, fingerprint.Rules{}, "", unknown); got.Scheme != fingerprint.SchemeProtoRaw {
		t.Errorf("a type that is not known has scheme %s", got.Scheme)
	}
	strict, _ := fingerprint.NewProto(unknown.ProtoReflect().Descriptor(), fingerprint.Rules{Strict: true})
	if _, err := strict.Sum("", unknown); problemOf(err) != fingerprint.UnknownType {
		t.Errorf("strict: %v", err)
	}
}

func TestFieldsAreSelectedByPath(t *testing.T) {
	exclude := fingerprint.Rules{Exclude: []string{"note", "order.cents", "orders.currency"}}
	equal(t, exclude, `order: {id: "1" cents: 1} orders: {id: "2" currency: "EUR"} note: "x"`, `order: {id: "1"} orders: {id: "2"}`)
	different(t, exclude, ``, `order: {id: "1"}`, `orders: {id: "2"}`, `orders: {cents: 1}`)
	include := fingerprint.Rules{Include: []string{"order.cents", "orders.id"}}
	equal(t, include, `order: {id: "1" cents: 1} orders: {id: "2" currency: "EUR"} note: "x"`, `order: {cents: 1} orders: {id: "2"}`)
	different(t, include, ``, `order: {cents: 1}`, `orders: {id: "1"}`, `orders: {id: "2"}`)
	equal(t, include, ``, `note: "x"`, `order: {}`)
	forms := fingerprint.Rules{Decimals: []string{"order.id"}, Emails: []string{"note"}, Defaults: map[string]string{"orders.currency": `"EUR"`, "maybe": "0", "ratio": "1"}}
	equal(t, forms, `order: {id: "1.0"} note: "A@b" orders: {currency: "EUR"} maybe: 0 ratio: 1`, `order: {id: "1"} note: "a@b" orders: {}`)
	different(t, forms, `order: {id: "1"}`, `order: {id: "2"}`, `orders: {}`, `orders: {currency: "USD"}`, `maybe: 1`, `ratio: 2`)
}

func TestPathsThatAMessageDoesNotHaveAreRefused(t *testing.T) {
	of := orderMessage(t, newSchema, ``).ProtoReflect().Descriptor()
	for name, r := range map[string]fingerprint.Rules{
		"no such field": {Include: []string{"order.amuont"}}, "beneath a scalar": {Exclude: []string{"note.x"}}, "empty": {Exclude: []string{""}},
		"a step too many": {Exclude: []string{"order..id"}}, "a decimal of numbers": {Decimals: []string{"order.cents"}}, "a time of messages": {Times: []string{"order"}},
		"no integer": {Defaults: map[string]string{"maybe": "1.5"}}, "too large": {Defaults: map[string]string{"maybe": "1e30"}},
		"of a list": {Defaults: map[string]string{"orders": "[]"}}, "of bytes": {Defaults: map[string]string{"order.tags": `""`}},
	} {
		if _, err := fingerprint.NewProto(of, r); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	if _, err := fingerprint.NewProto((&anypb.Any{}).ProtoReflect().Descriptor(), fingerprint.Rules{Exclude: []string{"value"}}); err == nil {
		t.Error("within an Any a path is not refused")
	}
	p, err := fingerprint.NewProto(of, fingerprint.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Sum("", &idemdv1.Header{}); err == nil {
		t.Error("another message is not refused")
	}
	if _, err := p.Sum("", nil); err == nil {
		t.Error("no message is not refused")
	}
}

func TestHostileMessagesAreRefused(t *testing.T) {
	deep := orderMessage(t, newSchema, ``).ProtoReflect()
	for range fingerprint.MaxDepth {
		outer := deep.New()
		outer.Set(outer.Descriptor().Fields().ByName("parent"), protoreflect.ValueOfMessage(deep))
		deep = outer
	}
	nested := &anypb.Any{}
	for range fingerprint.MaxDepth {
		outer, err := anypb.New(nested)
		if err != nil {
			t.Fatal(err)
		}
		nested = outer
	}
	filler := protowire.AppendBytes(protowire.AppendTag(nil, 900, protowire.BytesType), make([]byte, fingerprint.MaxBytes/16))
	fat := &anypb.Any{TypeUrl: "/google.protobuf.Any", Value: filler}
	for range 20 {
		wire, err := proto.Marshal(fat)
		if err != nil {
			t.Fatal(err)
		}
		fat = &anypb.Any{TypeUrl: "/google.protobuf.Any", Value: wire}
	}
	wide := &structpb.ListValue{Values: make([]*structpb.Value, 500_000)}
	for i := range wide.Values {
		wide.Values[i] = structpb.NewNumberValue(math.NaN())
	}
	for name, c := range map[string]struct {
		m       proto.Message
		problem fingerprint.Problem
	}{
		"deep": {deep.Interface(), fingerprint.TooDeep}, "an Any in an Any": {nested, fingerprint.TooDeep}, "large Anys": {fat, fingerprint.TooLarge},
		"a long list": {wide, fingerprint.TooLarge}, "a long text": {&idemdv1.LookupRequest{Key: strings.Repeat("k", fingerprint.MaxBytes)}, fingerprint.TooLarge},
	} {
		var p fingerprint.Proto
		if _, err := p.Sum("", c.m); problemOf(err) != c.problem {
			t.Errorf("%s: %v", name, err)
		}
	}
}
